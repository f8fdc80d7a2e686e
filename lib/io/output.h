/* output.h: output that is absent or complete under its final name, whatever kills the process.
 *
 *     output out;
 *     output_begin(&out, "dir/model.safetensors", OUTPUT_FILE, flags, &err);   // EXISTS if there
 *     output_add(&out, "", nbytes, want_direct, &index, &err);   // NOSPACE now, not later
 *     ... output_write_direct / output_write_at from any thread ...
 *     output_commit(&out, &err);      // truncate, fsync, close, fsync folder, rename, fsync parent
 *     output_release(&out);           // before commit: removes every trace; after: only frees
 *
 * An output may have many more files than the process may have open: those longest unused are closed
 * and opened again when they are wanted.
 *
 * A file is written as `.NAME.fsdpck-XXXXXXXX.partial` beside its final name (exclusive create,
 * mode 0600 until commit, then by umask); a folder as a folder of such a name, renamed whole at the
 * end: inside are plain names, and `SUB/NAME` one level down. X is random and in no output byte. With OUTPUT_REPLACE the old thing
 * stays until the new one is durable, then they are exchanged and the old one is removed; a folder
 * is only replaced after the caller has made sure that it is a checkpoint. Final names are never
 * followed as links. Calls are relative to the parent folder's descriptor, opened once.
 *
 * Several processes may write one output: that which began it hands the partial's name to the others,
 *
 *     output_join(&out, path, kind, flags, partial_name, &err);
 *     output_add(...);                // the same files in the same order
 *     ... output_write_direct / output_write_at ...
 *     output_flush(&out, &err);       // what this process wrote is durable
 *     output_release(&out);           // leaves all files there
 *
 * and commits once all have flushed. Where it is gone, output_abandon of any of the others removes the
 * partial.
 *
 * Where several outputs must appear together or not at all, each is committed in steps,
 *
 *     output_finish(&out, &err);      // durable, under the partial name
 *     ... all are ...
 *     output_publish(&out, &err);     // the final name; what was replaced is kept aside
 *     ... all are, else ...
 *     output_rollback(&out);          // as if it had never been
 *     output_remove_replaced(&out, &err);      // what was replaced goes
 *
 * What is to be replaced is looked at when the output begins and must still be the same thing at
 * commit (EXISTS otherwise); its permissions go over to the new thing, but for files in a folder: it is a plain file or folder of the same kind, never a link. Where the
 * file system cannot exchange names, the old thing gets the name `.NAME.fsdpck-XXXXXXXX.old` until
 * the new one is durable: a file as a second name, a folder by a rename. A kill between the two
 * renames of a folder leaves the old one there and nothing under the final name.
 */
#ifndef FSDPCK_IO_OUTPUT_H
#define FSDPCK_IO_OUTPUT_H

#include <stddef.h>

#include "base/alloc.h"
#include "io/file.h"
#include "io/open_cache.h"

typedef enum output_kind { OUTPUT_FILE, OUTPUT_FOLDER } output_kind;

enum {
    OUTPUT_REPLACE = 1, /* --force */
    OUTPUT_NO_SYNC = 2, /* --no-sync: no fsync at all */
    OUTPUT_SHARED = 4,  /* other processes will join */
};

typedef struct output {
    char *path;         /* final, as given */
    char *final_name;   /* last component */
    char *partial_name; /* in the parent folder */
    folder parent;
    folder self; /* the partial folder itself, for OUTPUT_FOLDER */
    output_kind kind;
    unsigned flags;
    vec files; /* struct output_entry * */
    vec subs;  /* struct output_sub: folders inside, each made when its first file is added */
    open_cache cache;
    fsdpck_error close_error; /* guarded by the cache's lock: the first of a file closed early */
    int created;
    int joined;  /* begun by another process */
    int lock_fd; /* held by the process that began it, as long as it lives; -1: none */
    int committed;
    uint64_t old_dev, old_ino; /* what OUTPUT_REPLACE found at the beginning; 0, 0: nothing */
    unsigned old_mode;         /* of what is replaced: the new one gets it too */
    uint64_t new_dev, new_ino; /* the partial */
    int published;             /* enum output_published */
    bool sync_later;           /* output_publish leaves the folder around it to its caller */
    char *old_name;            /* in the parent folder: what was replaced, until it is removed */
} output;

/* Opens the parent (IO where it is missing) and creates the partial. */
fsdpck_status output_begin(output *o, const char *path, output_kind kind, unsigned flags,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Opens a partial that another process has created; EXISTS, CHANGED or IO where it is not there. */
fsdpck_status output_join(output *o, const char *path, output_kind kind, unsigned flags,
                          const char *partial_name, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Makes durable what this process wrote, and closes the files. */
fsdpck_status output_flush(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a joined one that will not be finished: removes the partial if the process that began it with
 * OUTPUT_SHARED does not live any more, as far as the file system can tell (flock). */
void output_abandon(output *o);

/* Folders inside one output: each keeps a descriptor open. */
#define OUTPUT_SUBS_MOST 16u

/* Adds a file of exactly nbytes: `NAME` or `SUB/NAME` inside the folder, "" for OUTPUT_FILE. Space is reserved
 * (fallocate where the file system has it; never by writing zeros). Direct writing is tried where
 * want_direct and the file system allow. *index counts from 0. Files may be added at any time
 * before commit, from one thread. */
fsdpck_status output_add(output *o, const char *name, uint64_t nbytes, bool want_direct,
                         size_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Counts as a file, but is none: another process has it. */
fsdpck_status output_add_none(output *o, size_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* As file_write_at, file_read_at, file_write_direct, file_drop_cache; any thread, not beside
 * output_add. */
fsdpck_status output_write_at(output *o, size_t index, uint64_t offset, const void *src,
                              uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_read_at(output *o, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_write_direct(output *o, size_t index, uint64_t offset, const void *src,
                                  uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_drop_cache(output *o, size_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a file whose size was not known when it was added. */
void output_set_nbytes(output *o, size_t index, uint64_t nbytes);
uint64_t output_file_nbytes(const output *o, size_t index);
/* As it was added. */
const char *output_file_name(const output *o, size_t index);
/* Whether output_write_direct goes past the page cache. */
bool output_is_direct(const output *o, size_t index);

/* Closes all but the bookkeeping and gives the final name. On failure nothing is left, and an old
 * output that was to be replaced is there as before. One exception: where the new one is in place
 * and durable and only the old one cannot be removed, the status is IO, `committed` is set and the
 * message names the rest. */
fsdpck_status output_commit(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The steps of output_commit; see above. Each leaves nothing behind where it fails, but output_remove_replaced,
 * which fails as said there. output_rollback may be called at any time. */
fsdpck_status output_finish(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_publish(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of two: both have their names before the folders around them are synced; or neither has. */
fsdpck_status output_publish_both(output *o, output *beside, fsdpck_error *err) FSDPCK_MUST_CHECK;
void output_rollback(output *o);
fsdpck_status output_remove_replaced(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Always safe, also on a zeroed struct, also twice. */
void output_release(output *o);

#endif
