/* dcp_checkpoint.h: a DCP folder opened by dcp_reader, and its assembled tensors for comparison. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_DCP_DCP_CHECKPOINT_H
#define FSDPCK_TESTS_UNIT_FORMATS_DCP_DCP_CHECKPOINT_H

#include "formats/dcp/dcp.h"

typedef struct dcp_checkpoint {
    folder dir;
    char **names;
    probe_input probe;
    budget metadata;
    open_request
        request; /* may be changed between dcp_checkpoint_prepare and dcp_checkpoint_open */
    catalogue cat;
    void *self;
    source src;
    fsdpck_error err;
    text_buf log;
    bool is_open;
} dcp_checkpoint;

/* Lists the folder; ends the test where it is not there. */
void dcp_checkpoint_prepare(dcp_checkpoint *o, const char *path);
fsdpck_status dcp_checkpoint_open(dcp_checkpoint *o);
/* prepare and open. */
fsdpck_status dcp_checkpoint_open_path(dcp_checkpoint *o, const char *path);
void dcp_checkpoint_close(dcp_checkpoint *o);

/* $FIXTURES/name. */
const char *fixture_path(char *path, size_t nbytes, const char *name);

/* CRC-64 of "dtype[d0,d1]\n" and the row-major bytes, as 16 hex digits, and "dtype[d0,d1]". */
fsdpck_status dcp_checkpoint_digest(dcp_checkpoint *o, uint32_t tensor, char digest[17],
                                    char label[256]);

/* Copies a folder's files into an empty folder. */
void copy_folder(const char *from, const char *to);

#endif
