#include "state/cat_metadata.h"

#include <string.h>

void cat_metadata_init(cat_metadata *m, budget *owner)
{
    *m = (cat_metadata){.text_of = VEC_OF(uint32_t, owner), .ties = VEC_OF(uint32_t, owner)};
    strtab_init(&m->keys, owner);
    strtab_init(&m->texts, owner);
}

fsdpck_status cat_metadata_add(cat_metadata *m, const char *key, size_t key_nbytes,
                               const char *text, size_t nbytes, fsdpck_error *err)
{
    const size_t known = strtab_count(&m->keys);
    uint32_t id, id_of_text;
    RETURN_IF(strtab_intern(&m->keys, key, key_nbytes, &id, err));
    RETURN_IF(strtab_intern(&m->texts, text, nbytes, &id_of_text, err));
    if (id == known)
        return vec_add(&m->text_of, &id_of_text, err);
    uint32_t *kept = VEC_AT(&m->text_of, uint32_t, id);
    if (*kept != id_of_text)
        *kept = STRTAB_NONE;
    return FSDPCK_OK;
}

fsdpck_status cat_metadata_add_tie(cat_metadata *m, const char *key, size_t nbytes,
                                   fsdpck_error *err)
{
    const uint32_t id = strtab_find(&m->keys, key, nbytes);
    return id == STRTAB_NONE || cat_metadata_is_tie(m, id) ? FSDPCK_OK
                                                           : vec_add(&m->ties, &id, err);
}

bool cat_metadata_is_tie(const cat_metadata *m, uint32_t key)
{
    for (size_t i = 0; i < m->ties.count; i++)
        if (*VEC_AT(&m->ties, const uint32_t, i) == key)
            return true;
    return false;
}

fsdpck_status cat_metadata_copy(cat_metadata *m, const cat_metadata *from, fsdpck_error *err)
{
    for (uint32_t key = 0; key < cat_metadata_count(from); key++) {
        size_t nbytes, text_nbytes;
        const char *name = cat_metadata_key(from, key, &nbytes);
        const char *text = cat_metadata_text(from, key, &text_nbytes);
        RETURN_IF(cat_metadata_add(m, name, nbytes, text == NULL ? "" : text, text_nbytes, err));
        if (text == NULL)
            *VEC_AT(&m->text_of, uint32_t, key) = STRTAB_NONE;
    }
    return vec_add_n(&m->ties, from->ties.items, from->ties.count, err);
}

bool cat_metadata_is_same(const cat_metadata *a, uint32_t key_a, const cat_metadata *b,
                          uint32_t key_b)
{
    size_t a_nbytes, b_nbytes;
    const char *of_a = cat_metadata_text(a, key_a, &a_nbytes);
    const char *of_b = cat_metadata_text(b, key_b, &b_nbytes);
    if (of_a == NULL || of_b == NULL)
        return of_a == of_b;
    return a_nbytes == b_nbytes && memcmp(of_a, of_b, a_nbytes) == 0;
}

void cat_metadata_keep_same(cat_metadata *m, const cat_metadata *other)
{
    for (uint32_t key = 0; key < cat_metadata_count(m); key++) {
        size_t nbytes;
        const char *name = cat_metadata_key(m, key, &nbytes);
        const uint32_t id = strtab_find(&other->keys, name, nbytes);
        if (id != STRTAB_NONE && !cat_metadata_is_same(m, key, other, id))
            *VEC_AT(&m->text_of, uint32_t, key) = STRTAB_NONE;
    }
}

uint32_t cat_metadata_count(const cat_metadata *m)
{
    return (uint32_t)m->text_of.count;
}

const char *cat_metadata_key(const cat_metadata *m, uint32_t key, size_t *nbytes)
{
    *nbytes = strtab_nbytes(&m->keys, key);
    return strtab_text(&m->keys, key);
}

const char *cat_metadata_text(const cat_metadata *m, uint32_t key, size_t *nbytes)
{
    const uint32_t text = *VEC_AT(&m->text_of, const uint32_t, key);
    *nbytes = text == STRTAB_NONE ? 0 : strtab_nbytes(&m->texts, text);
    return text == STRTAB_NONE ? NULL : strtab_text(&m->texts, text);
}

void cat_metadata_release(cat_metadata *m)
{
    strtab_release(&m->keys);
    strtab_release(&m->texts);
    vec_release(&m->text_of);
    vec_release(&m->ties);
}
