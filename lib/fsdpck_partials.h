/* fsdpck_partials.h: unfinished outputs that runs which were killed left in a folder.
 *
 *     fsdpck_partials *list;
 *     if (fsdpck_partials_new(ctx, "runs", 0, &list, &err) == FSDPCK_OK) {
 *         fsdpck_partial p = FSDPCK_INIT(fsdpck_partial);
 *         for (size_t i = 0; fsdpck_get_partial(list, i, &p); i++)
 *             puts(p.name);
 *         fsdpck_partials_free(list);
 *     }
 */
#ifndef FSDPCK_PARTIALS_H
#define FSDPCK_PARTIALS_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fsdpck_context;

typedef enum fsdpck_partial_kind {
    FSDPCK_PARTIAL_OUTPUT,  /* .NAME.fsdpck-XXXXXXXX.partial */
    FSDPCK_PARTIAL_JOURNAL, /* .NAME.fsdpck-XXXXXXXX.journal, of a run with `resume` */
    FSDPCK_PARTIAL_REPLACED /* .NAME.fsdpck-XXXXXXXX.old: an output that a run was replacing */
} fsdpck_partial_kind;

/* Whether a process has it. */
typedef enum fsdpck_partial_holder {
    FSDPCK_PARTIAL_FREE,
    FSDPCK_PARTIAL_HELD,
    FSDPCK_PARTIAL_UNKNOWN /* the file system has no locks, or it changed in the last 10 seconds */
} fsdpck_partial_holder;

typedef struct fsdpck_partial {
    size_t struct_nbytes;
    const char *name; /* in the folder */
    const char *of;   /* name of the output; cut if it is long */
    fsdpck_partial_kind kind;
    fsdpck_partial_holder holder;
    uint64_t nbytes;     /* of its files */
    int64_t age_seconds; /* since its last change */
    /* Whether its journal is valid and has ranges; a run continues it only if its source and options are the same. */
    int resumable;
    uint64_t finished_ranges, finished_nbytes; /* in the journal; unchecked */
    int is_only_copy; /* a replaced output whose name does not exist: rename it to `of` */
    int removed;      /* by this call */
} fsdpck_partial;

typedef struct fsdpck_partials fsdpck_partials;

/* Lists them, and with `clean` removes those that no process has, except replaced outputs that are the only copy.
 * Symbolic links and other names are never removed. Errors: IO (after all others are removed). */
FSDPCK_API fsdpck_status fsdpck_partials_new(struct fsdpck_context *ctx, const char *folder_path,
                                             int clean, fsdpck_partials **out,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Number `index`, by name. Returns 0 after the last. */
FSDPCK_API int fsdpck_get_partial(const fsdpck_partials *list, size_t index,
                                  fsdpck_partial *partial);
FSDPCK_API void fsdpck_partials_free(fsdpck_partials *list);

#ifdef __cplusplus
}
#endif

#endif
