/* st_checkpoint.h: what the tests of this folder share: opening through a reader, digests of
 * whole tensors as the fixtures state them, and files made up. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_SAFETENSORS_ST_CHECKPOINT_H
#define FSDPCK_TESTS_UNIT_FORMATS_SAFETENSORS_ST_CHECKPOINT_H

#include "formats/format.h"

typedef struct st_checkpoint {
    budget owner;
    probe_input probe;
    open_request req;
    catalogue cat;
    source src;
    const format_reader *reader;
    void *self;
    fsdpck_error err;
    char log[4096]; /* lines that the reader logged */
} st_checkpoint;

/* Probes and opens; the status is the reader's. `o` must be zeroed but for req's options. */
fsdpck_status st_checkpoint_open(st_checkpoint *o, const format_reader *reader, const char *path);
/* Whether the reader would take it. */
bool st_checkpoint_probes(const format_reader *reader, const char *path);
void st_checkpoint_close(st_checkpoint *o);

/* Checks every tensor against `DIGESTS`: lines "digest  dtype[shape]  name". */
void st_checkpoint_expect_digests(st_checkpoint *o, const char *digests_path);

/* Path below the fixtures of torch 2.15.0; static memory, two at a time. */
const char *fixture(const char *name);

/* A file from a header and data_nbytes of bytes 1, 2, 3, ... */
void write_safetensors(const char *dir, const char *name, const char *header, size_t data_nbytes);

#endif
