/* hdf5_record_writer.h: records of hdf5_protocol.h, written by the child.
 *
 *     hdf5_record_writer p = {.fd = out_fd};
 *     put_u64(&p, address);
 *     put_text(&p, name, n);
 *     put_record(&p, HDF5_LINK);      // and begins the next
 *     ok = put_finish(&p);
 *
 * After a failure `failed` stays set and nothing more is written.
 */
#ifndef FSDPCK_FORMATS_HDF5_RECORD_WRITER_H
#define FSDPCK_FORMATS_HDF5_RECORD_WRITER_H

#include "formats/hdf5/hdf5_protocol.h"

typedef struct hdf5_record_writer {
    int fd;
    bool failed;
    uint8_t *bytes; /* the current record, and earlier ones not yet written */
    size_t nbytes, capacity;
    size_t begin; /* of the current record; 0: none */
    bool begun;
    uint64_t datasets; /* DATASET records so far */
} hdf5_record_writer;

void put_bytes(hdf5_record_writer *p, const void *bytes, size_t nbytes);
void put_u8(hdf5_record_writer *p, unsigned v);
void put_u32(hdf5_record_writer *p, uint64_t v); /* a larger value becomes UINT32_MAX */
void put_u64(hdf5_record_writer *p, uint64_t v);
/* Its length as u32, then it. */
void put_text(hdf5_record_writer *p, const char *text, size_t nbytes);
void put_record(hdf5_record_writer *p, hdf5_record kind);
/* Discards the content of the current record. */
void put_drop(hdf5_record_writer *p);
/* Writes the rest and frees. Returns whether everything was written. */
bool put_finish(hdf5_record_writer *p);

#endif
