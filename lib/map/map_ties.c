/* map_ties.c: on import, tensors that the folder of a model with tied embeddings omits: the `tied` lines of a map. */
#include <string.h>

#include "map/map_adapter_internal.h"

/* The output layer of transformers' classifiers: they have no other. */
static const char score[] = "score.weight";

static uint32_t find_made(const map_adapter *v, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&v->out->names, name, nbytes);
    for (uint32_t i = 0; id != STRTAB_NONE && i < catalogue_tensor_count(v->out); i++)
        if (catalogue_tensor(v->out, i)->name == id)
            return i;
    return CAT_NONE;
}

/* The tensor of the first catalogue that has only got another name; CAT_NONE: it was made otherwise. */
static uint32_t find_renamed(const map_adapter *v, uint32_t made)
{
    for (uint32_t i = 0; i < v->renamed.count; i++)
        if (*VEC_AT(&v->renamed, const uint32_t, i) == made + 1)
            return i;
    return CAT_NONE;
}

static fsdpck_status add_tied(map_adapter *v, const map_tie *tie, bool ties, fsdpck_error *err)
{
    const strtab *texts = &v->m->texts;
    const char *name = strtab_text(texts, tie->name), *same_as = strtab_text(texts, tie->same_as);
    const uint32_t first = find_made(v, same_as, strtab_nbytes(texts, tie->same_as));
    const uint32_t from = first == CAT_NONE ? CAT_NONE : find_renamed(v, first);
    uint32_t made;
    if (first == CAT_NONE || find_made(v, name, strtab_nbytes(texts, tie->name)) != CAT_NONE)
        return FSDPCK_OK;
    if (!ties || from == CAT_NONE) {
        text_printf(&v->untied, "%s'%s'", v->untied.nbytes > 0 ? ", " : "", name);
        return text_check(&v->untied, err);
    }
    const cat_tensor *t = catalogue_tensor(v->base, from);
    RETURN_IF(catalogue_add_tensor(v->out, name, strtab_nbytes(texts, tie->name), (dtype)t->dtype,
                                   t->ndim, catalogue_shape(v->base, from), &made, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = catalogue_tensor(v->out, first)->flags;
    m->python = t->python;
    m->spec = t->spec;
    v->tied_count++;
    text_printf(&v->tied, "%s%s = %s", v->tied.nbytes > 0 ? ", " : "", name, same_as);
    RETURN_IF(text_check(&v->tied, err));
    return map_adapter_add_same_chunks(v, from, made, err);
}

const char *map_adapter_tied(const map_adapter *v, size_t *count)
{
    *count = v->tied_count;
    return v->tied.text == NULL ? "" : v->tied.text;
}

const char *map_adapter_untied(const map_adapter *v)
{
    return v->untied.text == NULL ? "" : v->untied.text;
}

fsdpck_status map_add_ties(map_adapter *v, fsdpck_error *err)
{
    const tensor_map *m = v->m;
    bool by_default;
    const bool ties = model_ties_of(&m->stated, &by_default) == MODEL_TIES_YES;
    if (m->forward == NULL || find_made(v, score, strlen(score)) != CAT_NONE)
        return FSDPCK_OK;
    for (size_t i = 0; i < m->ties.count; i++)
        RETURN_IF(add_tied(v, VEC_AT(&m->ties, const map_tie, i), ties, err));
    return FSDPCK_OK;
}
