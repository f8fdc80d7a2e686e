/* dcp_tables.c: an open DCP folder in tables that the ranks of one host share; only one of them reads
 * `.metadata`. */
#include "base/table_file.h"
#include "formats/dcp/dcp_internal.h"

fsdpck_status dcp_tables(void *self, table_file *f, fsdpck_error *err)
{
    dcp_folder *d = self;
    vec *const tables[] = {&d->repeats, &d->ends, &d->inside, &d->flat_boxes};
    strtab *const names[] = {&d->names.paths, &d->names.transforms, &d->item_tensor_names};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        RETURN_IF(table_file_vec(f, tables[i], err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        RETURN_IF(table_file_strtab(f, names[i], err));
    RETURN_IF(table_file_bytes(f, &d->marks, sizeof d->marks, err));
    return table_file_bytes(f, &d->repaired, sizeof d->repaired, err);
}

/* As the rank that read the metadata found them; each rank opens them when it reads them. Where hosts have files of
 * their own, ranks may too. */
static fsdpck_status add_blobs(dcp_folder *d, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_file_count(d->cat); i++) {
        cat_file *f = catalogue_file(d->cat, i);
        const char *name = catalogue_name(d->cat, f->path);
        path_kind kind;
        uint32_t index;
        if (d->dir.remote != NULL)
            RETURN_IF(path_identify(&d->dir, name, &kind, NULL, &f->identity, NULL, err));
        RETURN_IF(file_set_add(&d->blobs, name, &index, err));
        file_set_expect(&d->blobs, index, f->nbytes, f->identity);
    }
    return FSDPCK_OK;
}

fsdpck_status dcp_open_tables(const open_request *req, catalogue *cat, table_file *f, void **self,
                              fsdpck_error *err)
{
    dcp_folder *d;
    RETURN_IF(dcp_folder_new(req, cat, &d, err));
    fsdpck_status st = dcp_tables(d, f, err);
    if (st == FSDPCK_OK)
        st = add_blobs(d, err);
    if (st != FSDPCK_OK) {
        dcp_folder_free(d);
        return st;
    }
    *self = d;
    return FSDPCK_OK;
}
