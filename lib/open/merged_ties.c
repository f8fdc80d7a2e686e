#include "open/merged_ties.h"

#include "open/model_embedding.h"

/* Whether the adapter was trained with the embedding and the output projection as one. */
static bool ties_all(const merge_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (requests[i].config == NULL || !requests[i].config->ties_tokens)
            return false;
    return true;
}

/* The one with the shortest name, as of embeddings. */
static uint32_t find_head(const catalogue *c)
{
    uint32_t head = CAT_NONE;
    size_t least = SIZE_MAX;
    for (uint32_t i = 0; i < catalogue_tensor_count(c); i++) {
        const size_t nbytes = catalogue_name_nbytes(c, catalogue_tensor(c, i)->name);
        if (!model_is_head(c, i) || nbytes >= least)
            continue;
        head = i;
        least = nbytes;
    }
    return head;
}

/* The weights that config.json ties, for merge_list.embedding and head. */
void merged_find_tied(const fsdpck_checkpoint *base, merge_list *list)
{
    model_config config = {0};
    bool is_certain;
    if (!base->probe.is_folder)
        return;
    if (model_config_read(&base->probe.dir, &config, NULL) != FSDPCK_OK)
        config.ties = MODEL_TIES_UNKNOWN;
    if (config.ties == MODEL_TIES_YES || config.nested_ties == MODEL_TIES_YES) {
        list->embedding = model_embedding_find(&base->cat, &config, &is_certain);
        list->head = find_head(&base->cat);
    }
    model_config_release(&config);
}

/* Whether a step changes the weight; `with_tokens` false: another one than copies of tokens. */
static bool is_changed(const merge_list *list, uint32_t tensor, bool with_tokens)
{
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        for (uint64_t k = t->first_step; t->tensor == tensor && k < t->first_step + t->step_count;
             k++)
            if (with_tokens || VEC_AT(&list->steps, const merge_step, k)->kind != MERGE_ROWS)
                return true;
    }
    return false;
}

/* The first weight with a product or another module that config.json ties to another one, or with tokens that the other
 * one lacks; STRTAB_NONE: none. */
static uint32_t tied_by_config(const catalogue *c, const merge_list *list)
{
    const bool has_both = list->embedding != CAT_NONE && list->head != CAT_NONE;
    for (size_t i = 0; i < list->targets.count; i++) {
        const merge_target *t = VEC_AT(&list->targets, const merge_target, i);
        const uint32_t other = t->tensor == list->embedding ? list->head : list->embedding;
        if (t->tensor != list->embedding &&
            (list->head == CAT_NONE || !model_is_head(c, t->tensor)))
            continue;
        const bool alone = has_both && !is_changed(list, other, true);
        if (is_changed(list, t->tensor, alone))
            return t->name;
    }
    return STRTAB_NONE;
}

/* PEFT trains one of two tied weights, and transformers takes the other from it when it loads the result. */
void merged_warn_tied(const fsdpck_checkpoint *c, const merge_list *list,
                      const merge_request *requests, size_t count)
{
    if (ties_all(requests, count))
        return;
    const uint32_t name = tied_by_config(&c->base->cat, list);
    if (name != STRTAB_NONE)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED,
                 "write \"tie_word_embeddings\": false into config.json of the output if it has "
                 "both weights; "
                 "otherwise train again with ensure_weight_tying",
                 "the adapter changes '%s', which config.json ties to another weight "
                 "(tie_word_embeddings): "
                 "a model that loads the output has the change in both, the training had it in one",
                 strtab_text(&list->names, name));
    else if (list->tied != STRTAB_NONE && list->unties)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED,
                 "write \"tie_word_embeddings\": false into config.json of the output",
                 "the adapter replaces '%s', which shares its storage with '%s': the weights "
                 "differ in the output, as after merge_and_unload",
                 strtab_text(&list->names, list->tied), strtab_text(&list->names, list->tied_to));
    else if (list->tied != STRTAB_NONE)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_TIED,
                 "train again with ensure_weight_tying if the outputs of the model differ",
                 "the adapter changes '%s', which shares its storage with '%s': the change is in "
                 "both, as after merge_and_unload, but the training had it in one",
                 strtab_text(&list->names, list->tied), strtab_text(&list->names, list->tied_to));
}
