/* output.h: output that is absent or complete under its final name, even if the process is killed.
 *
 *     output out;
 *     output_begin(&out, "dir/model.safetensors", OUTPUT_FILE, flags, &err);   // may be EXISTS
 *     output_add(&out, "", nbytes, want_direct, &index, &err);   // NOSPACE now, not later
 *     ... output_write_direct / output_write_at from any thread ...
 *     output_commit(&out, &err);      // truncate, fsync, close, fsync folder, rename, fsync parent
 *     output_release(&out);           // before commit: removes every trace; after: only frees
 *
 * An output may have many more files than the process may open: files unused for the longest time
 * are closed, and opened again on demand.
 *
 * A file is written as `.NAME.fsdpck-XXXXXXXX.partial` next to its final name (exclusive create,
 * mode 0600 until commit, then by umask). A folder is written under such a name with plain names
 * inside, or `SUB/NAME` one level below, and renamed at the end. X is random and appears in no
 * output byte. With OUTPUT_REPLACE the old object remains until the new one is durable; then they
 * are exchanged and the old one is removed. Before replacing a folder the caller must check that it
 * is a checkpoint. Final names are never followed as links. Calls are relative to the parent
 * folder's descriptor, opened once.
 *
 * Several processes may write one output: the first passes the partial's name to the others,
 *
 *     output_join(&out, path, kind, flags, partial_name, &err);
 *     output_add(...);                // the same files in the same order
 *     ... output_write_direct / output_write_at ...
 *     output_flush(&out, &err);       // this process's data is durable
 *     output_release(&out);           // keeps all files
 *
 * and commits after all have flushed. If the first process dies, output_abandon of any other
 * removes the partial.
 *
 * If several outputs must appear together or not at all, each is committed in steps,
 *
 *     output_finish(&out, &err);      // durable, under the partial name
 *     ... all are ...
 *     output_publish(&out, &err);     // the final name; the replaced object is kept
 *     ... all are, else ...
 *     output_rollback(&out);          // restores the state before publish
 *     output_remove_replaced(&out, &err);      // removes the replaced object
 *
 * The object to replace is checked when the output begins and must be the same at commit (EXISTS
 * otherwise). It is a plain file or folder of the same kind, never a link. Its permissions are
 * copied to the new object, except to files in a folder. Size and mtime of an old file must be the
 * same too (path_stamp.h); for an old folder, check_replaced compares. Both are checked twice: under
 * the final name, and after the old object was moved aside, when no program finds it by its path.
 * If that fails, the old one is restored. Without hard links and without an exchange of names, an
 * old file is checked once. Writes after the last check, by a program that has the old file open,
 * are lost. Only this run's own object is removed under the partial name. If the file system cannot
 * exchange names,
 * the old object gets the name `.NAME.fsdpck-XXXXXXXX.old` until the new one is durable: a file as
 * a second name, a folder by a rename. A kill between the two renames of a folder leaves the old
 * one under that name and nothing under the final name.
 */
#ifndef FSDPCK_IO_OUTPUT_H
#define FSDPCK_IO_OUTPUT_H

#include <stddef.h>

#include "base/alloc.h"
#include "base/log.h"
#include "io/file.h"
#include "io/open_cache.h"
#include "io/path_stamp.h"

typedef enum output_kind { OUTPUT_FILE, OUTPUT_FOLDER } output_kind;

enum {
    OUTPUT_REPLACE = 1, /* --force */
    OUTPUT_NO_SYNC = 2, /* --no-sync: no fsync at all */
    OUTPUT_SHARED = 4,  /* other processes will join */
};

/* Whether the folder `name` in `parent`, which is or was replaced, may be removed. An absent one may. */
typedef fsdpck_status (*output_check_fn)(const void *ctx, const folder *parent, const char *name,
                                         fsdpck_error *err);

/* Takes the place of files: output_in_memory. Both calls from any thread; ranges that are used at the same time do
 * not overlap. */
typedef struct output_memory {
    fsdpck_status (*write_at)(void *ctx, size_t index, uint64_t offset, const void *src, uint64_t nbytes,
                              fsdpck_error *err);
    fsdpck_status (*read_at)(void *ctx, size_t index, uint64_t offset, void *dst, uint64_t nbytes, fsdpck_error *err);
    void *ctx;
} output_memory;

typedef struct output {
    output_memory memory; /* NULL functions: files */
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
    int joined; /* begun by another process */
    int lock_fd; /* held by the process that began or adopted it, as long as it lives; -1: no locks */
    int committed;
    uint64_t old_dev, old_ino; /* what OUTPUT_REPLACE found at the beginning; 0, 0: nothing */
    unsigned old_mode;         /* of the replaced object: copied to the new one */
    path_stamp old_stamp;      /* likewise; compared if it is a file */
    uint64_t new_dev, new_ino; /* the partial */
    int published;             /* enum output_published */
    bool sync_later;           /* output_publish leaves syncing the parent folder to its caller */
    char *old_name;            /* in the parent folder: the replaced object, until it is removed */
    bool adopted;              /* an earlier process began it: output_adopt */
    bool keeps; /* set by the caller: output_release leaves the partial and its journal */
    char *
        journal_name; /* in the parent folder: removed, with those of other ranks, before the final name is given; NULL: none */
    logger log;       /* set after output_begin: warns of failed removals */
    output_check_fn check_replaced; /* likewise; NULL: none */
    const void *check_ctx;
} output;

/* Opens the parent (IO if it is missing) and creates the partial. */
fsdpck_status output_begin(output *o, const char *path, output_kind kind, unsigned flags,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* An output without files, in the caller's memory. Only the calls that read and write may follow, and
 * output_release. */
void output_in_memory(output *o, const output_memory *memory);

/* For an OUTPUT_FILE that has begun: the final name must still be as in `earlier`, a stamp from the
 * start of the run, or absent. EXISTS otherwise. */
fsdpck_status output_expect_old(const output *o, const path_stamp *earlier,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Opens a partial that another process created; EXISTS, CHANGED or IO if it is missing. */
fsdpck_status output_join(output *o, const char *path, output_kind kind, unsigned flags,
                          const char *partial_name, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Makes this process's data durable, and closes the files. */
fsdpck_status output_flush(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The partial of a run that was killed, for a run that continues it: files that exist keep their bytes. The
 * caller must know that the same files will be added: io/output_remains.h. */
/* Where the file system has no locks, lock_fd is -1: the caller must find out in another way whether its process
 * lives. */
typedef enum output_adopted {
    OUTPUT_ADOPTED,
    OUTPUT_ADOPT_ABSENT,     /* no such partial */
    OUTPUT_ADOPT_BUSY,       /* a process that lives has it */
    OUTPUT_ADOPT_OTHER_USER,
    OUTPUT_ADOPT_OTHER_KIND, /* a folder instead of a file, or the reverse */
    OUTPUT_ADOPT_LINKED      /* a file with other hard links */
} output_adopted;
/* Unless *adopted is OUTPUT_ADOPTED, the output is released. Fails like output_begin. */
fsdpck_status output_adopt(output *o, const char *path, output_kind kind, unsigned flags,
                           const char *partial_name, output_adopted *adopted,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets journal_name by the partial's name, for the journal of a rank. The caller creates the journal (journal.h). */
fsdpck_status output_name_journal(output *o, unsigned rank, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Removes an object in the parent folder, if it exists; a warning names it if that fails. */
void output_remove_name(const output *o, const char *name);

/* For a joined output that will not be finished: removes the partial if the process that began it
 * with OUTPUT_SHARED has ended, as far as the file system can determine that (flock). */
void output_abandon(output *o);

/* Folders inside one output: each keeps a descriptor open. */
#define OUTPUT_SUBS_MOST 16u

/* Adds a file of exactly nbytes: `NAME` or `SUB/NAME` inside the folder, "" for OUTPUT_FILE. Space
 * is reserved (fallocate if supported; never by writing zeros). Direct writing is tried if
 * want_direct is set and the file system supports it. *index counts from 0. Files may be added at
 * any time before commit, from one thread. */
fsdpck_status output_add(output *o, const char *name, uint64_t nbytes, bool want_direct,
                         size_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Takes an index without a file: another process has the file. */
fsdpck_status output_add_none(output *o, size_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Like file_write_at, file_read_at, file_write_direct, file_drop_cache; from any thread, but not
 * during output_add. */
fsdpck_status output_write_at(output *o, size_t index, uint64_t offset, const void *src,
                              uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_read_at(output *o, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_write_direct(output *o, size_t index, uint64_t offset, const void *src,
                                  uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_drop_cache(output *o, size_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For a file whose size was unknown when it was added. */
void output_set_nbytes(output *o, size_t index, uint64_t nbytes);
uint64_t output_file_nbytes(const output *o, size_t index);
/* The name given to output_add. */
const char *output_file_name(const output *o, size_t index);
/* Whether output_write_direct bypasses the page cache. */
bool output_is_direct(const output *o, size_t index);

/* Closes the files and gives the final name. On failure nothing remains, and an old output that was
 * to be replaced is restored. One exception: if the new one is in place and durable and only the
 * old one cannot be removed, the status is IO, `committed` is set and the message names the
 * remaining object. */
fsdpck_status output_commit(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The steps of output_commit; see above. A failed step leaves nothing, except
 * output_remove_replaced, which fails as described there. output_rollback may be called at any
 * time. */
fsdpck_status output_finish(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status output_publish(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For two outputs: both get their names before the parent folders are synced, or neither. */
fsdpck_status output_publish_both(output *o, output *beside, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also removes the second if the first cannot be removed. */
fsdpck_status output_remove_replaced_both(output *o, output *beside,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
void output_rollback(output *o);
fsdpck_status output_remove_replaced(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Always safe, also on a zeroed struct, also twice. */
void output_release(output *o);

#endif
