/* check_extent.c: sizes, order and names of extents. */
#include <stdio.h>

#include "check/check_internal.h"

bool check_is_finding(fsdpck_status st)
{
    return st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED;
}

void check_add_path(const check *c, uint32_t file, fsdpck_error *err)
{
    const catalogue *cat = c->r->cat;
    if (c->r->folder == NULL) {
        error_path(err, c->r->path);
    } else if (file < catalogue_file_count(cat)) {
        char path[sizeof err->path];
        snprintf(path, sizeof path, "%s/%s", c->r->folder,
                 catalogue_name(cat, catalogue_file(cat, file)->path));
        error_path(err, path);
    }
}

void check_add_context(const check *c, uint64_t chunk, fsdpck_error *err)
{
    const catalogue *cat = c->r->cat;
    const cat_chunk *k = catalogue_chunk(cat, chunk);
    error_tensor(err, catalogue_name(cat, catalogue_tensor(cat, k->tensor)->name));
    check_add_path(c, k->file, err);
}

uint64_t check_chunk_nbytes(const catalogue *cat, uint64_t chunk)
{
    uint64_t sizes[NDIM_MAX];
    const cat_tensor *t = catalogue_tensor(cat, catalogue_chunk(cat, chunk)->tensor);
    catalogue_chunk_box(cat, chunk, NULL, sizes);
    return box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
}

int check_compare_extents(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    ORDER_BY(a->file, b->file);
    ORDER_BY(a->offset_bytes, b->offset_bytes);
    ORDER_BY(b->nbytes, a->nbytes);
    ORDER_BY(a->at_bytes, b->at_bytes);
    return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}
