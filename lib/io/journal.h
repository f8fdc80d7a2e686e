/* journal.h: the ranges of an output that a run has written, so that a later run need not write them.
 *
 *     journal_writer *w;
 *     RETURN_IF(journal_create(&w, &parent, name, &header, &err));   // a new file
 *     journal_add(w, &range);                      // any thread; after the range was written
 *     journal_flush(w);                            // those in memory
 *     journal_close(w);                            // the file stays
 *
 *     journal j;                                                     // after a kill
 *     RETURN_IF(journal_open(&w, &parent, name, &lock, &err));
 *     RETURN_IF(journal_read(&j, &parent, name, &budget, &err));
 *     if (journal_compare(&j.header, &mine, &changed) == JOURNAL_SAME)
 *         RETURN_IF(journal_continue(w, &j, &err));                  // appends to it
 *     journal_release(&j);
 *
 * The file is a header and records of 40 bytes, little-endian. Header and records end with a CRC-64. That
 * of a record begins with that of the header, so that records of another journal are not accepted. A
 * record that is cut or wrong ends the journal: it and all bytes after it are ignored. Records are appended in
 * batches (of 64, or of 8 MiB of ranges) with O_APPEND, without fsync. So a record proves nothing: the reader must compare the bytes of a
 * range with its checksum.
 *
 * A journal does not interpret its hashes: equal numbers mean that the same bytes go to the same places.
 */
#ifndef FSDPCK_IO_JOURNAL_H
#define FSDPCK_IO_JOURNAL_H

#include "base/alloc.h"
#include "io/file.h"

#define JOURNAL_VERSION      2u
#define JOURNAL_RECORD_BYTES 40u

/* Identity of a file that is read. */
typedef struct journal_source {
    uint64_t nbytes;
    uint64_t identity; /* from inode, mtime and ctime of the open file: file_identify */
} journal_source;

typedef struct journal_header {
    uint64_t program;     /* hash of the program's version */
    uint64_t partial_ino; /* inode of the partial output */
    uint32_t rank, ranks; /* whose records these are */
    vec sources;          /* journal_source */
    vec outputs;          /* uint64_t: sizes of the output files */
    vec plan; /* uint64_t: hashes of what decides the bytes of the output, except for the sources' content */
} journal_header;

typedef struct journal_range {
    uint64_t offset_bytes, nbytes;
    uint64_t crc64; /* of the bytes as written */
    uint32_t file;  /* index of the output file */
    uint32_t count; /* of the writer: a number that belongs to the range */
    uint32_t record; /* of a journal that was read: its number */
} journal_range;

typedef struct journal {
    journal_header header;
    vec ranges;            /* journal_range, by file and offset, the longest first */
    uint64_t nbytes;       /* sum of the distinct ranges */
    uint64_t valid_nbytes; /* of the file: header and records that were accepted */
    uint64_t torn_nbytes;  /* of the file: after them */
    uint64_t seed;         /* CRC-64 of the header */
} journal;

void journal_header_init(journal_header *h, budget *owner);
void journal_header_release(journal_header *h);

/* BADINPUT (RESUME-FRESH) if the header is cut or wrong, UNSUPPORTED if a newer version wrote it. Release *j
 * also after a failure. */
fsdpck_status journal_parse(journal *j, const uint8_t *bytes, size_t nbytes, budget *owner,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a file, which is never in memory as a whole. */
fsdpck_status journal_read(journal *j, const folder *parent, const char *name, budget *owner,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a file is a journal, or the beginning of one, by its first bytes. */
bool journal_is(const folder *parent, const char *name);
void journal_release(journal *j);

/* The first difference of two headers. `at`: of JOURNAL_SOURCE, the index of the file; of JOURNAL_PLAN, that of the
 * hash, or their number if only their numbers or the sizes of the outputs differ. */
typedef enum journal_difference {
    JOURNAL_SAME,
    JOURNAL_PARTIAL, /* another partial output */
    JOURNAL_PROGRAM,
    JOURNAL_RANKS,
    JOURNAL_SOURCE_COUNT,
    JOURNAL_SOURCE,
    JOURNAL_PLAN
} journal_difference;
journal_difference journal_compare(const journal_header *before, const journal_header *now,
                                   size_t *at);

/* Ranges that exactly fill [begin, end) of a file, one after another: those at *first, each followed by the next
 * at journal_next. False if there are none. */
bool journal_covers(const journal *j, uint32_t index, uint64_t begin, uint64_t end);
/* The longest range that begins there and does not pass `end`; NULL: none. */
const journal_range *journal_find(const journal *j, uint32_t index, uint64_t begin, uint64_t end);

typedef struct journal_writer journal_writer;

/* The writer's lock on the file, which ends with the process. */
typedef enum journal_lock {
    JOURNAL_LOCKED,
    JOURNAL_BUSY,   /* another process has it */
    JOURNAL_NO_LOCK /* the file system has no locks */
} journal_lock;

/* A new file, mode 0600. */
fsdpck_status journal_create(journal_writer **w, const folder *parent, const char *name,
                             const journal_header *h, journal_lock *lock,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* An existing file, to be continued. If it is busy, *w is NULL. */
fsdpck_status journal_open(journal_writer **w, const folder *parent, const char *name,
                           journal_lock *lock, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends to the file that *j was read from, without its torn end. */
fsdpck_status journal_continue(journal_writer *w, const journal *j,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After a failed write nothing more is written; see journal_error. */
void journal_add(journal_writer *w, const journal_range *range);
void journal_flush(journal_writer *w);
/* Records added since it was opened. */
uint64_t journal_added(const journal_writer *w);
/* errno of the first failed write; 0: none. */
int journal_errno(const journal_writer *w);
/* Accepts NULL. */
void journal_close(journal_writer *w);

#endif
