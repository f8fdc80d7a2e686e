#include "state/catalogue_copy.h"

fsdpck_status catalogue_copy_frame(catalogue *to, const catalogue *from, fsdpck_error *err)
{
    uint32_t index;
    for (size_t i = 0; i < catalogue_file_count(from); i++) {
        const cat_file *f = catalogue_file(from, i);
        RETURN_IF(catalogue_add_file(to, catalogue_name(from, f->path),
                                     catalogue_name_nbytes(from, f->path), f->nbytes, f->rank,
                                     &index, err));
        catalogue_file(to, index)->identity = f->identity;
    }
    for (uint32_t i = 0; i < from->meshes.count; i++)
        RETURN_IF(catalogue_add_mesh(to, catalogue_mesh(from, i), &index, err));
    for (size_t i = 0; i < from->specs.count; i++)
        RETURN_IF(catalogue_add_spec(to, VEC_AT(&from->specs, const cat_spec, i), &index, err));
    to->origin = from->origin;
    for (size_t i = 0; i < from->passed_over.count; i++) {
        const cat_skipped *p = VEC_AT(&from->passed_over, const cat_skipped, i);
        RETURN_IF(catalogue_add_skipped(to, catalogue_name(from, p->name),
                                        catalogue_name_nbytes(from, p->name), p->is_object,
                                        p->nbytes, VALUE_OF_NONE, err));
    }
    return FSDPCK_OK;
}

/* Interned in order, so that texts keep their ids. */
static fsdpck_status copy_texts(strtab *to, const strtab *from, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(from); i++) {
        uint32_t id;
        RETURN_IF(strtab_intern(to, strtab_text(from, i), strtab_nbytes(from, i), &id, err));
        if (id != i)
            return FAIL(err, INTERNAL, NONE, "text is interned twice");
    }
    return FSDPCK_OK;
}

fsdpck_status catalogue_copy_without_chunks(catalogue *to, const catalogue *from, fsdpck_error *err)
{
    const struct {
        vec *to;
        const vec *from;
    } tables[] = {{&to->files, &from->files},           {&to->tensors, &from->tensors},
                  {&to->objects, &from->objects},       {&to->shapes, &from->shapes},
                  {&to->meshes, &from->meshes},         {&to->specs, &from->specs},
                  {&to->pool.cells, &from->pool.cells}, {&to->passed_over, &from->passed_over}};
    RETURN_IF(copy_texts(&to->names, &from->names, err));
    RETURN_IF(copy_texts(&to->paths, &from->paths, err));
    RETURN_IF(copy_texts(&to->folders, &from->folders, err));
    RETURN_IF(copy_texts(&to->pool.strings, &from->pool.strings, err));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        RETURN_IF(vec_add_n(tables[i].to, tables[i].from->items, tables[i].from->count, err));
    for (size_t i = 0; i < to->tensors.count; i++) {
        catalogue_tensor(to, i)->first_chunk = 0;
        catalogue_tensor(to, i)->nchunks = 0;
    }
    to->root = from->root;
    to->like = from->like;
    to->origin = from->origin;
    return FSDPCK_OK;
}
