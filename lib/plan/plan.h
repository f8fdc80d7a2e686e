/* plan.h: maps source ranges to target ranges, from a source and a target catalogue, before
 * anything is written.
 *
 *     plan_options opt = {0};
 *     plan *p;
 *     RETURN_IF(plan_new(from, &to, &opt, &budget, &p, err));     // after the writer's layout()
 *     plan_get_totals(p, &totals);
 *     RETURN_IF(plan_print(p, &text, err));                       // --dry-run
 *     ... lib/exec runs it ...
 *     plan_free(p);
 *
 * A plan is an index, not a list: segments (segment.h) are generated for any given output range. It
 * does no I/O, uses no threads and is the same for every engine, number of workers and amount of
 * memory. It borrows both catalogues, which must outlive it unchanged. It is read-only after
 * plan_new: any number of threads may use it.
 */
#ifndef FSDPCK_PLAN_PLAN_H
#define FSDPCK_PLAN_PLAN_H

#include "state/catalogue.h"
#include "state/target.h"

/* Handling of chunks with the same box as another chunk of their tensor (HSDP, per-rank files). */
typedef enum plan_replicas {
    REPLICAS_CRC, /* compare the checksums in their zips; compare the bytes of chunks without one */
    REPLICAS_COMPARE, /* compare their bytes */
    REPLICAS_FIRST    /* take the first, ignore the others */
} plan_replicas;

#define PLAN_TILE_NBYTES ((uint64_t)8 << 20)

typedef struct plan_options {
    uint64_t tile_nbytes; /* of an item's output range, multiple of 4096; 0: PLAN_TILE_NBYTES */
    plan_replicas replicas;
} plan_options;

typedef struct plan_totals {
    uint64_t target_bytes;      /* of tensors, as written */
    uint64_t constant_bytes;    /* headers, directories, deferred bytes */
    uint64_t source_bytes;      /* of elements to read, each counted once */
    uint64_t segments_at_least; /* pairs of target and source chunk that share elements */
    uint64_t items;
    uint64_t files;
    uint64_t replicas; /* chunks that are read with the same box as another */
    /* Bytes read per byte of source_bytes, as far as known before any blob header is read: replicas
     * to compare (REPLICAS_COMPARE) add to 1. */
    double read_amplification;
} plan_totals;

typedef struct plan plan;

/* Checks that the source covers every chunk of the target exactly once (CHUNK-GAP, CHUNK-OVERLAP,
 * see coverage.h: BADINPUT), that dtypes are equal or of floating point (else UNSUPPORTED), and
 * that the writer's locations are in order (else INTERNAL). Memory is drawn from `owner`; plan_free
 * returns it. */
fsdpck_status plan_new(const catalogue *from, const target *to, const plan_options *opt,
                       budget *owner, plan **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void plan_free(plan *p);

void plan_get_totals(const plan *p, plan_totals *totals);

/* Files, constant bytes, chunks and their source chunks, in the order of the output; a stable text.
 */
fsdpck_status plan_print(const plan *p, text_buf *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What two plans may have in common, each with its own hash. */
typedef enum plan_aspect {
    PLAN_SOURCE,    /* the source's catalogue */
    PLAN_TENSORS,   /* names and shapes of the target, and their source tensors */
    PLAN_DTYPES,    /* of the target */
    PLAN_BOXES,     /* of its chunks */
    PLAN_FILES,     /* names and sizes of its files, and the locations of chunks and deferred bytes */
    PLAN_CONSTANTS, /* constant bytes */
    PLAN_READING,   /* plan_options */
    PLAN_ASPECTS
} plan_aspect;
void plan_hashes(const plan *p, uint64_t hashes[PLAN_ASPECTS]);
/* Of all aspects. */
uint64_t plan_hash(const plan *p);

/* Whether elements of `from` can be converted to `to` (equal, or both of the floating types of
 * lib/state/cast.h). */
bool plan_can_cast(dtype from, dtype to);

#endif
