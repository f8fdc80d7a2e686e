/* pt_file_internal.h: the files that are laid out, for pt_file.c and pt_file_directory.c. */
#ifndef FSDPCK_PT_FILE_INTERNAL_H
#define FSDPCK_PT_FILE_INTERNAL_H

#include "formats/pt/pt_file.h"

#define PT_NO_CHUNK UINT64_MAX
#define PT_IN_PARTS (UINT64_MAX - 1)

typedef struct pt_record {
    uint64_t chunk;   /* or PT_NO_CHUNK: */
    uint64_t text_at; /* in target.text; PT_IN_PARTS: its number in pt_files.joins */
    uint64_t nbytes;
    uint32_t crc; /* of known bytes */
} pt_record;

/* A composite record; its parts end where those of the next begin. */
typedef struct pt_join {
    uint64_t first_part;
    uint64_t header_at; /* in the file */
    uint64_t descriptor_at;
    uint32_t crc; /* 0 until pt_files_seal */
} pt_join;

typedef struct pt_file {
    uint64_t first_record;
    uint64_t directory_at;
    uint64_t pickle_nbytes;
    uint32_t pickle_crc;
    uint32_t file;
} pt_file;

/* target.writer_state */
typedef struct pt_files {
    budget *owner;
    vec files;      /* pt_file, those that have ended */
    vec records;    /* pt_record, of all files; those of the current file come last */
    vec joins;      /* pt_join */
    vec parts;      /* pt_record: a chunk or known bytes each */
    uint64_t begun; /* first record of that one */
    /* Parts that the next file may share: the last pickle stored completely, and the constant bytes
     * after the pickle of the last file. */
    uint64_t whole_at, whole_nbytes; /* in target.text */
    vec whole_cuts;                  /* uint64_t */
    vec cuts;                        /* of the current file */
    uint64_t literals_at, nliterals;
    /* The last record of known bytes: every file has the same one. */
    uint64_t known_at, known_nbytes;
    uint32_t known_crc;
} pt_files;

/* The end of a composite record's parts in .parts. */
uint64_t pt_files_end_of_parts(const pt_files *s, uint64_t join);
/* Appends the directory of a file whose records end at `end`; CRCs of chunks are 0 until known.
 * *directory_at: start of the directory. */
fsdpck_status pt_file_make_directory(const target *t, const pt_file *f, uint64_t end, text_buf *out,
                                     uint64_t *directory_at, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
