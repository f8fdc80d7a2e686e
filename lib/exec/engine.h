/* engine.h: the engines that fill the tiles of a run: threads or a device, one table each. No other
 * code in lib/exec depends on which one runs.
 *
 *     x->engine = engine_choose(&request);         // listed in engine_list.c
 *     RETURN_IF(x->engine->open(x, err));
 *     RETURN_IF(x->engine->worker_open(w, tile_span, err));      // its memory; for each worker
 *     RETURN_IF(x->engine->begin(x, err));         // by all ranks
 *     RETURN_IF(x->engine->run_items(x, &done, err));            // if it distributes them itself
 *     RETURN_IF(x->engine->fill_tile(w, range, &done, err));     // else threads do
 *     x->engine->end(x, in_order);
 *     x->engine->worker_close(w);
 *     x->engine->close(x);                         // also after a failure of open
 */
#ifndef FSDPCK_EXEC_ENGINE_H
#define FSDPCK_EXEC_ENGINE_H

#include "exec/exec.h"
#include "state/element_ops.h"

typedef struct worker worker;

/* How read bytes get to their destination, by pointers into the worker's memory. */
typedef struct engine_place {
    bool
        direct; /* runs may be read directly to their destination; boxes need not be counted in advance */
    /* Reserves memory to read into, for a number of boxes with a total number of dims. The first
     * box is copied to dst; NULL: it is converted. */
    fsdpck_status (*reserve)(worker *w, uint64_t nbytes, const uint8_t *dst, unsigned boxes,
                             unsigned dims, uint8_t **buffer, fsdpck_error *err);
    /* Moves from there one box, copied or converted; or contiguous bytes. */
    void (*box)(worker *w, const element_ops *c, const strided *s, uint8_t *dst,
                const uint8_t *src);
    void (*run)(worker *w, uint8_t *dst, const uint8_t *src, uint64_t nbytes);
} engine_place;

extern const engine_place place_by_threads;

/* A range that an engine may fill instead of threads: bytes [begin, end) of a worker's memory. */
typedef struct engine_fill {
    /* Reads and places the whole range by w->place, and flushes. */
    fsdpck_status (*gather)(worker *w, const void *ctx, fsdpck_error *err);
    uint64_t (*sum)(worker *w, const void *ctx); /* checksum of the relevant bytes, to compare */
    /* Raw CRC-64 of [begin, end); NULL: all bytes are read for it. */
    uint64_t (*crc)(worker *w, const void *ctx);
    const void *ctx;
    uint8_t *begin, *end;
    bool stays; /* the tile remains on the device, unless it is to be compared */
} engine_fill;

typedef struct engine {
    bool (*suits)(const exec_request *r);
    uint64_t staging_nbytes_max; /* of a worker */
    /* Tiles are halved to have this many workers; 0: as many as requested. */
    unsigned workers_enough;
    uint64_t stack_nbytes; /* of its threads; 0: the usual */
    bool slow_open;        /* worker_open is called by many threads at a time */
    bool whole_tiles;      /* tiles that are not plain are filled whole, including column groups */
    bool wants_owners;     /* needs exec.owners if ranks read from each other's disks */
    fsdpck_status (*open)(struct exec *x, fsdpck_error *err);
    void (*close)(struct exec *x);
    /* Memory of a worker for a given staging size. */
    uint64_t (*staging_span)(uint64_t staging_nbytes);
    /* A worker's part of device memory; 0: none, or host memory is smaller. */
    uint64_t (*device_nbytes)(const struct exec *x, uint64_t tile_span, uint64_t staging_nbytes);
    /* Allocates w->memory of w->memory_nbytes; NULL without memory. */
    fsdpck_status (*worker_open)(worker *w, uint64_t tile_span, fsdpck_error *err);
    void (*worker_close)(worker *w);
    fsdpck_status (*begin)(struct exec *x, fsdpck_error *err);
    void (*end)(struct exec *x, bool in_order);
    /* Runs the items of this rank. *done: all were run; else the caller runs them one by one. */
    fsdpck_status (*run_items)(struct exec *x, bool *done, fsdpck_error *err);
    /* *done: its chunks are filled; else the caller fills them. */
    fsdpck_status (*fill_tile)(worker *w, const output_range *range, bool *done, fsdpck_error *err);
    fsdpck_status (*fill)(worker *w, const engine_fill *f, bool *done, fsdpck_error *err);
    /* After the ranks' stats are known: adds the bytes received from other ranks' devices. */
    void (*note_exchanged)(const struct exec *x, uint64_t nbytes);
} engine;

extern const engine engine_threads;
extern const engine engine_gpu; /* exec/gpu/engine_gpu.c */

/* engine_list.c: the first suitable engine. */
const engine *engine_choose(const exec_request *r);

#endif
