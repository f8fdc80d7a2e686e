/* table_file.h: arrays and names in one nameless file in memory, which other processes of the host
 * map instead of making them again.
 *
 * One function lists the tables of a structure, for writing and for reading:
 *
 *     static fsdpck_status thing_tables(thing *t, table_file *f, fsdpck_error *err)
 *     {
 *         RETURN_IF(table_file_vec(f, &t->items, err));
 *         return table_file_bytes(f, &t->count, sizeof t->count, err);
 *     }
 *
 * One process writes, and maps the same pages:
 *
 *     RETURN_IF(table_file_create(&f, err));
 *     RETURN_IF(thing_tables(t, &f, err));
 *     RETURN_IF(table_file_finish(&f, &address, err));      // address: to the other processes
 *     RETURN_IF(table_file_map(&f, &budget, err));
 *     RETURN_IF(thing_tables(t, &f, err));                  // frees its own memory
 *     table_file_withdraw(&f);                              // when all others have opened it
 *
 * Others read:
 *
 *     RETURN_IF(table_file_open(&f, &address, &budget, err));   // fails if it cannot be mapped
 *     RETURN_IF(thing_tables(t, &f, err));                      // t->items borrows memory of f
 *     table_file_release(&f);                                   // after t
 *
 * Pages are shared until they are written: each process changes its own copy. A table that grows
 * beyond the room that is left for it moves to memory of its own. The bytes come from the same
 * program, yet all counts and lengths are checked: INTERNAL.
 */
#ifndef FSDPCK_BASE_TABLE_FILE_H
#define FSDPCK_BASE_TABLE_FILE_H

#include "base/alloc.h"

/* Where other processes of the host find the file. Plain data. */
typedef struct table_file_address {
    uint64_t process;
    uint64_t nbytes; /* 0: no file */
    uint64_t nonce;
    int64_t fd; /* of that process */
} table_file_address;

typedef struct table_file {
    int fd;
    bool is_open; /* fd is valid */
    bool writes;
    uint64_t at; /* the next table */
    uint64_t nonce;
    uint64_t used_nbytes; /* without the room between tables */
    uint8_t *memory;      /* the mapped file; NULL: not mapped */
    uint64_t nbytes;      /* of the file */
    budget *owner;        /* the used bytes of a mapped file are reserved there */
} table_file;

/* IO, NOSPACE. */
fsdpck_status table_file_create(table_file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status table_file_finish(table_file *f, table_file_address *address,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Begins reading from the first table. */
fsdpck_status table_file_map(table_file *f, budget *owner, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status table_file_open(table_file *f, const table_file_address *address, budget *owner,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* No process can open it from now on. A mapping remains. */
void table_file_withdraw(table_file *f);
/* Accepts a zeroed file, and one that was released. */
void table_file_release(table_file *f);

/* The next table. When reading, `v` and `t` are initialized, and release what they have. */
fsdpck_status table_file_vec(table_file *f, vec *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status table_file_strtab(table_file *f, strtab *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Copied in both directions. */
fsdpck_status table_file_bytes(table_file *f, void *bytes, uint64_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
