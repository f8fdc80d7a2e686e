/* hdf5_type.h: what torch's dtype a type of HDF5 is. */
#ifndef FSDPCK_FORMATS_HDF5_TYPE_H
#define FSDPCK_FORMATS_HDF5_TYPE_H

#include "formats/hdf5/hdf5_protocol.h"
#include "formats/hdf5/hdf5_record_reader.h"
#include "state/dtype.h"

/* A number's bits, as H5Tget_fields and its kin tell them. */
typedef struct hdf5_number {
    uint8_t class, order, sign, norm;
    uint32_t size, precision, offset;
    uint32_t sign_at, exponent_at, exponent_size, mantissa_at, mantissa_size;
    uint64_t bias;
} hdf5_number;

typedef struct hdf5_type {
    hdf5_number number;
    uint32_t nmembers; /* of these the first two are told */
    char names[2][17];
    uint64_t values[2];
    hdf5_number members[2];
} hdf5_type;

/* From a record, whose `failed` tells whether it was there. */
void hdf5_type_get(hdf5_record_reader *g, hdf5_type *t);

/* DTYPE_NONE where torch has none. `named`: the dataset's attribute, with or without "torch.", that
 * tells what bytes or bits of a size are; one that the type contradicts is not looked at. *swap:
 * stored big-endian. */
dtype hdf5_type_dtype(const hdf5_type *t, const char *named, size_t named_nbytes, bool *swap);

/* DTYPE_NONE because `named`, which begins with "torch.", is none of torch's. */
bool hdf5_type_is_misnamed(const hdf5_type *t, const char *named, size_t named_nbytes);

/* "a compound of 3 members", for messages. */
const char *hdf5_type_describe(const hdf5_type *t, char *text, size_t capacity_nbytes);

#endif
