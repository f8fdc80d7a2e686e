#include "state/catalogue_copy.h"

fsdpck_status catalogue_copy_frame(catalogue *to, const catalogue *from, fsdpck_error *err)
{
    uint32_t index;
    for (size_t i = 0; i < catalogue_file_count(from); i++) {
        const cat_file *f = catalogue_file(from, i);
        RETURN_IF(catalogue_add_file(to, catalogue_name(from, f->path),
                                     catalogue_name_nbytes(from, f->path), f->nbytes, f->rank,
                                     &index, err));
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
