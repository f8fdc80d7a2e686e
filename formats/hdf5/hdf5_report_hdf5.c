#define H5_USE_110_API
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/hdf5/hdf5_report.h"

#define DTYPE_NBYTES_MAX 64u
#define CHUNKS_OF_RECORD 1024u
/* Reported elements of a filter's description. */
#define WORDS_MAX 20u

typedef struct described {
    hid_t type, space, create;
    bool has_fqn;
    H5D_layout_t layout;
    unsigned ndim;
    hsize_t dims[HDF5_NDIM_MAX];
    hsize_t chunk[HDF5_NDIM_MAX];
    hsize_t nchunks;
} described;

/* ---- messages of the library ---- */

/* The first error of the stack is the outermost, the last the cause. */
static herr_t keep_cause(unsigned n, const H5E_error2_t *e, void *ctx)
{
    (void)n;
    if (e->desc != NULL)
        strncpy(ctx, e->desc, 199);
    return 0;
}

bool report_fail(hdf5_record_writer *p, hdf5_fail why, const char *name, size_t name_nbytes)
{
    char cause[200] = "";
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_cause, cause);
    put_u8(p, why);
    put_text(p, name, name_nbytes);
    put_text(p, cause, strlen(cause));
    put_record(p, HDF5_FAIL);
    return false;
}

/* ---- attributes ---- */

static bool read_long_text(hid_t attribute, hid_t type, size_t limit_nbytes, char **text,
                           size_t *nbytes)
{
    char *whole = NULL;
    if (H5Aread(attribute, type, &whole) < 0)
        return false;
    /* An empty one may have no location. */
    if (whole == NULL)
        return true;
    *nbytes = strnlen(whole, limit_nbytes + 1);
    const bool kept = *nbytes <= limit_nbytes;
    *text = kept ? strndup(whole, *nbytes) : NULL;
    H5free_memory(whole);
    return !kept || *text != NULL;
}

static bool read_text(hid_t attribute, hid_t type, size_t limit_nbytes, char **text, size_t *nbytes)
{
    const size_t size = H5Tget_size(type);
    if (H5Tis_variable_str(type) > 0)
        return read_long_text(attribute, type, limit_nbytes, text, nbytes);
    if (size == 0 || size > limit_nbytes)
        return size > 0;
    char *fixed = calloc(1, size + 1);
    if (fixed == NULL || H5Aread(attribute, type, fixed) < 0) {
        free(fixed);
        return false;
    }
    *text = fixed;
    *nbytes = strnlen(fixed, size);
    return true;
}

bool report_attribute(int64_t object, const char *name, size_t limit_nbytes, char **text,
                      size_t *nbytes)
{
    const htri_t exists = H5Aexists((hid_t)object, name);
    *text = NULL;
    *nbytes = 0;
    if (exists <= 0)
        return exists == 0;
    const hid_t attribute = H5Aopen((hid_t)object, name, H5P_DEFAULT);
    if (attribute < 0)
        return false;
    const hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    bool ok = type >= 0 && space >= 0;
    if (ok && H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1)
        ok = read_text(attribute, type, limit_nbytes, text, nbytes);
    /* The reason is kept for report_fail: a successful call clears it. */
    if (!ok)
        return false;
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(attribute);
    return true;
}

/* ---- types ---- */

static unsigned order_of(hid_t type)
{
    switch (H5Tget_order(type)) {
    case H5T_ORDER_LE:
    case H5T_ORDER_NONE:
        return HDF5_ORDER_LE;
    case H5T_ORDER_BE:
        return HDF5_ORDER_BE;
    default:
        return HDF5_ORDER_OTHER;
    }
}

static void put_number(hdf5_record_writer *p, hid_t type)
{
    const H5T_class_t class = H5Tget_class(type);
    size_t sign = 0, exponent = 0, exponent_size = 0, mantissa = 0, mantissa_size = 0, bias = 0;
    const bool is_number = class == H5T_INTEGER || class == H5T_FLOAT;
    int norm = HDF5_NORM_OTHER;
    if (class == H5T_FLOAT) {
        (void)H5Tget_fields(type, &sign, &exponent, &exponent_size, &mantissa, &mantissa_size);
        bias = H5Tget_ebias(type);
        norm = H5Tget_norm(type) == H5T_NORM_IMPLIED ? HDF5_NORM_IMPLIED : HDF5_NORM_OTHER;
    }
    const int offset = is_number ? H5Tget_offset(type) : 0;
    put_u8(p, (unsigned)class);
    put_u8(p, is_number ? order_of(type) : HDF5_ORDER_LE);
    put_u8(p, class == H5T_INTEGER ? (unsigned)H5Tget_sign(type) : 0);
    put_u8(p, (unsigned)norm);
    put_u32(p, H5Tget_size(type));
    put_u32(p, is_number ? H5Tget_precision(type) : 0);
    put_u32(p, offset < 0 ? UINT32_MAX : (uint64_t)offset);
    put_u32(p, sign);
    put_u32(p, exponent);
    put_u32(p, exponent_size);
    put_u32(p, mantissa);
    put_u32(p, mantissa_size);
    put_u64(p, bias);
}

static void put_member_name(hdf5_record_writer *p, hid_t type, unsigned member)
{
    char *name = H5Tget_member_name(type, member);
    const size_t n = name == NULL ? 0 : strnlen(name, 16);
    put_u8(p, (unsigned)n);
    put_bytes(p, name, n);
    H5free_memory(name);
}

/* Of an enumeration of bytes; of others the first byte, which no reader uses. */
static uint64_t member_value(hid_t type, unsigned member)
{
    uint8_t value[16] = {0};
    if (H5Tget_size(type) > sizeof value || H5Tget_member_value(type, member, value) < 0)
        return UINT64_MAX;
    return value[0];
}

static void put_type(hdf5_record_writer *p, hid_t type)
{
    const H5T_class_t class = H5Tget_class(type);
    const bool has_members = class == H5T_ENUM || class == H5T_COMPOUND;
    const int count = has_members ? H5Tget_nmembers(type) : 0;
    const unsigned n = count < 0 ? 0 : (unsigned)count;
    put_number(p, type);
    put_u32(p, n);
    for (unsigned i = 0; i < n && i < 2; i++) {
        put_member_name(p, type, i);
        put_u64(p, class == H5T_ENUM ? member_value(type, i) : H5Tget_member_offset(type, i));
    }
    for (unsigned i = 0; i < n && i < 2 && class == H5T_COMPOUND; i++) {
        const hid_t member = H5Tget_member_type(type, i);
        put_number(p, member);
        H5Tclose(member);
    }
}

/* ---- datasets ---- */

static void put_fill(hdf5_record_writer *p, const described *d)
{
    H5D_fill_value_t state = H5D_FILL_VALUE_UNDEFINED;
    H5D_fill_time_t when;
    uint8_t value[HDF5_FILL_NBYTES_MAX] = {0};
    const size_t size = H5Tget_size(d->type);
    const H5T_class_t class = H5Tget_class(d->type);
    const bool plain = size > 0 && size <= sizeof value &&
                       (class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM ||
                        class == H5T_COMPOUND || class == H5T_OPAQUE || class == H5T_BITFIELD);
    /* Never filled: libhdf5 would return uninitialised memory. */
    if (H5Pget_fill_time(d->create, &when) >= 0 && when != H5D_FILL_TIME_NEVER)
        (void)H5Pfill_value_defined(d->create, &state);
    if (state == H5D_FILL_VALUE_USER_DEFINED && plain &&
        H5Pget_fill_value(d->create, d->type, value) >= 0) {
        put_u8(p, HDF5_FILL_VALUE);
        put_u8(p, (unsigned)size);
        put_bytes(p, value, size);
        return;
    }
    put_u8(p, state == H5D_FILL_VALUE_DEFAULT ? HDF5_FILL_ZERO : HDF5_FILL_UNDEFINED);
    put_u8(p, 0);
}

/* torch_dtype begins with "torch.", the attribute of Keras need not. Keras writes it for opaque values;
 * in other datasets it has another meaning. */
static bool put_torch_dtype(hdf5_record_writer *p, const described *d, hid_t dataset)
{
    static const char prefix[] = "torch.";
    const size_t nprefix = sizeof prefix - 1;
    char *text;
    size_t n;
    if (!report_attribute(dataset, "torch_dtype", DTYPE_NBYTES_MAX, &text, &n))
        return false;
    const bool bare = n > 0 && strncmp(text, prefix, nprefix) != 0;
    if (text == NULL && H5Tget_class(d->type) == H5T_OPAQUE &&
        !report_attribute(dataset, "dtype", DTYPE_NBYTES_MAX, &text, &n))
        return false;
    put_u8(p, (unsigned)(n + (bare ? nprefix : 0)));
    if (bare)
        put_bytes(p, prefix, nprefix);
    put_bytes(p, text, n);
    free(text);
    return true;
}

static bool put_fqn(hdf5_record_writer *p, const described *d, hid_t dataset)
{
    char *text = NULL;
    size_t n = 0;
    if (d->has_fqn && !report_attribute(dataset, "fqn", HDF5_NAME_NBYTES_MAX, &text, &n))
        return false;
    put_text(p, text, n);
    free(text);
    return true;
}

static bool put_filters(hdf5_record_writer *p, const described *d)
{
    const int count = H5Pget_nfilters(d->create);
    if (count < 0 || (unsigned)count > HDF5_FILTERS_MAX)
        return false;
    put_u8(p, (unsigned)count);
    for (int i = 0; i < count; i++) {
        unsigned flags = 0, config = 0, words[WORDS_MAX] = {0};
        size_t n = WORDS_MAX;
        const H5Z_filter_t id =
            H5Pget_filter2(d->create, (unsigned)i, &flags, &n, words, 0, NULL, &config);
        if (id < 0)
            return false;
        n = n < WORDS_MAX ? n : WORDS_MAX;
        put_u32(p, (uint64_t)id);
        put_u8(p, (unsigned)n);
        for (size_t k = 0; k < n; k++)
            put_u32(p, words[k]);
    }
    return true;
}

static bool put_chunking(hdf5_record_writer *p, hid_t dataset, described *d)
{
    unsigned options = 0;
    if (H5Pget_chunk(d->create, HDF5_NDIM_MAX, d->chunk) != (int)d->ndim ||
        H5Pget_chunk_opts(d->create, &options) < 0)
        return false;
    put_u8(p, options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS ? HDF5_CHUNK_PLAIN_EDGES : 0);
    for (unsigned i = 0; i < d->ndim; i++)
        put_u64(p, d->chunk[i]);
    if (!put_filters(p, d) || H5Dget_num_chunks(dataset, d->space, &d->nchunks) < 0)
        return false;
    put_u64(p, d->nchunks);
    return true;
}

/* ---- chunks ----
 *
 * Queried cell by cell of the grid: libhdf5 finds a chunk by its corner in the index, while
 * H5Dget_chunk_info walks all earlier chunks each time and returns wrong corners for some indices
 * (at least up to 2.0). */

/* Cells of the grid, which has `nchunks` chunks; 0 if the reader refuses it. */
static uint64_t cells_to_ask(const described *d)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < d->ndim; i++)
        if (d->dims[i] == 0 || d->chunk[i] == 0 ||
            !checked_mul(count, (d->dims[i] - 1) / d->chunk[i] + 1, &count))
            return 0;
    return hdf5_is_sparse(count, d->nchunks) || d->nchunks > count ? 0 : count;
}

/* An existing chunk, with the location that a read reaches; a chunk that libhdf5 does not read is
 * after the end of the file. */
static bool put_chunk(hdf5_record_writer *p, hid_t dataset, raw_extent *place, const described *d,
                      const hsize_t *corner, uint64_t nbytes)
{
    uint32_t mask = 0;
    place->count = 0;
    const bool read = H5Dread_chunk(dataset, H5P_DEFAULT, corner, &mask, place->nowhere) >= 0;
    if (read && place->count != 1)
        return false;
    put_u64(p, read ? place->offset_bytes : UINT64_MAX);
    put_u64(p, read ? place->nbytes : nbytes);
    put_u32(p, mask);
    for (unsigned k = 0; k < d->ndim; k++)
        put_u64(p, corner[k]);
    return true;
}

/* The next in the order of rows. */
static void step(const described *d, hsize_t *corner)
{
    for (unsigned i = d->ndim; i-- > 0; corner[i] = 0) {
        if (d->dims[i] - corner[i] > d->chunk[i]) {
            corner[i] += d->chunk[i];
            return;
        }
    }
}

/* For a cell without a chunk the size is 0, or an error if there are filters. If that error had
 * another cause, or the index has chunks outside the grid, the reader notices by the reported
 * number of chunks. */
static bool put_chunks(hdf5_record_writer *p, hid_t dataset, raw_extent *place, const described *d)
{
    const uint64_t ncells = cells_to_ask(d);
    hsize_t corner[HDF5_NDIM_MAX] = {0}, put = 0;
    for (uint64_t i = 0; i < ncells && put < d->nchunks; i++, step(d, corner)) {
        hsize_t nbytes = 0;
        if (H5Dget_chunk_storage_size(dataset, corner, &nbytes) < 0 || nbytes == 0)
            continue;
        if (!put_chunk(p, dataset, place, d, corner, nbytes))
            return false;
        if (++put % CHUNKS_OF_RECORD == 0)
            put_record(p, HDF5_CHUNKS);
        if (p->failed)
            return false;
    }
    if (put % CHUNKS_OF_RECORD != 0)
        put_record(p, HDF5_CHUNKS);
    return true;
}

/* Unconverted: both sides have the same type. */
static bool put_compact(hdf5_record_writer *p, hid_t dataset, const described *d, uint64_t nbytes)
{
    const hssize_t count = H5Sget_simple_extent_npoints(d->space);
    const uint64_t size = H5Tget_size(d->type);
    if (nbytes == 0)
        return true;
    /* The layout limits it to 64 KiB, but the library fills the size of the shape. */
    if (nbytes > HDF5_RECORD_NBYTES_MAX || count < 0 || size == 0 ||
        (uint64_t)count > HDF5_RECORD_NBYTES_MAX / size)
        return false;
    const uint64_t room = (uint64_t)count * size;
    uint8_t *bytes = calloc(1, room > nbytes ? room : nbytes);
    const bool done =
        bytes != NULL && H5Dread(dataset, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0;
    if (done)
        put_bytes(p, bytes, nbytes);
    free(bytes);
    if (done)
        put_record(p, HDF5_INLINE);
    return done;
}

static bool put_body(hdf5_record_writer *p, hid_t dataset, raw_extent *place, described *d)
{
    const uint64_t stored = H5Dget_storage_size(dataset);
    /* With a user block, libhdf5 adds its size even to an undefined address. */
    const haddr_t at =
        d->layout == H5D_CONTIGUOUS && stored > 0 ? H5Dget_offset(dataset) : HADDR_UNDEF;
    put_u8(p, (unsigned)d->layout);
    put_u64(p, at == HADDR_UNDEF ? UINT64_MAX : at);
    put_u64(p, stored);
    put_fill(p, d);
    if (!put_torch_dtype(p, d, dataset) || !put_fqn(p, d, dataset))
        return false;
    if (d->layout == H5D_CHUNKED && !put_chunking(p, dataset, d))
        return false;
    put_record(p, HDF5_DATASET);
    if (d->layout == H5D_CHUNKED)
        return put_chunks(p, dataset, place, d);
    return d->layout != H5D_COMPACT || put_compact(p, dataset, d, stored);
}

/* Checked first, so that no call opens its target. */
static bool refuse_foreign(hdf5_record_writer *p, const described *d, const char *name, size_t n)
{
    if (d->layout == H5D_VIRTUAL)
        return report_fail(p, HDF5_FAIL_VIRTUAL, name, n);
    if (H5Pget_external_count(d->create) != 0)
        return report_fail(p, HDF5_FAIL_EXTERNAL, name, n);
    return true;
}

static bool is_text(hid_t type)
{
    return H5Tget_class(type) == H5T_STRING;
}

static bool report_left(hdf5_record_writer *p, hdf5_left why, const char *name, size_t n)
{
    put_u8(p, why);
    put_text(p, name, n);
    put_record(p, HDF5_LEFT);
    return !p->failed;
}

static bool report_open(hdf5_record_writer *p, hid_t dataset, uint64_t address, raw_extent *place,
                        const char *name, size_t n, described *d)
{
    d->space = H5Dget_space(dataset);
    d->type = H5Dget_type(dataset);
    if (d->space < 0 || d->type < 0)
        return report_fail(p, HDF5_FAIL_OBJECT, name, n);
    const H5S_class_t class = H5Sget_simple_extent_type(d->space);
    if (class == H5S_NULL)
        return report_left(p, HDF5_LEFT_NULL, name, n);
    if (is_text(d->type))
        return report_left(p, HDF5_LEFT_TEXT, name, n);
    const int ndim = H5Sget_simple_extent_ndims(d->space);
    if (ndim < 0 || (unsigned)ndim > HDF5_NDIM_MAX ||
        H5Sget_simple_extent_dims(d->space, d->dims, NULL) != ndim)
        return report_fail(p, HDF5_FAIL_OBJECT, name, n);
    d->ndim = (unsigned)ndim;
    put_u64(p, address);
    put_text(p, name, n);
    put_type(p, d->type);
    put_u8(p, class == H5S_SCALAR ? HDF5_SPACE_SCALAR : HDF5_SPACE_SIMPLE);
    put_u8(p, d->ndim);
    for (unsigned i = 0; i < d->ndim; i++)
        put_u64(p, d->dims[i]);
    if (put_body(p, dataset, place, d))
        return !p->failed;
    put_drop(p);
    return report_fail(p, HDF5_FAIL_OBJECT, name, n);
}

bool report_dataset(hdf5_record_writer *p, int64_t dataset, uint64_t address, raw_extent *place,
                    bool has_fqn, const char *name, size_t name_nbytes)
{
    described d = {
        .type = -1, .space = -1, .create = H5Dget_create_plist((hid_t)dataset), .has_fqn = has_fqn};
    bool ok;
    if (d.create < 0)
        return report_fail(p, HDF5_FAIL_OBJECT, name, name_nbytes);
    d.layout = H5Pget_layout(d.create);
    ok = d.layout < 0 ? report_fail(p, HDF5_FAIL_OBJECT, name, name_nbytes)
                      : refuse_foreign(p, &d, name, name_nbytes);
    if (ok)
        ok = report_open(p, (hid_t)dataset, address, place, name, name_nbytes, &d);
    if (d.type >= 0)
        H5Tclose(d.type);
    if (d.space >= 0)
        H5Sclose(d.space);
    H5Pclose(d.create);
    return ok;
}
