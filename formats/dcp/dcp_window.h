/* dcp_window.h: the opcodes of a `.metadata` in blocks, without the heads of their frames.
 *
 *     dcp_frames f;
 *     dcp_window w = {0};
 *     RETURN_IF(dcp_frames_open(&f, &bytes));
 *     while (more) {
 *         RETURN_IF(dcp_block_plan(&f, &block));      // in order, by one thread
 *         RETURN_IF(dcp_block_read(&bytes, &block));  // by any thread
 *         RETURN_IF(dcp_window_enter(&w, &block));    // at least DCP_LOOK bytes at w.bytes + w.at, or all
 *         ...
 *         w.at += taken;
 *         dcp_window_leave(&w);                       // the rest is put before the next block
 *     }
 *     dcp_block_release(&block);
 *
 * Only for pickles of protocol 4 and 5 in frames as Python makes them. All functions return DCP_ODD
 * for others, and whenever something fails: the caller then reads the whole file.
 */
#ifndef FSDPCK_DCP_WINDOW_H
#define FSDPCK_DCP_WINDOW_H

#include "base/alloc.h"
#include "base/pool.h"

/* Bytes to be read by offset. */
typedef struct dcp_bytes {
    void *ctx;
    uint64_t nbytes;
    /* Any thread may call it. */
    fsdpck_status (*read)(void *ctx, uint64_t at, void *dst, uint64_t nbytes, fsdpck_error *err);
    size_t window_nbytes; /* of a block, more than 2 DCP_LOOK; 0: as is fast */
    unsigned nthreads;    /* 0: one */
    const cancel_token *cancel;
} dcp_bytes;

/* Not for this reader; without an error. */
#define DCP_ODD FSDPCK_UNSUPPORTED

#define DCP_LOOK        4096u
#define DCP_WINDOW_CUTS 128u

/* Position in the file. */
typedef struct dcp_frames {
    const dcp_bytes *from;
    uint64_t file_at;    /* next byte of the file */
    uint64_t frame_left; /* bytes of the frame from there on */
    uint64_t nframes;
    bool in_frame; /* part of the frame is in an earlier block */
    bool whole;    /* nothing is left in the file */
} dcp_frames;

typedef struct dcp_piece {
    uint64_t file_at;
    size_t nbytes;
} dcp_piece;

typedef struct dcp_block {
    budget *owner;
    uint8_t *bytes; /* DCP_LOOK for the end of the block before, its own, and DCP_LOOK zeros */
    size_t room;
    size_t nbytes;
    dcp_piece pieces[DCP_WINDOW_CUTS + 1];
    size_t npieces;
    size_t cuts[DCP_WINDOW_CUTS]; /* ends of frames, from its first byte */
    size_t ncuts;
    bool begins_frame; /* hence with an opcode */
    bool whole;        /* ends with the file */
} dcp_block;

typedef struct dcp_window {
    uint8_t *bytes;                   /* of the block */
    size_t at, end;                   /* of the bytes that were not taken yet */
    size_t cuts[2 * DCP_WINDOW_CUTS]; /* ends of frames in `bytes` */
    size_t ncuts;
    bool whole;
    uint8_t rest[DCP_LOOK]; /* between blocks: bytes that were not taken, from `at` to `end` */
} dcp_window;

fsdpck_status dcp_frames_open(dcp_frames *f, const dcp_bytes *from) FSDPCK_MUST_CHECK;
/* A zeroed block with an owner and `room` is ready. */
fsdpck_status dcp_block_plan(dcp_frames *f, dcp_block *b) FSDPCK_MUST_CHECK;
fsdpck_status dcp_block_read(const dcp_bytes *from, dcp_block *b) FSDPCK_MUST_CHECK;
void dcp_block_release(dcp_block *b);

fsdpck_status dcp_window_enter(dcp_window *w, const dcp_block *b) FSDPCK_MUST_CHECK;
void dcp_window_leave(dcp_window *w);

bool dcp_window_pass_ends(dcp_window *w, size_t from);
bool dcp_window_pass_end(dcp_window *w);
/* w->at has passed opcodes that do not cross the end of a frame. */
void dcp_window_drop_ends(dcp_window *w);

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
