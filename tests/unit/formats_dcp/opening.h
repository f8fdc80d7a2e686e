/* opening.h: a DCP folder opened by dcp_reader, and its tensors put together for comparison. */
#ifndef FSDPCK_TEST_DCP_OPENING_H
#define FSDPCK_TEST_DCP_OPENING_H

#include "formats/dcp/dcp.h"

typedef struct opening {
    folder dir;
    char **names;
    probe_input probe;
    budget metadata;
    open_request request; /* may be changed between opening_prepare and opening_open */
    catalogue cat;
    void *self;
    source src;
    fsdpck_error err;
    text_buf log;
    bool is_open;
} opening;

/* Lists the folder; ends the test where it is not there. */
void opening_prepare(opening *o, const char *path);
fsdpck_status opening_open(opening *o);
/* prepare and open. */
fsdpck_status opening_of(opening *o, const char *path);
void opening_close(opening *o);

/* $FIXTURES/name. */
const char *fixture_path(char *path, size_t nbytes, const char *name);

/* CRC-64 of "dtype[d0,d1]\n" and the row-major bytes, as 16 hex digits, and "dtype[d0,d1]". */
fsdpck_status opening_digest(opening *o, uint32_t tensor, char digest[17], char label[256]);

/* Copies a folder's files into an empty folder. */
void copy_folder(const char *from, const char *to);

#endif
