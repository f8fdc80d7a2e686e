#include "state/catalogue_tables.h"

fsdpck_status catalogue_tables(catalogue *c, table_file *f, fsdpck_error *err)
{
    vec *const tables[] = {&c->files,  &c->tensors, &c->chunks,      &c->objects,
                           &c->shapes, &c->dims32,  &c->dims64,      &c->meshes,
                           &c->specs,  &c->by_name, &c->passed_over, &c->pool.cells};
    if (f->writes && (!c->sealed || c->origin.metadata != NULL || c->origin.index_metadata != NULL))
        return FAIL(err, UNSUPPORTED, NONE, "catalogue cannot be shared");
    RETURN_IF(table_file_strtab(f, &c->names, err));
    RETURN_IF(table_file_strtab(f, &c->paths, err));
    RETURN_IF(table_file_strtab(f, &c->folders, err));
    RETURN_IF(table_file_strtab(f, &c->pool.strings, err));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        RETURN_IF(table_file_vec(f, tables[i], err));
    RETURN_IF(table_file_bytes(f, &c->root, sizeof c->root, err));
    RETURN_IF(table_file_bytes(f, &c->like, sizeof c->like, err));
    RETURN_IF(table_file_bytes(f, &c->origin, sizeof c->origin, err));
    c->sealed = 1;
    return FSDPCK_OK;
}
