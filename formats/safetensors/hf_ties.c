#include "formats/safetensors/hf_ties.h"

#include <stdlib.h>
#include <string.h>

#include "state/model_ties.h"

#define CONFIG_NBYTES_MAX (UINT64_C(16) << 20)

typedef struct hf_fill {
    char *name, *twin; /* free()d */
} hf_fill;

void hf_ties_init(hf_ties *t, const open_request *req)
{
    *t = (hf_ties){.req = req, .fills = VEC_OF(hf_fill, req->metadata), .by_config = -1};
}

void hf_ties_release(hf_ties *t)
{
    for (size_t i = 0; i < t->fills.count; i++) {
        free(VEC_AT(&t->fills, hf_fill, i)->name);
        free(VEC_AT(&t->fills, hf_fill, i)->twin);
    }
    vec_release(&t->fills);
}

/* An unreadable config is ignored: it is not part of the weights. */
static bool config_ties(const open_request *req)
{
    char *text = NULL;
    size_t nbytes = 0;
    if (file_read_whole(&req->probe->dir, "config.json", CONFIG_NBYTES_MAX, &text, &nbytes, NULL) !=
        FSDPCK_OK)
        return false;
    const bool tied = model_ties_read(text, nbytes) == MODEL_TIES_YES;
    free(text);
    return tied;
}

static bool is_there(const hf_index *ix, const uint8_t *seen, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&ix->tensors, name, nbytes);
    return id != STRTAB_NONE && seen[id];
}

static const char *alias_by_config(hf_ties *t, const hf_index *ix, const uint8_t *seen,
                                   const char *name)
{
    static const char *const embeddings[] = {"model.embed_tokens.weight", "transformer.wte.weight"};
    static const char head[] = "lm_head.weight";
    const char *twin = NULL;
    for (size_t i = 0; twin == NULL && i < sizeof embeddings / sizeof *embeddings; i++) {
        if (strcmp(name, head) == 0)
            twin = embeddings[i];
        else if (strcmp(name, embeddings[i]) == 0)
            twin = head;
        if (twin != NULL && !is_there(ix, seen, twin, strlen(twin)))
            twin = NULL;
    }
    if (twin != NULL && t->by_config < 0)
        t->by_config = config_ties(t->req);
    return t->by_config > 0 ? twin : NULL;
}

static const char *alias_by_model(const hf_ties *t, const hf_index *ix, const uint8_t *seen,
                                  const char *name, size_t nbytes, size_t *alias_nbytes)
{
    const char *twin = NULL;
    const open_names *known = t->req->names;
    for (unsigned k = 0; known != NULL; k++) {
        twin = known->twin(known->ctx, name, nbytes, k, alias_nbytes);
        if (twin == NULL || is_there(ix, seen, twin, *alias_nbytes))
            break;
    }
    return twin;
}

fsdpck_status hf_ties_fill(hf_ties *t, const hf_index *ix, const uint8_t *seen, uint32_t tensor,
                           bool *filled, fsdpck_error *err)
{
    const char *name = strtab_text(&ix->tensors, tensor);
    size_t nbytes = 0;
    const char *twin =
        alias_by_model(t, ix, seen, name, strtab_nbytes(&ix->tensors, tensor), &nbytes);
    const bool by_model = twin != NULL;
    if (twin == NULL)
        twin = alias_by_config(t, ix, seen, name);
    *filled = twin != NULL;
    if (twin == NULL)
        return FSDPCK_OK;
    hf_fill *f = vec_push(&t->fills, err);
    if (f == NULL)
        return FSDPCK_LIMIT;
    f->name = strdup(name);
    f->twin = strdup(twin);
    if (f->name == NULL || f->twin == NULL)
        return error_set_nomem(err, strlen(name));
    log_warn(&t->req->log, FSDPCK_FINDING_IDX_TIED,
             "omit the tensor with --exclude if the tie is not intended",
             "'%s' is in the index but in no file: using the data of '%s', because %s ties the two "
             "names",
             name, twin, by_model ? "the model" : "'config.json'");
    return FSDPCK_OK;
}

static fsdpck_status add_fill(const hf_fill *f, const st_files *s, catalogue *cat,
                              fsdpck_error *err)
{
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        for (size_t k = 0; k < h->entries.count; k++) {
            const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
            size_t nbytes;
            const char *name = st_header_name(h, e, &nbytes);
            if (nbytes == strlen(f->twin) && memcmp(name, f->twin, nbytes) == 0)
                return st_files_add_named(s, i, e, f->name, strlen(f->name), cat, err);
        }
    }
    return FAIL(err, INTERNAL, NONE, "alias of a tied tensor is missing");
}

fsdpck_status hf_ties_add(const hf_ties *t, const st_files *s, catalogue *cat, fsdpck_error *err)
{
    for (size_t i = 0; i < t->fills.count; i++)
        RETURN_IF(add_fill(VEC_AT(&t->fills, const hf_fill, i), s, cat, err));
    return FSDPCK_OK;
}
