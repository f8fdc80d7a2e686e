/* dcp_window.h: the opcodes of a `.metadata` in one moving buffer, without the heads of their frames.
 *
 *     dcp_window w;
 *     RETURN_IF(dcp_window_open(&w, &bytes, owner));
 *     while (more) {
 *         RETURN_IF(dcp_window_fill(&w));   // at least DCP_LOOK bytes at w.bytes + w.at, or all
 *         ...
 *         w.at += taken;
 *     }
 *     dcp_window_release(&w);
 *
 * Only for pickles of protocol 4 and 5 in frames as Python makes them. All functions return DCP_ODD
 * for others, and whenever something fails: the caller then reads the whole file.
 */
#ifndef FSDPCK_DCP_WINDOW_H
#define FSDPCK_DCP_WINDOW_H

#include "base/alloc.h"

/* Bytes to be read by offset. */
typedef struct dcp_bytes {
    void *ctx;
    uint64_t nbytes;
    fsdpck_status (*read)(void *ctx, uint64_t at, void *dst, uint64_t nbytes, fsdpck_error *err);
    size_t window_nbytes; /* of the buffer, more than 2 DCP_LOOK; 0: as is fast */
} dcp_bytes;

/* Not for this reader; without an error. */
#define DCP_ODD FSDPCK_UNSUPPORTED

#define DCP_LOOK        4096u
#define DCP_WINDOW_CUTS 128u

typedef struct dcp_window {
    const dcp_bytes *from;
    budget *owner;
    uint8_t *bytes;
    size_t room;         /* of them, without DCP_LOOK zeros after them */
    size_t at, end;      /* of the bytes that were not taken yet */
    uint64_t file_at;    /* next byte of the file */
    uint64_t frame_left; /* bytes of the frame that are not in the buffer */
    uint64_t nframes;
    size_t cuts[DCP_WINDOW_CUTS]; /* ends of frames in `bytes` */
    size_t ncuts;
    bool whole; /* nothing is left in the file */
} dcp_window;

fsdpck_status dcp_window_open(dcp_window *w, const dcp_bytes *from,
                              budget *owner) FSDPCK_MUST_CHECK;
/* Moves the bytes that were not taken to the front, and reads more. */
fsdpck_status dcp_window_fill(dcp_window *w) FSDPCK_MUST_CHECK;
void dcp_window_release(dcp_window *w);

bool dcp_window_pass_ends(dcp_window *w, size_t from);
bool dcp_window_pass_end(dcp_window *w);

/* After w->at has passed from..w->at, opcodes of a record: false if one of them crosses the end of a
 * frame. */
static inline bool dcp_window_passed(dcp_window *w, size_t from)
{
    return w->ncuts == 0 || w->cuts[0] > w->at || dcp_window_pass_ends(w, from);
}

/* The same for one opcode, of any kind. */
static inline bool dcp_window_passed_one(dcp_window *w)
{
    return w->ncuts == 0 || w->cuts[0] > w->at || dcp_window_pass_end(w);
}

static inline bool dcp_window_is_low(const dcp_window *w)
{
    return w->end - w->at < DCP_LOOK && !w->whole;
}

#endif
