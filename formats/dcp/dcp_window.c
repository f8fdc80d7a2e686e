#include "formats/dcp/dcp_window.h"

#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"

#define HEAD      9u
#define PROTO_END 2u
/* Bytes after the last frame: the pickler puts so few in no frame. */
#define TAIL_MOST 3u

/* The head of a frame at f->file_at. */
static bool begin_frame(dcp_frames *f, const uint8_t *head)
{
    const uint64_t rest = f->from->nbytes - f->file_at, nbytes = load_le64(head + 1);
    /* A file of tiny frames would take a read for each. */
    if (head[0] != OP_FRAME || nbytes == 0 || nbytes > rest - HEAD ||
        f->nframes++ > 64 + f->from->nbytes / 4096)
        return false;
    f->file_at += HEAD;
    f->frame_left = nbytes;
    f->in_frame = false;
    return true;
}

fsdpck_status dcp_frames_open(dcp_frames *f, const dcp_bytes *from)
{
    uint8_t head[PROTO_END + HEAD];

    *f = (dcp_frames){.from = from, .file_at = PROTO_END};
    if (from->nbytes < sizeof head ||
        from->read(from->ctx, 0, head, sizeof head, NULL) != FSDPCK_OK || head[0] != OP_PROTO ||
        head[1] < 4 || head[1] > PICKLE_PROTOCOL_MAX || !begin_frame(f, head + PROTO_END))
        return DCP_ODD;
    return FSDPCK_OK;
}

static void add_piece(dcp_frames *f, dcp_block *b, uint64_t nbytes)
{
    b->pieces[b->npieces++] = (dcp_piece){f->file_at, (size_t)nbytes};
    b->nbytes += (size_t)nbytes;
    f->file_at += nbytes;
}

/* After the last byte of a frame. */
static fsdpck_status next_frame(dcp_frames *f, dcp_block *b)
{
    const uint64_t rest = f->from->nbytes - f->file_at;
    uint8_t head[HEAD];

    b->cuts[b->ncuts++] = b->nbytes;
    if (rest > TAIL_MOST)
        return rest >= HEAD &&
                       f->from->read(f->from->ctx, f->file_at, head, HEAD, NULL) == FSDPCK_OK &&
                       begin_frame(f, head)
                   ? FSDPCK_OK
                   : DCP_ODD;
    add_piece(f, b, rest);
    f->whole = true;
    return FSDPCK_OK;
}

/* Of whole frames, unless they would fill less than half of it. */
fsdpck_status dcp_block_plan(dcp_frames *f, dcp_block *b)
{
    if (b->bytes == NULL)
        b->bytes = budget_alloc(b->owner, b->room + TAIL_MOST + 2 * DCP_LOOK, NULL);
    if (b->bytes == NULL)
        return DCP_ODD;
    b->nbytes = b->npieces = b->ncuts = 0;
    b->begins_frame = !f->in_frame;
    while (!f->whole && b->ncuts < DCP_WINDOW_CUTS) {
        if (f->frame_left <= b->room - b->nbytes) {
            add_piece(f, b, f->frame_left);
            RETURN_IF(next_frame(f, b));
            continue;
        }
        if (b->nbytes < b->room / 2) {
            const uint64_t n = b->room - b->nbytes;
            add_piece(f, b, n);
            f->frame_left -= n;
            f->in_frame = true;
        }
        break;
    }
    b->whole = f->whole;
    return FSDPCK_OK;
}

fsdpck_status dcp_block_read(const dcp_bytes *from, dcp_block *b)
{
    uint8_t *to = b->bytes + DCP_LOOK;
    for (size_t i = 0; i < b->npieces; i++) {
        const dcp_piece *p = &b->pieces[i];
        if (from->read(from->ctx, p->file_at, to, p->nbytes, NULL) != FSDPCK_OK)
            return DCP_ODD;
        to += p->nbytes;
    }
    /* A matcher stops at zeros. */
    memset(to, 0, DCP_LOOK);
    return FSDPCK_OK;
}

void dcp_block_release(dcp_block *b)
{
    if (b->bytes != NULL)
        budget_free(b->owner, b->bytes, b->room + TAIL_MOST + 2 * DCP_LOOK);
    b->bytes = NULL;
}

fsdpck_status dcp_window_enter(dcp_window *w, const dcp_block *b)
{
    const size_t nrest = w->end - w->at;
    w->bytes = b->bytes;
    w->at = DCP_LOOK - nrest;
    w->end = DCP_LOOK + b->nbytes;
    memcpy(w->bytes + w->at, w->rest, nrest);
    for (size_t i = 0; i < w->ncuts; i++)
        w->cuts[i] += w->at;
    if (w->ncuts > DCP_WINDOW_CUTS)
        return DCP_ODD;
    for (size_t i = 0; i < b->ncuts; i++)
        w->cuts[w->ncuts++] = DCP_LOOK + b->cuts[i];
    w->whole = b->whole;
    return dcp_window_is_low(w) ? DCP_ODD : FSDPCK_OK;
}

void dcp_window_leave(dcp_window *w)
{
    if (w->bytes != NULL)
        memcpy(w->rest, w->bytes + w->at, w->end - w->at);
    for (size_t i = 0; i < w->ncuts; i++)
        w->cuts[i] -= w->at;
    w->end -= w->at;
    w->at = 0;
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

void dcp_window_drop_ends(dcp_window *w)
{
    size_t passed = 0;
    while (passed < w->ncuts && w->cuts[passed] <= w->at)
        passed++;
    drop_cuts(w, passed);
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
