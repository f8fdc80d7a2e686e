#include "state/target.h"

#include <stdlib.h>

void target_init(target *t, budget *owner)
{
    *t = (target){0};
    catalogue_init(&t->cat, owner);
    t->from = VEC_OF(uint32_t, owner);
    t->views = VEC_OF(target_view, owner);
    t->strides = VEC_OF(uint64_t, owner);
    t->literals = VEC_OF(target_literal, owner);
    t->lates = VEC_OF(target_late, owner);
    t->rank_roots = VEC_OF(value, owner);
    t->flat_params = VEC_OF(uint32_t, owner);
    t->flat_states = VEC_OF(uint32_t, owner);
    t->dropped = VEC_OF(target_dropped, owner);
    t->world_size = 1;
    t->text.limit_bytes = SIZE_MAX / 2; /* headers and directories grow with the catalogue alone */
}

fsdpck_status target_add_literal_at(target *t, uint32_t file, uint64_t offset_bytes,
                                    uint64_t text_at, uint64_t nbytes, fsdpck_error *err)
{
    target_literal *lit = vec_push(&t->literals, err);
    if (lit == NULL)
        return FSDPCK_LIMIT;
    *lit = (target_literal){
        .file = file,
        .offset_bytes = offset_bytes,
        .nbytes = nbytes,
        .text_at = text_at,
    };
    return FSDPCK_OK;
}

fsdpck_status target_add_literal(target *t, uint32_t file, uint64_t offset_bytes, const void *bytes,
                                 uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(target_add_literal_at(t, file, offset_bytes, t->text.nbytes, nbytes, err));
    text_append(&t->text, bytes, (size_t)nbytes);
    return text_check(&t->text, err);
}

void target_release(target *t)
{
    if (t->free_writer_state != NULL)
        t->free_writer_state(t->writer_state);
    catalogue_release(&t->cat);
    vec_release(&t->from);
    vec_release(&t->views);
    vec_release(&t->strides);
    vec_release(&t->literals);
    vec_release(&t->lates);
    vec_release(&t->rank_roots);
    vec_release(&t->flat_params);
    vec_release(&t->flat_states);
    vec_release(&t->dropped);
    text_release(&t->text);
    free(t->chunk_crc);
    free(t->chunk_digest);
    *t = (target){0};
}
