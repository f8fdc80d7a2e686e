#include "formats/dcp/dcp_window.h"

#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"

/* Fits the processor's cache, so that bytes are parsed where they were read. */
#define ROOM_NBYTES ((size_t)256 << 10)
#define HEAD        9u
#define PROTO_END   2u
/* Bytes after the last frame: the pickler puts so few in no frame. */
#define TAIL_MOST 3u

/* The head of a frame at `head`, with `rest` bytes of the file from there on. */
static bool begin_frame(dcp_window *w, const uint8_t *head, uint64_t rest)
{
    const uint64_t nbytes = load_le64(head + 1);
    /* A file of tiny frames would take a read for each. */
    if (head[0] != OP_FRAME || nbytes == 0 || nbytes > rest - HEAD ||
        w->nframes++ > 64 + w->from->nbytes / 4096)
        return false;
    w->file_at += HEAD;
    w->frame_left = nbytes;
    return true;
}

fsdpck_status dcp_window_open(dcp_window *w, const dcp_bytes *from, budget *owner)
{
    uint8_t head[PROTO_END + HEAD];

    *w = (dcp_window){.from = from,
                      .owner = owner,
                      .room = from->window_nbytes > 0 ? from->window_nbytes : ROOM_NBYTES,
                      .file_at = PROTO_END};
    if (from->nbytes < sizeof head ||
        from->read(from->ctx, 0, head, sizeof head, NULL) != FSDPCK_OK || head[0] != OP_PROTO ||
        head[1] < 4 || head[1] > PICKLE_PROTOCOL_MAX ||
        !begin_frame(w, head + PROTO_END, from->nbytes - PROTO_END))
        return DCP_ODD;
    /* Zeros after the end: a matcher stops there. */
    w->bytes = budget_alloc(owner, w->room + DCP_LOOK, NULL);
    return w->bytes != NULL ? FSDPCK_OK : DCP_ODD;
}

void dcp_window_release(dcp_window *w)
{
    budget_free(w->owner, w->bytes, w->room + DCP_LOOK);
    w->bytes = NULL;
}

/* After the last byte of a frame, with the next `extra` bytes of the file at w->bytes + w->end. */
static bool next_frame(dcp_window *w, size_t extra)
{
    const uint64_t rest = w->from->nbytes - w->file_at;
    w->cuts[w->ncuts++] = w->end;
    if (rest > TAIL_MOST)
        return extra == HEAD && begin_frame(w, w->bytes + w->end, rest);
    w->end += (size_t)rest;
    w->file_at += rest;
    w->whole = true;
    return true;
}

fsdpck_status dcp_window_fill(dcp_window *w)
{
    memmove(w->bytes, w->bytes + w->at, w->end - w->at);
    for (size_t i = 0; i < w->ncuts; i++)
        w->cuts[i] -= w->at;
    w->end -= w->at;
    w->at = 0;
    while (!w->whole && w->room - w->end > HEAD && w->ncuts < DCP_WINDOW_CUTS) {
        const uint64_t room = w->room - w->end - HEAD;
        const uint64_t n = w->frame_left < room ? w->frame_left : room;
        const uint64_t rest = w->from->nbytes - w->file_at - n;
        const bool last = n == w->frame_left;
        const size_t extra = !last ? 0 : rest < HEAD ? (size_t)rest : HEAD;
        uint8_t *to = w->bytes + w->end;
        if (w->from->read(w->from->ctx, w->file_at, to, n + extra, NULL) != FSDPCK_OK)
            return DCP_ODD;
        w->file_at += n;
        w->end += (size_t)n;
        w->frame_left -= n;
        if (last && !next_frame(w, extra))
            return DCP_ODD;
    }
    memset(w->bytes + w->end, 0, DCP_LOOK);
    return dcp_window_is_low(w) ? DCP_ODD : FSDPCK_OK;
}

/* Of the opcodes that DCP's records consist of. */
static size_t opcode_nbytes(const uint8_t *p)
{
    switch (p[0]) {
    case OP_BINGET:
    case OP_BININT1:
        return 2;
    case OP_BININT2:
        return 3;
    case OP_LONG_BINGET:
    case OP_BININT:
        return 5;
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
        return 2u + p[1];
    default:
        return 1;
    }
}

static void drop_cuts(dcp_window *w, size_t passed)
{
    if (passed > 0)
        memmove(w->cuts, w->cuts + passed, (w->ncuts - passed) * sizeof *w->cuts);
    w->ncuts -= passed;
}

bool dcp_window_pass_end(dcp_window *w)
{
    size_t passed = 0;
    while (passed < w->ncuts && w->cuts[passed] == w->at)
        passed++;
    drop_cuts(w, passed);
    return w->ncuts == 0 || w->cuts[0] > w->at;
}

bool dcp_window_pass_ends(dcp_window *w, size_t from)
{
    size_t passed = 0;
    for (; passed < w->ncuts && w->cuts[passed] <= w->at; passed++) {
        while (from < w->cuts[passed])
            from += opcode_nbytes(w->bytes + from);
        if (from != w->cuts[passed])
            return false;
    }
    drop_cuts(w, passed);
    return true;
}
