/* engine.h: what fills the tiles of a run: threads, or a device. One table each; nothing else in lib/exec
 * knows which of them runs.
 *
 *     x->engine = engine_choose(&request);         // exec/gpu/engines.c has the list of them
 *     RETURN_IF(x->engine->open(x, err));
 *     RETURN_IF(x->engine->worker_open(w, tile_span, err));      // its memory; for each worker
 *     RETURN_IF(x->engine->begin(x, err));         // by all ranks
 *     RETURN_IF(x->engine->run_items(x, &done, err));            // where it shares them in its own way
 *     RETURN_IF(x->engine->fill_tile(w, range, &done, err));     // else threads do
 *     x->engine->end(x, in_order);
 *     x->engine->worker_close(w);
 *     x->engine->close(x);                         // also after a failure of open
 */
#ifndef FSDPCK_EXEC_ENGINE_H
#define FSDPCK_EXEC_ENGINE_H

#include "exec/convert.h"
#include "exec/exec.h"

typedef struct worker worker;

/* How what was read comes to its place, by pointers into the worker's memory. */
typedef struct engine_place {
    bool
        direct; /* a run may be read straight to its place; boxes are not counted before they come */
    /* Memory to read to, for so many boxes with that many dims in all, the first of which goes to dst. */
    fsdpck_status (*reserve)(worker *w, uint64_t nbytes, const uint8_t *dst, unsigned boxes,
                             unsigned dims, uint8_t **buffer, fsdpck_error *err);
    /* From there: one box, copied or converted; bytes in a row. */
    void (*box)(worker *w, const convert *c, const strided *s, uint8_t *dst, const uint8_t *src);
    void (*run)(worker *w, uint8_t *dst, const uint8_t *src, uint64_t nbytes);
} engine_place;

extern const engine_place place_by_threads;

/* What an engine may fill in place of threads: bytes [begin, end) of a worker's memory. */
typedef struct engine_fill {
    /* Reads and places all of it, as w->place has it; flushes. */
    fsdpck_status (*gather)(worker *w, const void *ctx, fsdpck_error *err);
    uint64_t (*sum)(worker *w, const void *ctx); /* of the bytes that matter, to compare */
    const void *ctx;
    uint8_t *begin, *end;
    bool stays; /* on the device, unless it is to be compared */
} engine_fill;

typedef struct engine {
    bool (*suits)(const exec_request *r);
    uint64_t staging_nbytes_max; /* of a worker */
    bool whole_tiles;            /* tiles are filled whole, column groups in them: long copies */
    bool wants_owners;           /* struct exec's, where ranks read from each other's disks */
    fsdpck_status (*open)(struct exec *x, fsdpck_error *err);
    void (*close)(struct exec *x);
    /* What a worker has for so many bytes of staging. */
    uint64_t (*staging_span)(uint64_t staging_nbytes);
    /* Of a memory that is not the host's, a worker's share; 0: there is none, or the host has less. */
    uint64_t (*device_nbytes)(const struct exec *x, uint64_t tile_span, uint64_t staging_nbytes);
    /* w->memory of w->memory_nbytes; it is NULL where there is too little. */
    fsdpck_status (*worker_open)(worker *w, uint64_t tile_span, fsdpck_error *err);
    void (*worker_close)(worker *w);
    fsdpck_status (*begin)(struct exec *x, fsdpck_error *err);
    void (*end)(struct exec *x, bool in_order);
    /* Of this rank. *done: all of them; else the caller does them, one by one. */
    fsdpck_status (*run_items)(struct exec *x, bool *done, fsdpck_error *err);
    /* *done: its chunks are filled; else the caller's thread fills them. */
    fsdpck_status (*fill_tile)(worker *w, const output_range *range, bool *done, fsdpck_error *err);
    fsdpck_status (*fill)(worker *w, const engine_fill *f, bool *done, fsdpck_error *err);
    /* After the ranks' stats are known: what came from other ranks' devices. */
    void (*note_exchanged)(const struct exec *x, uint64_t nbytes);
} engine;

extern const engine engine_threads;

/* exec/gpu/engines.c: the first that suits. */
const engine *engine_choose(const exec_request *r);

#endif
