/* output_internal.h: what output.c (beginning and end), output_files.c (the files of an output) and
 * output_commit.c (durability and final names) share. */
#ifndef FSDPCK_IO_OUTPUT_INTERNAL_H
#define FSDPCK_IO_OUTPUT_INTERNAL_H

#include "io/output.h"

/* ".NAME.fsdpck-XXXXXXXX.partial" must fit a name of 255 bytes: NAME is cut. */
enum { OUTPUT_NAME_BYTES_MOST = 255, OUTPUT_DECORATION_BYTES = 25 };

/* How it got its final name, which determines the rollback. */
enum output_published { PUBLISHED_NOT, PUBLISHED_NEW, PUBLISHED_EXCHANGED, PUBLISHED_REPLACED };

/* A folder inside the partial one. */
struct output_sub {
    folder dir; /* its path is the final one, for messages */
    char *name; /* borrowed from dir.path */
};

enum { NO_SUB = -1 };

struct output_entry {
    open_slot slot;
    file f;          /* keeps path and identity while it is closed */
    char *name;      /* in its folder, borrowed from f.path */
    int sub;         /* index of the folder inside, or NO_SUB */
    uint64_t nbytes; /* exact, at commit */
    bool added;
    bool none; /* owned by another process */
    bool created;
    bool direct; /* requested, and supported */
};

struct output_entry *output_entry_at(const output *o, size_t index);
struct output_sub *output_sub_at(const output *o, size_t index);

/* The final path, for messages. */
const char *output_path(const output *o);

/* ".NAME.fsdpck-XXXXXXXX<suffix>", malloc'd; a name that is too long is truncated. NULL if out of
 * memory. */
char *output_decorate(const output *o, const char *suffix);

/* Opens the parent folder of `path` and sets everything but the partial. */
fsdpck_status output_open_parent(output *o, const char *path, output_kind kind, unsigned flags,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Checks the object under the final name; keeps its identity if it may be replaced. */
fsdpck_status output_check_final_name(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Opens the partial folder. */
fsdpck_status output_open_self(output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Opens the partial with a lock that ends with the process; -1 if another process has it (*is_busy), or it
 * does not exist, or the file system has no locks. */
int output_open_locked(const output *o, bool *is_busy);
/* Removes the journals of all ranks, if the output has one and was not joined. */
void output_remove_journals(output *o);
/* For an adopted folder, before it is made durable: removes files that this run did not add. */
fsdpck_status output_remove_others(const output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether `name` in the parent has this identity. */
bool output_is_same(const output *o, const char *name, uint64_t dev, uint64_t ino);

/* EXISTS: the object under the final name must not be replaced. */
fsdpck_status output_error_exists(const output *o, const char *what, fsdpck_error *err);

/* An entry for `name`, which is "" for OUTPUT_FILE. */
fsdpck_status output_entry_push(output *o, const char *name, struct output_entry **entry,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For the cache of open files; ctx is the output, slot an entry's. The file is created exclusively
 * the first time; later it must be the same file. */
fsdpck_status output_entry_open(void *ctx, open_slot *slot, fsdpck_error *err) FSDPCK_MUST_CHECK;
void output_entry_close(void *ctx, open_slot *slot);

#endif
