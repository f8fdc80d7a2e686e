/* fsdpck_partials.h: unfinished outputs that killed runs left in a folder.
 *
 * A run writes its output under a name of its own beside the final one, and renames it when it is complete. If the
 * process is killed, the unfinished output stays. With `resume` of fsdpck_output_options a later run continues it.
 * Otherwise it only takes space. Each run that lives has a lock on its unfinished output (flock). On a file system
 * whose locks do not reach other hosts, a run on another host is not seen.
 *
 * The calls read names, sizes and journals only, never the data of an output.
 *
 *     fsdpck_partials *list;
 *     if (fsdpck_partials_new(ctx, "runs", NULL, 0, &list, &err) == FSDPCK_OK) {
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

/* What it is, by its name. XXXXXXXX is a random number of the run. */
typedef enum fsdpck_partial_kind {
    FSDPCK_PARTIAL_OUTPUT,  /* .NAME.fsdpck-XXXXXXXX.partial */
    FSDPCK_PARTIAL_JOURNAL, /* .NAME.fsdpck-XXXXXXXX.journal, of a run with `resume` */
    FSDPCK_PARTIAL_REPLACED /* .NAME.fsdpck-XXXXXXXX.old: an output that a run was replacing */
} fsdpck_partial_kind;

/* Whether a process has it. */
typedef enum fsdpck_partial_holder {
    FSDPCK_PARTIAL_FREE,   /* no process has a lock on it, on its journal or on the output */
    FSDPCK_PARTIAL_HELD,   /* a process has one */
    FSDPCK_PARTIAL_UNKNOWN /* the file system has no locks, or it changed in the last 10 seconds */
} fsdpck_partial_holder;

/* Why `clean` keeps it. */
typedef enum fsdpck_partial_obstacle {
    FSDPCK_PARTIAL_NO_OBSTACLE,
    FSDPCK_PARTIAL_IN_USE,    /* a process has it */
    FSDPCK_PARTIAL_RECENT,    /* it changed in the last 10 seconds: its run may not have locked it yet */
    FSDPCK_PARTIAL_NO_LOCKS,  /* the file system has no locks */
    FSDPCK_PARTIAL_ONLY_COPY, /* is_only_copy */
    FSDPCK_PARTIAL_FOREIGN,   /* of another user */
    FSDPCK_PARTIAL_NO_JOURNAL /* named as a journal, without the first bytes of one */
} fsdpck_partial_obstacle;

/* One object. Texts belong to the list, until it is freed. */
typedef struct fsdpck_partial {
    size_t struct_nbytes;
    const char *name; /* in the folder */
    /* Name of the output, in the same folder. It is cut if the name of the object would be longer than 255 bytes. */
    const char *of;
    fsdpck_partial_kind kind;     /* by its name */
    fsdpck_partial_holder holder; /* when the list was made */
    uint64_t nbytes;              /* of its files; the space that a removal frees may be less */
    /* Since the last change of the file, or of the names in the folder. */
    int64_t age_seconds;
    /* Whether its journal is valid and has ranges. A run continues it only if its source, its options and the version
     * of fsdpck are the same. */
    int resumable;
    uint64_t finished_ranges, finished_nbytes; /* in the journals of all ranks; unchecked */
    int is_only_copy; /* a replaced output, and nothing (or an empty object) has its name: rename it to `of` */
    int removed; /* by this call */
    fsdpck_partial_obstacle obstacle;
    unsigned ranks; /* processes of the run, if its journal is valid: as many must continue it */
} fsdpck_partial;

/* A list of them. It does not change after it is made: make another one to see later changes. One thread at a time
 * may use it. */
typedef struct fsdpck_partials fsdpck_partials;

/* Lists them, or only those of the output `of` unless it is NULL: its name, or a path in this folder. With `clean`
 * those without an obstacle are removed.
 * Folders inside are not searched. Symbolic links and other names are neither listed nor removed.
 * Errors: USAGE (`of` is in another folder, or names none), IO (the folder cannot be read, or an object cannot be removed; all others are). */
FSDPCK_API fsdpck_status fsdpck_partials_new(struct fsdpck_context *ctx, const char *folder_path,
                                             const char *of, int clean, fsdpck_partials **out,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Number `index`, by name: the objects of one run follow each other. Returns 0 after the last, and sets all members
 * to zero. `partial` begins with its size: FSDPCK_INIT. */
FSDPCK_API int fsdpck_get_partial(const fsdpck_partials *list, size_t index,
                                  fsdpck_partial *partial);
/* Accepts NULL. */
FSDPCK_API void fsdpck_partials_free(fsdpck_partials *list);

#ifdef __cplusplus
}
#endif

#endif
