#include "open/merged_ties.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/model_embedding.h"

/* lm_head, or a weight with the name of an output projection and the shape of the embedding. */
static bool is_head(const catalogue *c, uint32_t embedding, uint32_t tensor)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    return model_is_head(c, tensor) ||
           (tensor != embedding &&
            lora_is_head_weight(catalogue_name(c, name), catalogue_name_nbytes(c, name)) &&
            shape_equal(catalogue_shape(c, tensor), catalogue_tensor(c, tensor)->ndim,
                        catalogue_shape(c, embedding), catalogue_tensor(c, embedding)->ndim));
}

/* The one with the shortest name, as of embeddings. */
static uint32_t find_head(const catalogue *c, uint32_t embedding)
{
    uint32_t head = CAT_NONE;
    size_t least = SIZE_MAX;
    for (uint32_t i = 0; i < catalogue_tensor_count(c) && embedding != CAT_NONE; i++) {
        const size_t nbytes = catalogue_name_nbytes(c, catalogue_tensor(c, i)->name);
        if (nbytes >= least || !is_head(c, embedding, i))
            continue;
        head = i;
        least = nbytes;
    }
    return head;
}

/* config.json in the folder, else in the folder around it, as trainers save it beside the steps. */
static fsdpck_status read_config(const fsdpck_checkpoint *base, model_config *config)
{
    path_kind kind;
    *config = (model_config){0};
    if (base->probe.is_folder)
        RETURN_IF(model_config_read(&base->probe.dir, config, NULL));
    if (!base->probe.is_folder || config->text != NULL)
        return FSDPCK_OK;
    char *path = folder_path_join(base->path, "../config.json");
    if (path == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = path_probe(NULL, path, &kind, NULL, NULL);
    if (st == FSDPCK_OK && kind == PATH_FILE)
        st = model_config_read_file(path, config, NULL);
    free(path);
    return st;
}

/* The weights that config.json ties, for merge_list.embedding and head. */
void merged_find_tied(const fsdpck_checkpoint *base, merge_list *list)
{
    model_config config;
    const bool is_read = read_config(base, &config) == FSDPCK_OK;
    list->is_untold = !is_read || config.text == NULL;
    if (list->is_untold || config.ties == MODEL_TIES_YES ||
        config.stated_ties.nested.ties == MODEL_TIES_YES) {
        list->embedding = model_embedding_find(&base->cat, &config, &list->is_certain);
        list->head = find_head(&base->cat, list->embedding);
    }
    model_config_release(&config);
}

/* --- names that the files lack --- */

static uint32_t find_name(const vec *names, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < names->count; i++) {
        const lora_input *in = VEC_AT(names, const lora_input, i);
        if (text_is(in->name, in->nbytes, name) && strlen(name) == nbytes)
            return in->tensor;
    }
    return CAT_NONE;
}

/* Whether the base model has modules in this one: an output projection is inside of it then, as lm_head.decoder. */
static bool has_modules(const vec *names, const char *path, size_t nbytes)
{
    for (size_t i = 0; i < names->count; i++) {
        const lora_input *in = VEC_AT(names, const lora_input, i);
        if (in->nbytes > nbytes && memcmp(in->name, path, nbytes) == 0 && in->name[nbytes] == '.' &&
            memchr(in->name + nbytes + 1, '.', in->nbytes - nbytes - 1) != NULL)
            return true;
    }
    return false;
}

typedef struct tied_names {
    const vec *names; /* lora_input */
    strtab *texts;
    vec tensors; /* uint32_t by text */
} tied_names;

/* PATH.KEY for a tensor, unless the base model has that name. */
static fsdpck_status add_name(tied_names *t, const char *path, size_t nbytes, const char *key,
                              uint32_t tensor, fsdpck_error *err)
{
    text_buf name = {0};
    uint32_t id;
    const size_t known = strtab_count(t->texts);
    text_append(&name, path, nbytes);
    text_puts(&name, key);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK && find_name(t->names, name.text, name.nbytes) == CAT_NONE)
        st = strtab_intern(t->texts, name.text, name.nbytes, &id, err);
    text_release(&name);
    if (st == FSDPCK_OK && strtab_count(t->texts) > known)
        st = vec_add(&t->tensors, &tensor, err);
    return st;
}

/* The weight of an output projection is that of the embedding, and the bias of P.decoder is P.bias. */
static fsdpck_status add_path(tied_names *t, const char *path, size_t nbytes, uint32_t embedding,
                              fsdpck_error *err)
{
    static const char decoder[] = ".decoder";
    text_buf bias = {0};
    RETURN_IF(add_name(t, path, nbytes, ".weight", embedding, err));
    if (!text_ends_with(path, nbytes, decoder))
        return FSDPCK_OK;
    text_append(&bias, path, nbytes - sizeof decoder + 1);
    text_puts(&bias, ".bias");
    fsdpck_status st = text_check(&bias, err);
    const uint32_t tensor =
        st == FSDPCK_OK ? find_name(t->names, bias.text, bias.nbytes) : CAT_NONE;
    text_release(&bias);
    return tensor == CAT_NONE ? st : add_name(t, path, nbytes, ".bias", tensor, err);
}

/* Names of one tensor of an adapter: "shared" is the embedding of an encoder and of a decoder. */
static fsdpck_status add_names(tied_names *t, const lora_input *in, uint32_t embedding,
                               bool is_shared, fsdpck_error *err)
{
    const char *path;
    size_t n = lora_head_path(in->name, in->nbytes, &path);
    if (n > 0 && !has_modules(t->names, path, n))
        return add_path(t, path, n, embedding, err);
    n = is_shared ? lora_copy_path(in->name, in->nbytes, &path) : 0;
    return n > 0 ? add_path(t, path, n, embedding, err) : FSDPCK_OK;
}

static bool is_shared(const catalogue *c, uint32_t embedding)
{
    static const char *const shared[] = {"shared"};
    const uint32_t name = catalogue_tensor(c, embedding)->name;
    return lora_is_weight_of(catalogue_name(c, name), catalogue_name_nbytes(c, name), shared, 1);
}

fsdpck_status merged_add_tied(const merge_list *list, const catalogue *base,
                              const merge_request *requests, size_t count, vec *names,
                              strtab *texts, size_t *added, fsdpck_error *err)
{
    tied_names t = {names, texts, VEC_OF(uint32_t, names->owner)};
    fsdpck_status st = FSDPCK_OK;
    *added = 0;
    if (list->embedding == CAT_NONE || !list->is_certain || list->is_untold)
        return FSDPCK_OK;
    const bool shared = is_shared(base, list->embedding);
    for (size_t i = 0; i < count; i++) {
        const merge_checkpoint *beside = requests[i].beside;
        for (size_t j = 0; beside != NULL && j < beside->count && st == FSDPCK_OK; j++)
            st = add_names(&t, &beside->inputs[j], list->embedding, shared, err);
    }
    for (uint32_t i = 0; i < t.tensors.count && st == FSDPCK_OK; i++) {
        const lora_input made = {strtab_text(texts, i), strtab_nbytes(texts, i),
                                 *VEC_AT(&t.tensors, const uint32_t, i)};
        st = vec_add(names, &made, err);
    }
    *added = t.tensors.count;
    vec_release(&t.tensors);
    return st;
}

/* --- the warning --- */

/* Whether the output differs from the trained model by a step of one of two weights. alone: nothing changes the other one. */
static bool differs(const merge_list *list, const merge_target *t, bool alone)
{
    for (uint64_t k = t->first_step; k < t->first_step + t->step_count; k++) {
        const merge_step *s = VEC_AT(&list->steps, const merge_step, k);
        const bool in_one = s->together == MERGE_ALONE;
        if (s->kind == MERGE_ROWS ? alone || (in_one && list->head == CAT_NONE) : in_one)
            return true;
    }
    return false;
}

/* The targets of a tensor: a second name that the files lack may have become one. */
static size_t count_targets(const merge_list *list, uint32_t tensor, bool changed)
{
    size_t count = 0;
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        count += t->tensor == tensor && (!changed || t->step_count > 0);
    }
    return count;
}

/* The first weight with a product or another module that config.json ties to another one, or with tokens that the other
 * one lacks; NULL: none. */
static const merge_target *tied_by_config(const merge_list *list)
{
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        const bool is_embedding = t->tensor == list->embedding;
        if (!is_embedding && (list->head == CAT_NONE || t->tensor != list->head))
            continue;
        const bool alone =
            list->embedding != CAT_NONE && list->head != CAT_NONE &&
            count_targets(list, is_embedding ? list->head : list->embedding, true) == 0;
        if (differs(list, t, alone))
            return t;
    }
    return NULL;
}

static bool replaces_alone(const merge_list *list, const merge_target *t)
{
    for (uint64_t k = t->first_step; k < t->first_step + t->step_count; k++) {
        const merge_step *s = VEC_AT(&list->steps, const merge_step, k);
        if (s->unties && s->together == MERGE_ALONE)
            return true;
    }
    return false;
}

/* PEFT trains a copy of "shared", which neither encoder nor decoder uses: they keep the embedding of the base model, and a loader
 * of the output would give them the copy. Source: PEFT 0.21.2 with T5 of transformers 5.23.0. */
static fsdpck_status check_shared(const merge_list *list, fsdpck_error *err)
{
    static const char *const shared[] = {"shared"};
    const char *found = NULL, *path;
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        const char *name = strtab_text(&list->names, t->name);
        const size_t nbytes = strtab_nbytes(&list->names, t->name);
        if (lora_copy_path(name, nbytes, &path) > 0)
            return FSDPCK_OK;
        if (t->tensor == list->embedding && lora_is_weight_of(name, nbytes, shared, 1) &&
            replaces_alone(list, t))
            found = name;
    }
    return found == NULL
               ? FSDPCK_OK
               : FAIL_WITH(
                     err, UNSUPPORTED, LORA_TIED,
                     ("the adapter replaces '%s', but in the trained model the encoder and the "
                      "decoder keep "
                      "the embedding of the base model, for which its files have no other name",
                      found),
                     (tensor, found), (next, "merge it with PEFT"));
}

fsdpck_status merged_check_tied(const merge_list *list, fsdpck_error *err)
{
    if (list->embedding != CAT_NONE && list->is_certain && !list->is_untold)
        RETURN_IF(check_shared(list, err));
    if (list->embedding == CAT_NONE || !list->is_certain || list->is_untold ||
        list->head != CAT_NONE || count_targets(list, list->embedding, false) != 1)
        return FSDPCK_OK;
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        for (uint64_t k = t->first_step; k < t->first_step + t->step_count; k++) {
            const merge_step *s = VEC_AT(&list->steps, const merge_step, k);
            if (t->tensor == list->embedding && s->unties && s->together == MERGE_ALONE)
                return FAIL_WITH(
                    err, UNSUPPORTED, LORA_TIED,
                    ("the adapter replaces '%s', which config.json ties to an output projection "
                     "(tie_word_embeddings) that the base model's files lack",
                     strtab_text(&list->names, t->name)),
                    (tensor, strtab_text(&list->names, t->name)),
                    (next, "merge it with PEFT, or write \"tie_word_embeddings\": false into "
                           "config.json of the base model if the model has no output projection"));
        }
    }
    return FSDPCK_OK;
}

#define UNTIE_CONFIG "write \"tie_word_embeddings\": false into config.json of the output"

/* ensure_weight_tying has no effect on parameters, and none on tokens of the output projection alone. */
static const char *advice(const merge_request *requests, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const lora_config *config = requests[i].config;
        bool is_parameter = false;
        if (config == NULL || lora_names_match(&config->target_parameters, name, strlen(name),
                                               &is_parameter, NULL) != FSDPCK_OK)
            continue;
        if (config->ties_tokens || config->has_tokens || is_parameter)
            return "if the outputs of the model differ, merge into a base model with both weights, "
                   "whose config.json has \"tie_word_embeddings\": false";
    }
    return "train again with ensure_weight_tying if the outputs of the model differ";
}

/* One of two tied weights that the base model's files have. */
static void warn_pair(const fsdpck_checkpoint *c, const merge_list *list, const char *next)
{
    const char *tied = strtab_text(&list->names, list->tied);
    const char *to = strtab_text(&list->names, list->tied_to);
    if (list->by_bytes)
        log_warn(
            &c->ctx->log, FSDPCK_FINDING_LORA_TIED,
            "put config.json of the model into SRC; if it ties the weights, both have all changes",
            "the adapter changes '%s', and '%s' has the same values in the base model, but no "
            "config.json says whether the model ties them: each has its own changes only",
            tied, to);
    else if (list->unties)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED, UNTIE_CONFIG,
                 "the adapter replaces '%s', which %s '%s': the weights differ in the output, as "
                 "after merge_and_unload",
                 tied, list->by_config ? "config.json ties to" : "shares its storage with", to);
    else
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED, next,
                 "the adapter changes '%s', which %s '%s': the change is in both, as after "
                 "merge_and_unload, but the training had it in one",
                 tied, list->by_config ? "config.json ties to" : "shares its storage with", to);
}

/* A weight that config.json ties to one with another name or with other values. */
static void warn_config(const fsdpck_checkpoint *c, const merge_list *list, const merge_target *t,
                        const char *next)
{
    const char *name = strtab_text(&list->names, t->name);
    if (list->head != CAT_NONE)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED, UNTIE_CONFIG " if both weights are right",
                 "the adapter changes '%s', which config.json ties to another weight "
                 "(tie_word_embeddings), but the base model has both and they differ: each has its "
                 "own changes, as after merge_and_unload",
                 name);
    else if (count_targets(list, list->embedding, false) > 1)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED, UNTIE_CONFIG,
                 "the adapter replaces a weight that config.json ties to another one "
                 "(tie_word_embeddings), the first is '%s': the weights differ in the output, as "
                 "after merge_and_unload",
                 name);
    else
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED, next,
                 "the adapter changes '%s', which config.json ties to another weight "
                 "(tie_word_embeddings): the change is in both, as after merge_and_unload, but the "
                 "training had it in one",
                 name);
}

/* PEFT trains one of two tied weights, and transformers takes the other from it when it loads the result. */
void merged_warn_tied(const fsdpck_checkpoint *c, const merge_list *list,
                      const merge_request *requests, size_t count)
{
    if (list->tied != STRTAB_NONE) {
        warn_pair(c, list, advice(requests, count, strtab_text(&list->names, list->tied)));
        return;
    }
    const bool is_pair = list->pair == MERGE_PAIR_EQUAL || list->is_untold;
    const merge_target *t = is_pair ? NULL : tied_by_config(list);
    if (t != NULL)
        warn_config(c, list, t, advice(requests, count, strtab_text(&list->names, t->name)));
}
