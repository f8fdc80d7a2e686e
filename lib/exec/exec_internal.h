/* exec_internal.h: shared by the files of lib/exec. */
#ifndef FSDPCK_EXEC_EXEC_INTERNAL_H
#define FSDPCK_EXEC_EXEC_INTERNAL_H

#include <pthread.h>

#include "exec/engine.h"
#include "exec/exec.h"
#include "exec/tile_parts.h"
#include "plan/segment.h"
#include "state/element_ops.h"
#include "state/sort.h"

/* A located chunk, kept small as a run may have millions. */
enum {
    EXTENT_RESOLVED = 1,
    EXTENT_STREAM = 2,
    EXTENT_SWAP = 4,
    EXTENT_CONJ = 8,
    EXTENT_NEG = 16,
    EXTENT_ADD = 32,      /* add 1 to each element */
    EXTENT_SUBTRACT = 64, /* add -1 */
    EXTENT_ROWS = 128,
    EXTENT_CRC = 256,     /* crc32 covers exactly the chunk's elements, row-major */
    EXTENT_REPLICA = 512, /* an earlier chunk has the same box: never read for the output */
    EXTENT_BOXES =
        1024, /* a stream whose boxes are computed in any order: tiles are filled from it */
    /* What copying does to the elements; fits a byte. */
    EXTENT_OPS = EXTENT_SWAP | EXTENT_CONJ | EXTENT_NEG | EXTENT_ADD | EXTENT_SUBTRACT
};

typedef struct chunk_extent {
    uint64_t offset_bytes;
    uint32_t file;
    uint32_t crc32;
    uint32_t strides_at; /* in exec.strides, unless EXTENT_ROWS */
    uint16_t flags;
} chunk_extent;

_Static_assert(sizeof(chunk_extent) == 24, "a chunk extent is 24 bytes");

/* Flags of a source tensor. STREAMED: some of its chunks are streams; its targets are filled in the
 * second phase. WIDE: larger tiles give longer reads of its chunks, so large tiles are used. ADDED: a
 * constant is added to some of its elements, which only threads do. COMPUTED: some of its chunks are
 * computed box by box, which only threads do. ACROSS: it is stored across, as
 * transposed matrices are; each tile reads all of a matrix. Its matrices begin at dim DIM. */
enum {
    TENSOR_STREAMED = 1,
    TENSOR_WIDE = 2,
    TENSOR_ADDED = 4,
    TENSOR_ACROSS = 8,
    TENSOR_COMPUTED = 16,
    TENSOR_DIM_AT = 5, /* bits from here: a number up to TENSOR_DIM_MAX, also for later dims */
    TENSOR_DIM_MAX = 7
};

typedef struct replica_pair {
    uint64_t first;
    uint64_t again;
} replica_pair;

struct exec {
    exec_request r;
    const engine *engine;
    struct engine_state *of_engine; /* the engine's own */
    chunk_extent *chunk_extents;    /* by source chunk */
    uint64_t chunk_extent_count;
    vec strides;           /* uint64_t, elements; ndim for each chunk extent without EXTENT_ROWS */
    pthread_mutex_t lock;  /* guards strides while locating */
    uint8_t *tensor_flags; /* by source tensor */
    bool any_across;       /* of them */
    uint64_t tensor_count;
    vec compare;            /* replica_pair */
    uint64_t compare_first; /* of this rank's part */
    vec streams;            /* uint64_t: source chunks to be decoded */
    output *out;
    const journal *finished; /* by an earlier run; NULL: none */
    journal_writer *journal; /* NULL: none */
    uint8_t *deferred_done;  /* by index in target.lates: written with their tile */
    uint64_t deferred_count;
    vec column_groups; /* column_group_info, see column_group.h */
    vec members;       /* uint32_t: target chunks */
    uint8_t *grouped;  /* a bit for each target chunk that is a member */
    uint64_t grouped_nbytes;
    uint64_t column_group_items;
    uint64_t column_group_nbytes; /* of a worker's buffer for them */
    uint64_t travelled_before;    /* the work was shared */
    bool shared;   /* the members below are this rank's part; else it does everything */
    vec own_items; /* uint64_t */
    uint64_t own_row_block, own_row_block_count;
    vec owners;                /* uint32_t: rank of every item, if the engine needs them */
    uint64_t exchanged_nbytes; /* received from devices of other ranks, and the number of rounds */
    uint64_t exchange_rounds;
    uint64_t reread_nbytes; /* of the source, by passes after the first */
    uint64_t tile_nbytes;   /* of a worker's buffer: divides the plan's tile */
    uint64_t step_nbytes;   /* divides tile_nbytes: the usual unit of filling and writing */
    uint64_t staging_nbytes;
    uint64_t staged_nbytes;  /* of the largest stream that is decoded into memory */
    uint64_t stream_nbytes;  /* of the largest stream open at a time; 0: negligible */
    unsigned stream_workers; /* number of workers that may have one open */
    unsigned nworkers;
    worker **workers;
    struct exec_stats stats;     /* of finished workers, and of resolve */
    struct exec_stats all_stats; /* of all ranks, if has_all_stats */
    bool has_all_stats;
};

/* Parts of a tile that are at least so long are checksummed separately from their neighbors in the file. */
#define CHECKSUM_ALONE_NBYTES ((uint64_t)64 << 10)

/* Bytes before and after the tile, for an element or row that the tile's edge splits. */
#define TILE_MARGIN ((uint64_t)256 << 10)

/* Reads of one file with a smaller gap are joined: a system call costs about as much as reading
 * this many bytes. */
#define GATHER_GAP_NBYTES ((uint64_t)16 << 10)
/* Shorter runs cost threads more than a device. */
#define THIN_NBYTES ((uint64_t)128)
/* A run of at least this length is read directly to its destination. */
#define GATHER_RUN_NBYTES ((uint64_t)32 << 10)
/* Most bytes that are read at a time of rows apart from each other. */
#define GATHER_APART_NBYTES ((uint64_t)512 << 10)
/* The same for matrices stored across, unless that is less than a block of rows. */
#define GATHER_ACROSS_NBYTES ((uint64_t)128 << 10)
#define GATHER_READ_OPS      2048u
#define GATHER_DIMS          8192u

/* One pending read: span_bytes from a file, which contain a box for the tile. */
typedef struct read_op {
    uint64_t src_offset_bytes;
    uint64_t span_bytes;
    uint8_t *dst;
    uint32_t file;
    uint32_t src_chunk;
    uint32_t dims_at; /* in gather.dims: sizes, source strides, destination strides */
    uint8_t ndim;     /* 0: contiguous span_bytes */
    uint8_t from, to; /* dtype */
    uint8_t ops;      /* of EXTENT_OPS */
} read_op;

typedef struct gather {
    read_op read_ops[GATHER_READ_OPS];
    uint64_t dims[GATHER_DIMS];
    sort_pair *sorted; /* 2 * GATHER_READ_OPS */
    unsigned count;
    unsigned dims_count;
    uint8_t *base; /* of destinations: a tile, or the buffer of a column group */
    bool grouped;  /* boxes are read including the gaps between runs, which other boxes need */
    bool touched;  /* the tile has read operations */
    /* Several workers fill a tile: each reads one of `parts` parts. 0: this worker reads all. */
    unsigned part, parts;
} gather;

/* Handles a segment of a chunk whose first element is chunk_at bytes from gather.base. */
typedef fsdpck_status (*gather_segment_fn)(worker *w, const segment_walk *seg, dtype to,
                                           int64_t chunk_at, fsdpck_error *err);

struct worker {
    struct exec *x;
    uint8_t *memory; /* one mapping: margin, tile, margin, staging */
    uint64_t memory_nbytes;
    struct engine_worker *of_engine; /* the engine's own */
    const engine_place *place;       /* how the tile is filled, usually place_by_threads */
    gather_segment_fn segment;       /* gather_segment, unless other ranks supply data */
    uint8_t *tile;
    uint64_t at; /* begin of the current range in the tile: its offset within a block of the file */
    uint8_t *staging;
    uint8_t *column_group; /* exec.column_group_nbytes, allocated on first use */
    uint8_t *scratch;      /* ELEMENT_OPS_SCRATCH_NBYTES */
    uint64_t src_strides[NDIM_MAX];
    strided shape;
    box_split split;
    segment_walk walk;
    tile_parts parts; /* of the tile worked on, since fill_tile */
    gather gather;
    struct exec_stats stats;
};

/* --- exec_chunk.c --- */
/* Whether a target file is written on this host. */
bool exec_file_is_own(const struct exec *x, uint32_t file_index);
/* The rank that does the undivided work: of all ranks, or of this host if each host has its own
 * files. */
bool exec_is_leader(const struct exec *x);
/* *at: where they are in x->strides. From any thread. */
fsdpck_status resolve_keep_strides(struct exec *x, const uint64_t *strides, unsigned ndim,
                                   uint32_t *at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Strides of a located chunk, in elements, ndim of them. */
void exec_chunk_strides(const struct exec *x, uint64_t chunk, uint64_t *strides);
element_ops exec_chunk_convert(const struct exec *x, uint64_t chunk, dtype to);
/* flags: of EXTENT_OPS. */
element_ops exec_element_ops(dtype from, dtype to, unsigned flags);
/* Adds the tensor and the file of a source chunk to an error. */
void exec_add_chunk_context(const struct exec *x, uint64_t chunk, fsdpck_error *err);
dtype exec_chunk_dtype(const struct exec *x, uint64_t chunk);
/* Whether streams bring some of a target chunk's bytes, after the tiles. */
bool exec_chunk_is_streamed(const struct exec *x, uint64_t target_chunk);
/* Whether only threads convert or compute the elements of a target chunk. */
bool exec_chunk_is_for_threads(const struct exec *x, uint64_t target_chunk);
/* Whether a target chunk is filled with others, apart from the tiles of its file. */
bool exec_chunk_is_grouped(const struct exec *x, uint64_t target_chunk);
/* Whether a source chunk belongs to a tensor that is stored across. */
bool exec_is_across(const struct exec *x, uint64_t source_chunk);
/* Whether part of a range, or the range because of some part, is filled in a joint tile. */
bool exec_part_is_joint(const struct exec *x, const range_part *part);
bool exec_is_joint(const struct exec *x, const output_range *range);
/* Whether other copies of the tensor's boxes are ignored. */
bool replica_is_trusted(const plan *p, uint32_t tensor);
/* source.read_at with its count. */
fsdpck_status worker_read(worker *w, uint32_t file_index, uint64_t offset_bytes, void *dst,
                          uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- exec_plain.c --- */
/* Whether elements of a target chunk are copied as they are, in runs that threads copy as fast as memory
 * allows: a device would gain nothing. */
bool exec_elements_are_plain(const struct exec *x, uint64_t target_chunk, uint64_t first_elem,
                             uint64_t end_elem);
/* The same of all chunks of a range. */
bool exec_range_is_plain(const struct exec *x, const output_range *range);

/* --- resolve.c --- */
/* By all ranks, whatever they have come to: st of each. x may be NULL where it is not OK. */
fsdpck_status exec_resolve_all(struct exec *x, group *g, fsdpck_status st,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- resolve_exchange.c --- */
/* Sorts the chunks to be located by rank. */
void resolve_partition(const struct exec *x, sort_pair *list, sort_pair *scratch, uint64_t count);
/* The range of one rank afterwards. */
void resolve_partition_of(const struct exec *x, const sort_pair *list, uint64_t count,
                          unsigned rank, uint64_t *begin, uint64_t *end);
/* Collective: adds the extents located by other ranks to x. */
fsdpck_status resolve_exchange(group *g, fsdpck_status st, struct exec *x, const sort_pair *list,
                               uint64_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- worker.c --- */
fsdpck_status exec_start_workers(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
void exec_stop_workers(struct exec *x);

/* --- fill.c: the complete contents of a tile --- */
/* Finds w->parts. *wanted: false if all bytes come from streams, which are written later. */
fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills the bytes that are not gathered: constant bytes, and zeros for gaps, deferred bytes and
 * chunks with streams. Returns whether all bytes are of such chunks. */
bool fill_non_chunks(worker *w, const output_range *range);
/* Gathers the chunks of a range into the tile of `of`, where they are at of->at. */
fsdpck_status fill_chunks(worker *w, const worker *of, const output_range *range,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- gather.c: filling the tile --- */
/* Gathers all segments of these elements of a target chunk; the first element is chunk_at bytes
 * from gather.base. Streams are omitted. Reads may be deferred until gather_flush. */
fsdpck_status gather_elements(worker *w, uint64_t chunk, uint64_t first_elem, uint64_t end_elem,
                              int64_t chunk_at, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status gather_flush(worker *w, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The segments that gather_elements uses: whole rows instead of rows split by a tile's edges, if
 * that is faster. */
void gather_walk_begin(const struct exec *x, segment_walk *seg, uint64_t chunk, bool grouped,
                       uint64_t first_elem, uint64_t end_elem);
/* All chunks of a range, whose begin is at w->at of the tile. */
fsdpck_status gather_range(worker *w, const output_range *range,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Reads a segment to its destination in the chunk. */
fsdpck_status gather_segment(worker *w, const segment_walk *seg, dtype to, int64_t chunk_at,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same to any destination: dst_at bytes from gather.base, with these element strides. */
fsdpck_status gather_segment_to(worker *w, const segment_walk *seg, dtype to, int64_t dst_at,
                                const uint64_t *dst_strides, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- gather_runs.c: boxes so thin in their file that each run is a separate read --- */
/* Whether this worker reads part `index` of `count` of a box of a chunk: see gather.parts. */
bool gather_is_own(const worker *w, uint64_t src_chunk, uint64_t index, uint64_t count);
bool gather_should_read_runs(const worker *w, const strided *s, uint64_t itemsize);
/* Reads immediately; `box` gives the file, source offset and destination in the tile. */
fsdpck_status gather_runs(worker *w, const read_op *box, const element_ops *c, const strided *s,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- gather_boxes.c: chunks whose boxes are computed --- */
/* A segment to dst_at bytes from gather.base, with these strides in bytes. */
fsdpck_status gather_boxes(worker *w, const segment_walk *seg, const element_ops *c, int64_t dst_at,
                           const uint64_t *dst_strides, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- write_range.c --- */
/* Whether blocks of a file of the target are written past the page cache. */
bool write_range_is_direct(const struct exec *x, uint32_t file_index);
/* `bytes` has the same block alignment as range->begin, and room for the rest of the last block. */
fsdpck_status write_range(worker *w, const output_range *range, uint8_t *bytes,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- exec_resume.c: ranges that an earlier run wrote --- */
typedef struct kept_range {
    uint64_t overflows; /* of exec_stats.cast_overflows */
    uint64_t ranges;    /* of the journal */
    bool has_others;    /* bytes that the end of a run writes are not zeros in the output */
} kept_range;
/* Reads a range of the output into `bytes` if the journal covers it. *is_kept: the bytes have their checksums; those
 * that the end of a run writes are zeros, and w->parts has the parts of the range. */
fsdpck_status resume_read(worker *w, const output_range *range, uint8_t *bytes, bool *is_kept,
                          kept_range *kept, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Counts a range that is not written again. */
void resume_count(worker *w, const output_range *range, const kept_range *kept);
/* Writes the bytes of a kept range that the end of a run writes: checksums that are known by now, and zeros. `had`:
 * kept_range.has_others. */
fsdpck_status resume_write_others(worker *w, const output_range *range, const uint8_t *bytes,
                                  bool had, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Before a range is written, while its bytes are in the caches; `w->parts`: of the range. 0 without a journal. */
uint64_t resume_crc(const worker *w, const output_range *range, const uint8_t *bytes);
/* After it was written. */
void resume_record(worker *w, const output_range *range, uint64_t crc, uint64_t overflows);

/* --- tile.c --- */
/* The next range of an item outside of column groups; the search begins at r->end. */
bool exec_next_range(const struct exec *x, const output_range *item, output_range *r);
/* The next tile of a range; it begins at tile->end. */
bool exec_next_tile(const output_range *whole, uint64_t nbytes, output_range *tile);
/* After a tile is filled: checksums, and writes if `wanted`. `overflows`: elements of the tile that are out of
 * range of their new dtype. `item_begin`: this worker has completed the file from there on. */
fsdpck_status exec_finish_tile(worker *w, const output_range *range, uint64_t item_begin,
                               bool wanted, uint64_t overflows,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a tile that is kept (exec_resume.c): checksums. */
fsdpck_status exec_finish_kept(worker *w, const output_range *range, uint64_t item_begin,
                               const kept_range *kept, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- engine_threads.c --- */
/* Fills, checksums and writes a tile, unless an earlier run did. */
fsdpck_status exec_run_tile(worker *w, const output_range *range, uint64_t item_begin,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status engine_threads_run(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- joint_tile.c: tiles that all workers fill together --- */
/* All such items of this rank, after engine_threads_run. */
fsdpck_status joint_tile_run_items(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- scatter.c: source-driven items --- */
fsdpck_status scatter_run(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- replica.c --- */
fsdpck_status replica_check_crcs(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status replica_compare_remaining(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- exec_checksums.c --- */
fsdpck_status exec_checksums_begin(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Every byte of a chunk must be put once, in parts of any order, from any thread. Returns whether the raw CRC-64 of
 * the part was computed: *raw. */
bool exec_checksums_add(struct exec *x, const range_part *part, const uint8_t *bytes,
                        uint64_t *raw);
/* The same without the file and CRC-32, for runs without output: a range of a chunk from streams.
 * Elements that other calls put are zeros. */
void exec_checksums_add_sparse(struct exec *x, const range_part *part, const uint8_t *bytes);
/* A tile in two steps. First the bytes of chunks, except those that streams will write. Then, with
 * deferred bytes filled or zeroed, the rest that the file's checksum needs. `parts`: of the range; gets the raw
 * CRCs of long parts (CHECKSUM_ALONE_NBYTES), unless it has them from filling. */
void exec_checksums_add_chunks(struct exec *x, tile_parts *parts, const output_range *range,
                               const uint8_t *bytes);
void exec_checksums_add_other(struct exec *x, const tile_parts *parts, const output_range *range,
                              const uint8_t *bytes);
/* Whether CRCs or digests are wanted. */
bool exec_checksums_wanted(const struct exec *x);
/* After all are put; also for aliases. */
void exec_checksums_finish(struct exec *x);

/* --- exec_all_reduce.c: combines the results of the ranks --- */
/* Combines CRCs, digests and completed deferred bytes of all ranks. */
fsdpck_status all_reduce_crcs(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- exec_deferred.c --- */
fsdpck_status exec_deferred_begin(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Fills the deferred bytes of a part at dst if this worker has put their whole chunk, which is
 * within `done`; else exec_deferred_finish fills them. */
void exec_deferred_fill(worker *w, const range_part *part, const output_range *done, uint8_t *dst);
/* After exec_checksums_finish. */
fsdpck_status exec_deferred_finish(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
