#include <hdf5.h>
#include <stdlib.h>

#include "formats/hdf5/hdf5_driver.h"
#include "formats/hdf5/hdf5_lock.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_write_internal.h"

/* Metadata of the library per dataset, without its name, and per file: enough to keep nearly all of
 * it together at the front. */
#define META_NBYTES_EACH  640u
#define META_NBYTES_LEAST 2048u
#define META_NBYTES_MOST  ((hsize_t)1 << 30)
/* Of a table of chunks: its nodes and, for a chunk with this number of dims, its key and location.
 */
#define META_NBYTES_NODE        128u
#define META_NBYTES_CHUNK(ndim) (2u * (16u + 8u * (ndim)))
#define META_NODE_CHUNKS        64u

/* Memory of the library itself, and its cache. */
#define LIBRARY_NBYTES      ((uint64_t)1 << 20)
#define LIBRARY_NBYTES_EACH 1536u
#define CACHE_NBYTES_EACH   ((uint64_t)12 << 10)
#define CACHE_NBYTES_MOST   ((uint64_t)48 << 20)

struct hdf5_describe_state {
    hdf5_description d;
    hdf5_driver driver;
    int error;                     /* errno of its failure */
    uint64_t told_at, told_nbytes; /* last location reported by the driver */
    size_t tensor;                 /* tensor with the open dataset, for its chunks */
    hid_t dataset;
    hid_t file, root;
    hid_t link_list;  /* names are UTF-8 */
    hid_t group_list; /* creation order, no times */
    hid_t dataset_list;
    hid_t access_list, create_list; /* of the file */
    hid_t text_type;
    hid_t scalar;
    hid_t types[DTYPE_COUNT]; /* 0: not made yet */
};

/* Source address of written chunks: never read. */
static const uint8_t nowhere[1];

/* --- what failed --- */

typedef struct cause {
    const char *text; /* of the innermost call */
    bool is_memory;
} cause;

static herr_t take_cause(unsigned n, const H5E_error2_t *what, void *ctx)
{
    cause *c = ctx;
    if (n == 0 && what->desc != NULL)
        c->text = what->desc;
    c->is_memory = c->is_memory || what->maj_num == H5E_RESOURCE || what->min_num == H5E_CANTALLOC;
    return 0;
}

/* For the call that just failed: the next call clears it. */
static fsdpck_status fail(const hdf5_describe_state *s, const char *name, fsdpck_error *err)
{
    cause c = {"no reason given", false};
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_cause, &c);
    fsdpck_status st;
    if (s->error != 0)
        st = error_set_errno(err, s->error, "describing the HDF5 file", NULL);
    else if (c.is_memory)
        st = FAIL(err, LIMIT, LIMIT_MEMORY,
                  "not enough memory for libhdf5 to describe the output: %s", c.text);
    else
        st = FAIL(err, IO, NONE, "libhdf5 could not describe the output: %s", c.text);
    error_tensor(err, name);
    (void)H5Eclear2(H5E_DEFAULT);
    return st;
}

/* --- attributes --- */

static herr_t put_attribute(hid_t object, const char *name, hid_t type, hid_t memory_type,
                            hid_t space, const void *content)
{
    const hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0)
        return -1;
    const herr_t written = H5Awrite(attribute, memory_type, content);
    const herr_t closed = H5Aclose(attribute);
    return written < 0 ? written : closed;
}

static herr_t put_text(const hdf5_describe_state *s, hid_t object, const char *name,
                       const char *text)
{
    return put_attribute(object, name, s->text_type, s->text_type, s->scalar, &text);
}

static herr_t put_root_attributes(const hdf5_describe_state *s)
{
    const uint32_t version = HDF5_FORMAT_VERSION;
    const text_buf *objects = s->d.objects;
    if (put_text(s, s->root, "format", HDF5_FORMAT_NAME) < 0 ||
        put_attribute(s->root, "format_version", H5T_STD_U32LE, H5T_NATIVE_UINT32, s->scalar,
                      &version) < 0 ||
        put_text(s, s->root, "source_format", s->d.cat->origin.format) < 0)
        return -1;
    return objects->nbytes > 0 ? put_text(s, s->root, HDF5_OBJECTS_ATTRIBUTE, objects->text) : 0;
}

/* --- datasets --- */

static hid_t space_of(const hdf5_describe_state *s, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(s->d.cat, tensor);
    const uint64_t *shape = catalogue_shape(s->d.cat, tensor);
    hsize_t dims[HDF5_NDIM_MAX];
    if (t->ndim == 0)
        return H5Screate(H5S_SCALAR);
    for (unsigned i = 0; i < t->ndim; i++)
        dims[i] = shape[i];
    return H5Screate_simple(t->ndim, dims, NULL);
}

static hid_t type_of(hdf5_describe_state *s, dtype d)
{
    if (s->types[d] == 0)
        s->types[d] = hdf5_type_new(d);
    return s->types[d];
}

static herr_t put_tensor_attributes(const hdf5_describe_state *s, size_t tensor, hid_t dataset)
{
    const cat_tensor *t = catalogue_tensor(s->d.cat, tensor);
    const char *fqn = catalogue_name(s->d.cat, t->name);
    const char *path = strtab_text(&s->d.names->paths, (uint32_t)tensor);
    if (put_text(s, dataset, "torch_dtype", dtype_get((dtype)t->dtype)->name) < 0)
        return -1;
    return hdf5_name_is_implied(path, fqn) ? 0 : put_text(s, dataset, "fqn", fqn);
}

/* Of this tensor, to be closed. */
static hid_t creation_of(const hdf5_describe_state *s, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(s->d.cat, tensor);
    const hid_t list = H5Pcopy(s->dataset_list);
    uint64_t sizes[HDF5_NDIM_MAX];
    hsize_t chunk[HDF5_NDIM_MAX];
    hdf5_chunk_shape cut;
    if (list < 0 || s->d.level == 0 ||
        !hdf5_chunk_shape_choose((dtype)t->dtype, t->ndim, catalogue_shape(s->d.cat, tensor), &cut))
        return list;
    hdf5_chunk_shape_sizes(&cut, t->ndim, catalogue_shape(s->d.cat, tensor), sizes);
    for (unsigned i = 0; i < t->ndim; i++)
        chunk[i] = sizes[i];
    const bool shuffled = dtype_get((dtype)t->dtype)->itemsize_bytes > 1;
    if (H5Pset_chunk(list, t->ndim, chunk) >= 0 &&
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_INCR) >= 0 &&
        (!shuffled || H5Pset_shuffle(list) >= 0) && H5Pset_deflate(list, s->d.level) >= 0)
        return list;
    (void)H5Pclose(list);
    return H5I_INVALID_HID;
}

static fsdpck_status put_tensor(hdf5_describe_state *s, size_t tensor, uint64_t *offset_bytes,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(s->d.cat, tensor);
    const hid_t type = type_of(s, (dtype)t->dtype);
    const hid_t space = type < 0 ? H5I_INVALID_HID : space_of(s, tensor);
    const hid_t list = space < 0 ? H5I_INVALID_HID : creation_of(s, tensor);
    hid_t dataset = H5I_INVALID_HID;
    if (list >= 0)
        dataset = H5Dcreate2(s->file, strtab_text(&s->d.names->paths, (uint32_t)tensor), type,
                             space, s->link_list, list, H5P_DEFAULT);
    const bool ok = dataset >= 0 && put_tensor_attributes(s, tensor, dataset) >= 0;
    const bool cut = ok && H5Pget_layout(list) == H5D_CHUNKED;
    const haddr_t at = ok && !cut ? H5Dget_offset(dataset) : HADDR_UNDEF;
    fsdpck_status st = FSDPCK_OK;
    if (!ok || (at == HADDR_UNDEF && !cut && catalogue_tensor_nbytes(s->d.cat, tensor) > 0))
        st = fail(s, catalogue_name(s->d.cat, t->name), err);
    *offset_bytes = at == HADDR_UNDEF ? UINT64_MAX : at;
    if (dataset >= 0 && H5Dclose(dataset) < 0 && st == FSDPCK_OK)
        st = fail(s, catalogue_name(s->d.cat, t->name), err);
    if (list >= 0)
        (void)H5Pclose(list);
    if (space >= 0)
        (void)H5Sclose(space);
    return st;
}

static fsdpck_status put_group(const hdf5_describe_state *s, uint32_t i, fsdpck_error *err)
{
    const char *path = strtab_text(&s->d.names->groups, i);
    const hid_t made = H5Gcreate2(s->file, path, s->link_list, s->group_list, H5P_DEFAULT);
    return made < 0 || H5Gclose(made) < 0 ? fail(s, path, err) : FSDPCK_OK;
}

/* --- the file --- */

static herr_t set_order(hid_t list)
{
    return H5Pset_link_creation_order(list, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) < 0 ||
                   H5Pset_obj_track_times(list, 0) < 0
               ? -1
               : 0;
}

/* Tables of chunks. */
static hsize_t tables_nbytes(const hdf5_description *d)
{
    hsize_t nbytes = 0;
    for (size_t i = 0; d->level > 0 && i < catalogue_tensor_count(d->cat); i++) {
        const cat_tensor *t = catalogue_tensor(d->cat, i);
        hdf5_chunk_shape cut;
        if (!hdf5_chunk_shape_choose((dtype)t->dtype, t->ndim, catalogue_shape(d->cat, i), &cut))
            continue;
        const hsize_t nodes =
            1 + catalogue_tensor_nbytes(d->cat, i) / cut.chunk_nbytes / (META_NODE_CHUNKS / 2);
        nbytes += nodes * (META_NBYTES_NODE +
                           META_NODE_CHUNKS * (hsize_t)META_NBYTES_CHUNK(t->ndim + 1u) / 2);
    }
    return nbytes;
}

/* Of the metadata; a power of two, so that the tail stays small and the sizes few. */
static hsize_t meta_block_nbytes(const hdf5_description *d)
{
    const size_t count = catalogue_tensor_count(d->cat);
    hsize_t want = META_NBYTES_EACH * (hsize_t)count + d->objects->nbytes + tables_nbytes(d);
    hsize_t nbytes = META_NBYTES_LEAST;
    if (count > 0)
        want += d->names->paths.text.count;
    while (nbytes < want && nbytes < META_NBYTES_MOST)
        nbytes += nbytes / 4;
    return nbytes;
}

static herr_t set_access(const hdf5_describe_state *s)
{
    /* Chunks of all sizes are contiguous. */
    const hsize_t align = s->d.level > 0 ? 1 : HDF5_ALIGN_NBYTES;
    return H5Pset_libver_bounds(s->access_list, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
                   H5Pset_alignment(s->access_list, align, align) < 0 ||
                   H5Pset_meta_block_size(s->access_list, meta_block_nbytes(&s->d)) < 0 ||
                   H5Pset_file_locking(s->access_list, 0, 1) < 0
               ? -1
               : 0;
}

static herr_t create_file(hdf5_describe_state *s)
{
    s->access_list = hdf5_driver_access(&s->driver);
    s->create_list = H5Pcreate(H5P_FILE_CREATE);
    if (s->access_list < 0 || s->create_list < 0 || set_access(s) < 0 ||
        set_order(s->create_list) < 0)
        return -1;
    s->file = H5Fcreate(HDF5_DRIVER_PATH, H5F_ACC_TRUNC, s->create_list, s->access_list);
    return s->file < 0 ? -1 : 0;
}

static herr_t make_lists(hdf5_describe_state *s)
{
    s->link_list = H5Pcreate(H5P_LINK_CREATE);
    s->group_list = H5Pcreate(H5P_GROUP_CREATE);
    s->dataset_list = H5Pcreate(H5P_DATASET_CREATE);
    s->text_type = H5Tcopy(H5T_C_S1);
    s->scalar = H5Screate(H5S_SCALAR);
    if (s->link_list < 0 || s->group_list < 0 || s->dataset_list < 0 || s->text_type < 0 ||
        s->scalar < 0 || set_order(s->group_list) < 0 ||
        H5Pset_char_encoding(s->link_list, H5T_CSET_UTF8) < 0 ||
        H5Pset_layout(s->dataset_list, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(s->dataset_list, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(s->dataset_list, H5D_FILL_TIME_NEVER) < 0 ||
        H5Pset_obj_track_times(s->dataset_list, 0) < 0 ||
        H5Tset_size(s->text_type, H5T_VARIABLE) < 0 || H5Tset_cset(s->text_type, H5T_CSET_UTF8) < 0)
        return -1;
    return 0;
}

static fsdpck_status put_all(hdf5_describe_state *s, uint64_t *offsets, fsdpck_error *err)
{
    if (make_lists(s) < 0 || create_file(s) < 0)
        return fail(s, NULL, err);
    s->root = H5Gopen2(s->file, "/", H5P_DEFAULT);
    if (s->root < 0 || put_root_attributes(s) < 0)
        return fail(s, NULL, err);
    for (uint32_t i = 0; i < strtab_count(&s->d.names->groups); i++)
        RETURN_IF(put_group(s, i, err));
    for (size_t i = 0; i < catalogue_tensor_count(s->d.cat); i++)
        RETURN_IF(put_tensor(s, i, &offsets[i], err));
    return FSDPCK_OK;
}

static herr_t close_all(hdf5_describe_state *s)
{
    const hid_t lists[] = {s->link_list, s->group_list, s->dataset_list, s->access_list,
                           s->create_list};
    herr_t worst = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i] >= 0)
            (void)H5Pclose(lists[i]);
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (s->types[i] > 0)
            (void)H5Tclose(s->types[i]);
    if (s->text_type >= 0)
        (void)H5Tclose(s->text_type);
    if (s->scalar >= 0)
        (void)H5Sclose(s->scalar);
    if (s->dataset >= 0 && H5Dclose(s->dataset) < 0)
        worst = -1;
    if (s->root >= 0 && H5Gclose(s->root) < 0)
        worst = -1;
    if (s->file >= 0 && H5Fclose(s->file) < 0)
        worst = -1;
    return worst;
}

/* --- chunks --- */

static void take_place(void *ctx, uint64_t offset_bytes, uint64_t nbytes)
{
    hdf5_describe_state *s = ctx;
    s->told_at = offset_bytes;
    s->told_nbytes = nbytes;
}

static herr_t open_dataset(hdf5_describe_state *s, size_t tensor)
{
    if (s->dataset >= 0 && s->tensor == tensor)
        return 0;
    if (s->dataset >= 0 && H5Dclose(s->dataset) < 0) {
        s->dataset = H5I_INVALID_HID;
        return -1;
    }
    s->tensor = tensor;
    s->dataset = H5Dopen2(s->file, strtab_text(&s->d.names->paths, (uint32_t)tensor), H5P_DEFAULT);
    return s->dataset < 0 ? -1 : 0;
}

static fsdpck_status put_chunk(hdf5_describe_state *s, size_t tensor, const uint64_t *corner,
                               uint32_t mask, uint64_t nbytes, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(s->d.cat, tensor);
    const char *name = catalogue_name(s->d.cat, t->name);
    hsize_t at[HDF5_NDIM_MAX];
    for (unsigned i = 0; i < t->ndim; i++)
        at[i] = corner[i];
    s->told_nbytes = 0;
    if (open_dataset(s, tensor) < 0 ||
        H5Dwrite_chunk(s->dataset, H5P_DEFAULT, mask, at, nbytes, nowhere) < 0)
        return fail(s, name, err);
    if (s->told_nbytes == nbytes)
        return FSDPCK_OK;
    return FAIL(err, INTERNAL, NONE, "libhdf5 assigned no location to a chunk of '%s'", name);
}

/* --- steps --- */

/* libhdf5 does not survive a failed allocation: it ends in a crash, here or when it is next used.
 * Its memory, as measured and half as much again, is therefore reserved before: its cache, which
 * grows with the datasets up to a limit, and its memory per dataset. */
static fsdpck_status check_memory(const hdf5_description *d, fsdpck_error *err)
{
    const uint64_t count = catalogue_tensor_count(d->cat) + strtab_count(&d->names->groups);
    const uint64_t cache = d->level > 0 ? CACHE_NBYTES_MOST : count * CACHE_NBYTES_EACH;
    const uint64_t nbytes = LIBRARY_NBYTES + count * LIBRARY_NBYTES_EACH +
                            (cache < CACHE_NBYTES_MOST ? cache : CACHE_NBYTES_MOST) +
                            d->names->paths.text.count + 2 * (uint64_t)d->objects->nbytes;
    void *p = budget_alloc(NULL, nbytes, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    budget_free(NULL, p, nbytes);
    return FSDPCK_OK;
}

/* The library's error handler of this thread: it must print nothing. */
typedef struct silence {
    H5E_auto2_t print;
    void *ctx;
    bool begun;
} silence;

/* Enter and leave the library: each step is one user of it. */
static void enter(silence *was)
{
    hdf5_lock();
    /* The library would close an unclosed object again at exit, which crashes. */
    (void)H5dont_atexit();
    was->begun = H5open() >= 0 && H5Eget_auto2(H5E_DEFAULT, &was->print, &was->ctx) >= 0 &&
                 H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0;
}

static void leave(const silence *was)
{
    if (was->begun)
        (void)H5Eset_auto2(H5E_DEFAULT, was->print, was->ctx);
    hdf5_unlock();
}

static hdf5_describe_state *new_describing(const hdf5_description *d)
{
    hdf5_describe_state *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->d = *d;
    s->driver = (hdf5_driver){
        .fd = d->fd, .nowhere = nowhere, .raw = take_place, .ctx = s, .error = &s->error};
    s->file = s->root = s->dataset = H5I_INVALID_HID;
    s->link_list = s->group_list = s->dataset_list = H5I_INVALID_HID;
    s->access_list = s->create_list = H5I_INVALID_HID;
    s->text_type = s->scalar = H5I_INVALID_HID;
    return s;
}

/* The library must be able to close everything: s->error holds the failure. */
static fsdpck_status close_describing(hdf5_describe_state *s, fsdpck_error *err)
{
    s->driver.hides_errors = true;
    const fsdpck_status st = close_all(s) < 0 || s->error != 0 ? fail(s, NULL, err) : FSDPCK_OK;
    hdf5_driver_release(&s->driver);
    free(s);
    return st;
}

static fsdpck_status begin(const hdf5_description *d, uint64_t *offsets, hdf5_describe_state **out,
                           fsdpck_error *err)
{
    RETURN_IF(check_memory(d, err));
    hdf5_describe_state *s = new_describing(d);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    const fsdpck_status st = put_all(s, offsets, err);
    if (st == FSDPCK_OK) {
        *out = s;
        return FSDPCK_OK;
    }
    const fsdpck_status same = close_describing(s, NULL);
    (void)same;
    return st;
}

fsdpck_status hdf5_describe_begin(const hdf5_description *d, uint64_t *offsets,
                                  hdf5_describe_state **out, fsdpck_error *err)
{
    silence was;
    *out = NULL;
    enter(&was);
    const fsdpck_status st = begin(d, offsets, out, err);
    leave(&was);
    return st;
}

fsdpck_status hdf5_describe_chunk(hdf5_describe_state *s, size_t tensor, const uint64_t *corner,
                                  uint32_t mask, uint64_t nbytes, uint64_t *offset_bytes,
                                  fsdpck_error *err)
{
    silence was;
    enter(&was);
    const fsdpck_status st = put_chunk(s, tensor, corner, mask, nbytes, err);
    *offset_bytes = s->told_at;
    leave(&was);
    return st;
}

fsdpck_status hdf5_describe_end(hdf5_describe_state *s, fsdpck_error *err)
{
    silence was;
    if (s == NULL)
        return FSDPCK_OK;
    enter(&was);
    const fsdpck_status st = close_describing(s, err);
    leave(&was);
    return st;
}

fsdpck_status hdf5_describe(const hdf5_description *d, uint64_t *offsets, fsdpck_error *err)
{
    hdf5_describe_state *s;
    RETURN_IF(hdf5_describe_begin(d, offsets, &s, err));
    return hdf5_describe_end(s, err);
}
