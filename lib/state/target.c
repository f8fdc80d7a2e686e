#include "state/target.h"

#include <stdlib.h>

#include "base/crc.h"
#include "base/text.h"

void target_init(target *t, budget *owner)
{
    *t = (target){0};
    catalogue_init(&t->cat, owner);
    t->from = VEC_OF(uint32_t, owner);
    t->views = VEC_OF(target_alias, owner);
    t->strides = VEC_OF(uint64_t, owner);
    t->literals = VEC_OF(target_constant, owner);
    t->lates = VEC_OF(target_deferred, owner);
    t->rank_roots = VEC_OF(value, owner);
    t->flat_params = VEC_OF(uint32_t, owner);
    t->flat_states = VEC_OF(uint32_t, owner);
    t->dropped = VEC_OF(target_dropped, owner);
    t->linked = VEC_OF(target_dropped, owner);
    t->tied = VEC_OF(uint32_t, owner);
    strtab_init(&t->owners, owner);
    t->new_param_names = VEC_OF(value, owner);
    t->world_size = 1;
    t->text.limit_bytes = SIZE_MAX / 2; /* headers and directories grow only with the catalogue */
}

fsdpck_status target_add_constant_at(target *t, uint32_t file, uint64_t offset_bytes,
                                     uint64_t text_at, uint64_t nbytes, fsdpck_error *err)
{
    return vec_add(&t->literals,
                   &(target_constant){
                       .file = file,
                       .offset_bytes = offset_bytes,
                       .nbytes = nbytes,
                       .text_at = text_at,
                   },
                   err);
}

fsdpck_status target_add_constant(target *t, uint32_t file, uint64_t offset_bytes,
                                  const void *bytes, uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(target_add_constant_at(t, file, offset_bytes, t->text.nbytes, nbytes, err));
    text_append(&t->text, bytes, (size_t)nbytes);
    return text_check(&t->text, err);
}

/* ---- sums ---- */

/* The sum over distinct boxes; `seen`: 2^bits entries, all 0. */
static uint64_t sum_boxes(const target *t, const cat_tensor *ct, uint32_t *seen, uint64_t mask)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ct->nchunks; i++) {
        const uint64_t chunk = ct->first_chunk + i;
        uint64_t at = catalogue_chunk_hash(&t->cat, chunk) & mask;
        if (catalogue_chunk(&t->cat, chunk)->place == LOCATION_EMPTY)
            continue;
        while (seen[at] != 0 &&
               !catalogue_chunk_is_same(&t->cat, ct->first_chunk + seen[at] - 1, chunk))
            at = (at + 1) & mask;
        if (seen[at] == 0)
            sum ^= t->chunk_digest[chunk];
        seen[at] = i + 1;
    }
    return sum;
}

fsdpck_status target_tensor_crc(const target *t, uint64_t tensor, uint64_t *crc, fsdpck_error *err)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    uint64_t places = 4;
    *crc = crc64_zeros(catalogue_tensor_nbytes(&t->cat, tensor));
    if (ct->nchunks == 1) {
        *crc ^= t->chunk_digest[ct->first_chunk];
        return FSDPCK_OK;
    }
    while (places < 2 * (uint64_t)ct->nchunks)
        places *= 2;
    uint32_t *seen = calloc(places, sizeof *seen);
    if (seen == NULL)
        return error_set_nomem(err, places * sizeof *seen);
    *crc ^= sum_boxes(t, ct, seen, places - 1);
    free(seen);
    return FSDPCK_OK;
}

uint64_t target_file_crc(const target *t, size_t file)
{
    return t->file_crc[file] ^ crc64_zeros(catalogue_file(&t->cat, file)->nbytes);
}

void target_add_file_crc(const target *t, uint32_t file, uint64_t offset_bytes, const void *bytes,
                         uint64_t nbytes)
{
    if (!t->want_file_crc || nbytes == 0)
        return;
    const uint64_t behind = catalogue_file(&t->cat, file)->nbytes - offset_bytes - nbytes;
    (void)__atomic_fetch_xor(&t->file_crc[file], crc64_shift(crc64_raw(0, bytes, nbytes), behind),
                             __ATOMIC_RELAXED);
}

value target_param_name(const target *t, const char *name, size_t nbytes)
{
    const uint32_t id =
        strtab_count(&t->owners) == 0 ? STRTAB_NONE : strtab_find(&t->owners, name, nbytes);
    return id == STRTAB_NONE ? VALUE_OF_NONE : *VEC_AT(&t->new_param_names, const value, id);
}

bool target_keeps_index_text(const target *t, const char *key, size_t nbytes)
{
    uint64_t nelems = 0;
    if (!text_is(key, nbytes, "total_parameters"))
        return true;
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++)
        nelems += catalogue_tensor_nelems(&t->cat, i);
    return t->cat.origin.index_metadata->nelems == nelems;
}

void target_release(target *t)
{
    if (t->free_writer_state != NULL)
        t->free_writer_state(t->writer_state);
    catalogue_release(&t->cat);
    VEC_RELEASE_ALL(&t->from, &t->views, &t->strides, &t->literals, &t->lates, &t->rank_roots,
                    &t->flat_params, &t->flat_states, &t->dropped, &t->linked, &t->tied);
    strtab_release(&t->owners);
    vec_release(&t->new_param_names);
    text_release(&t->text);
    filter_release(&t->pack);
    free(t->chunk_crc);
    free(t->chunk_digest);
    free(t->file_crc);
    *t = (target){0};
}
