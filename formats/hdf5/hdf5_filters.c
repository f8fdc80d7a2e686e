/* The filters of a dataset in the records. */
#include <inttypes.h>
#include <string.h>

#include "formats/hdf5/hdf5_build_internal.h"

#define FILTER_DEFLATE    1u
#define FILTER_SHUFFLE    2u
#define FILTER_FLETCHER32 3u
/* Ids from here on are third-party filters, which HDF5's tools do not include. */
#define FILTERS_OF_HDF5 256u

static fsdpck_status unknown_filter(hdf5_builder *b, uint32_t id, unsigned count, fsdpck_error *err)
{
    static const char *const names[] = {"none", "deflate", "shuffle",    "Fletcher32",
                                        "szip", "nbit",    "scaleoffset"};
    const char *name = id < sizeof names / sizeof names[0] ? names[id]
                       : id == 32000                       ? "lzf"
                       : id == 32001                       ? "blosc"
                       : id == 32004                       ? "lz4"
                       : id == 32008                       ? "bitshuffle"
                       : id == 32015                       ? "zstd"
                                                           : "unknown";
    const fsdpck_status st = FAIL_WITH(
        err, UNSUPPORTED, H5_FILTER, ("dataset uses a filter that fsdpck does not support"),
        (tensor, b->name.text), (expected, "deflate, shuffle and Fletcher32, each at most once"),
        (found, "filter %" PRIu32 " (%s), one of %u", id, name, count),
        (next, "%s",
         id < FILTERS_OF_HDF5 ? "rewrite the file with deflate: h5repack -f GZIP=4"
         : id == 32000        ? "copy the dataset with h5py, which has lzf: "
                                "create_dataset(name, data=old[()], compression='gzip')"
                              : "copy the dataset with h5py and hdf5plugin: "
                                "create_dataset(name, data=old[()], compression='gzip')"));
    return hdf5_skip_or_fail(b, st, err);
}

static fsdpck_status take_filter(hdf5_builder *b, unsigned index, hdf5_record_reader *g,
                                 uint32_t *refused, fsdpck_error *err)
{
    hdf5_dataset *d = hdf5_open_dataset_of(b);
    const uint32_t id = get_u32(g);
    const unsigned nwords = get_u8(g);
    uint32_t first = 0;
    for (unsigned i = 0; i < nwords; i++) {
        const uint32_t word = get_u32(g);
        first = i == 0 ? word : first;
    }
    if (g->failed)
        return hdf5_bad_record(err);
    const unsigned coder = id == FILTER_DEFLATE      ? HDF5_DEFLATE
                           : id == FILTER_SHUFFLE    ? HDF5_SHUFFLE
                           : id == FILTER_FLETCHER32 ? HDF5_FLETCHER32
                                                     : 0;
    bool again = coder == 0;
    for (unsigned i = 0; i < d->ncoders; i++)
        again = again || d->coders[i] == coder;
    if (again) {
        *refused = *refused == UINT32_MAX ? id : *refused;
        return FSDPCK_OK;
    }
    if (coder == HDF5_SHUFFLE)
        d->shuffle_nbytes = nwords > 0 ? first : b->told.itemsize;
    b->told.coder_of[index] = (int8_t)d->ncoders;
    d->coders[d->ncoders++] = (uint8_t)coder;
    return FSDPCK_OK;
}

fsdpck_status hdf5_take_filters(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    uint32_t refused = UINT32_MAX;
    b->told.nfilters = get_u8(g);
    if (g->failed || b->told.nfilters > HDF5_FILTERS_MAX)
        return hdf5_bad_record(err);
    memset(b->told.coder_of, -1, sizeof b->told.coder_of);
    for (unsigned i = 0; i < b->told.nfilters; i++)
        RETURN_IF(take_filter(b, i, g, &refused, err));
    return refused == UINT32_MAX ? FSDPCK_OK : unknown_filter(b, refused, b->told.nfilters, err);
}
