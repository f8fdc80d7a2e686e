/* hdf5_type.h: maps HDF5 types to torch dtypes. */
#ifndef FSDPCK_FORMATS_HDF5_TYPE_H
#define FSDPCK_FORMATS_HDF5_TYPE_H

#include "formats/hdf5/hdf5_protocol.h"
#include "formats/hdf5/hdf5_record_reader.h"
#include "state/dtype.h"

/* The bit fields of a number, as in H5Tget_fields and related calls. */
typedef struct hdf5_number {
    uint8_t class, order, sign, norm;
    uint32_t size, precision, offset;
    uint32_t sign_at, exponent_at, exponent_size, mantissa_at, mantissa_size;
    uint64_t bias;
} hdf5_number;

typedef struct hdf5_type {
    hdf5_number number;
    uint32_t nmembers; /* only the first two are reported */
    char names[2][17];
    uint64_t values[2];
    hdf5_number members[2];
} hdf5_type;

/* Reads it from a record; sets the record's `failed` if incomplete. */
void hdf5_type_get(hdf5_record_reader *g, hdf5_type *t);

/* DTYPE_NONE if torch has no such dtype. `named`: the dataset's dtype attribute, with or without
 * "torch."; ignored if it contradicts the type. *swap: stored big-endian. */
dtype hdf5_type_dtype(const hdf5_type *t, const char *named, size_t named_nbytes, bool *swap);

/* DTYPE_NONE because `named` begins with "torch." but is not a torch dtype. */
bool hdf5_type_is_misnamed(const hdf5_type *t, const char *named, size_t named_nbytes);

/* "a compound of 3 members", for messages. */
const char *hdf5_type_describe(const hdf5_type *t, char *text, size_t capacity_nbytes);

#endif
