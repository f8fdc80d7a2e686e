/* merged_checkpoint.c: a checkpoint with adapters merged into its weights. Each adapter is inside the checkpoint, or is a
 * checkpoint of its own, with its adapter_config.json. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lora/lora_zero.h"
#include "lora/merge_list.h"
#include "open/checkpoint.h"
#include "open/merged_ties.h"
#include "open/model_config.h"

#define SELF "self"

/* An adapter of the request, with what merging reads. */
typedef struct opened_adapter {
    map_inputs inputs;
    vec names;   /* lora_input */
    strtab tied; /* texts of names that the files lack */
    merge_checkpoint tensors;
    lora_config config;
} opened_adapter;

bool merge_adapter_is_self(const char *text, const char **name)
{
    const size_t n = strlen(SELF);
    *name = NULL;
    if (strncmp(text, SELF, n) != 0 || (text[n] != '\0' && text[n] != ':'))
        return false;
    *name = text[n] == ':' ? text + n + 1 : NULL;
    return true;
}

/* The tensors of the model part by their names. */
static fsdpck_status list_tensors(fsdpck_checkpoint *c, opened_adapter *a, fsdpck_error *err)
{
    RETURN_IF(map_inputs_list(c, &a->inputs, err));
    for (size_t i = 0; i < a->inputs.inputs.count; i++) {
        const map_input *in = VEC_AT(&a->inputs.inputs, const map_input, i);
        const lora_input made = {in->name, in->nbytes, in->tensor};
        RETURN_IF(vec_add(&a->names, &made, err));
    }
    a->tensors = (merge_checkpoint){
        .cat = &c->cat, .src = &c->src, .inputs = a->names.items, .count = a->names.count};
    return FSDPCK_OK;
}

static void opened_adapter_release(opened_adapter *a)
{
    map_inputs_release(&a->inputs);
    vec_release(&a->names);
    strtab_release(&a->tied);
    lora_config_release(&a->config);
}

/* --- the config --- */

static fsdpck_status fail_no_config(const fsdpck_checkpoint *of, bool several, fsdpck_error *err)
{
    if (several)
        return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                         ("the adapter has no adapter_config.json, and its tensors do not contain "
                          "lora_alpha"),
                         (path, of->path),
                         (next, "copy it out with --part adapter --lora-alpha X, and give that "
                                "folder to --merge-adapter"));
    return FAIL_WITH(
        err, BADINPUT, LORA_CONFIG,
        ("the adapter has no adapter_config.json, and its tensors do not contain "
         "lora_alpha"),
        (path, of->path),
        (next, "give the file of the training with --adapter-config FILE, or --lora-alpha"));
}

/* From the tensors of the adapter `name` (NULL: the only one), and what else is known. */
static fsdpck_status make_config(fsdpck_checkpoint *of, const char *name, const lora_facts *facts,
                                 bool several, text_buf *text, fsdpck_error *err)
{
    lora_set set;
    fsdpck_status st = checkpoint_find_adapters(of, &set, err);
    if (st == FSDPCK_OK)
        st = lora_set_name_parameters(&set, &of->cat, NULL, err);
    const uint32_t adapter = name == NULL ? 0 : strtab_find(&set.adapters, name, strlen(name));
    /* Making the list reports adapters that are missing. */
    const bool is_there = adapter < lora_adapter_count(&set);
    if (st == FSDPCK_OK && is_there && !facts->has_alpha)
        st = fail_no_config(of, several, err);
    else if (st == FSDPCK_OK && is_there)
        st = lora_config_make(&set, &of->cat, adapter, facts, text, err);
    else if (st == FSDPCK_OK)
        text_puts(text, "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1}");
    lora_set_release(&set);
    return st == FSDPCK_OK ? text_check(text, err) : st;
}

static fsdpck_status has_several(fsdpck_checkpoint *of, bool *several, fsdpck_error *err)
{
    lora_set set;
    const fsdpck_status st = checkpoint_find_adapters(of, &set, err);
    *several = st == FSDPCK_OK && lora_adapter_count(&set) > 1;
    lora_set_release(&set);
    return st;
}

static fsdpck_status read_config(fsdpck_checkpoint *c, fsdpck_checkpoint *of, const char *name,
                                 const fsdpck_merge_options *m, lora_config *config,
                                 fsdpck_error *err)
{
    const fsdpck_adapter_options *options = m->config;
    adapter_source from = {0};
    text_buf text = {0};
    bool several = false;
    fsdpck_status st = has_several(of, &several, err);
    if (st == FSDPCK_OK)
        st = adapter_source_find(of, name, several, options, &from, err);
    if (st == FSDPCK_OK && from.text == NULL)
        st = make_config(of, name, &from.facts, m->adapter_count > 1, &text, err);
    if (st == FSDPCK_OK)
        st = lora_config_read(from.text != NULL ? from.text : text.text,
                              from.text != NULL ? from.nbytes : text.nbytes, &c->metadata, config,
                              err);
    if (st != FSDPCK_OK)
        error_path(err, from.path != NULL ? from.path : of->path);
    text_release(&text);
    adapter_source_release(&from);
    return st;
}

/* --- the request --- */

static fsdpck_status take_request(fsdpck_checkpoint *c, const fsdpck_merge_options *m, size_t i,
                                  opened_adapter *a, merge_request *r, fsdpck_error *err)
{
    const char *text = m->adapters[i];
    *r = (merge_request){.name = text};
    a->names = VEC_OF(lora_input, &c->metadata);
    if (merge_adapter_is_self(text, &r->adapter)) {
        RETURN_IF(read_config(c, c->base, r->adapter, m, &a->config, err));
    } else {
        RETURN_IF(checkpoint_load_inner(c->beside[i], err));
        RETURN_IF(list_tensors(c->beside[i], a, err));
        RETURN_IF(read_config(c, c->beside[i], NULL, m, &a->config, err));
        r->beside = &a->tensors;
    }
    r->config = &a->config;
    return FSDPCK_OK;
}

/* Layers of the base model; 0: unknown. */
static void count_layers(const fsdpck_checkpoint *base, merge_request *requests, size_t count)
{
    model_config config = {0};
    bool is_known = false;
    if (base->probe.is_folder && model_config_read(&base->probe.dir, &config, NULL) == FSDPCK_OK)
        is_known = true;
    for (size_t i = 0; is_known && i < count; i++) {
        requests[i].layers = config.numbers[MODEL_HIDDEN_LAYERS];
        requests[i].shared = config.numbers[MODEL_KV_SHARED_LAYERS];
    }
    model_config_release(&config);
}

/* Files may lack a tied output projection. */
static const char *first_lost(const merge_list *list, const merge_request *r)
{
    return r->first_lost == STRTAB_NONE ? "lm_head.weight"
                                        : strtab_text(&list->names, r->first_lost);
}

/* Without num_hidden_layers, the base model's file may have more layers than the model that was trained, and it may have more
 * modules outside of them. */
static void warn_lost(const fsdpck_checkpoint *c, const merge_list *list,
                      const merge_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (requests[i].lost > 0)
            log_warn(
                &c->ctx->log, FSDPCK_FINDING_LORA_PAIR,
                requests[i].layers > 0
                    ? "check that the adapter is complete"
                    : "check that the adapter is complete; num_hidden_layers in config.json of "
                      "the base model tells which layers belong to it",
                "adapter '%s' has neither lora_A nor lora_B for %" PRIu64
                " weight%s of the base model that the config names, the first is '%s'",
                strtab_text(&list->adapters, requests[i].adapter_name), requests[i].lost,
                text_plural(requests[i].lost), first_lost(list, &requests[i]));
}

/* For reports. `list` still has the names. */
static fsdpck_status note_adapters(fsdpck_checkpoint *c, const merge_list *list,
                                   const merge_request *requests, size_t count, fsdpck_error *err)
{
    c->merged_adapters = calloc(count, sizeof *c->merged_adapters);
    if (c->merged_adapters == NULL)
        return error_set_nomem(err, count * sizeof *c->merged_adapters);
    for (size_t i = 0; i < count; i++) {
        const merge_request *r = &requests[i];
        fsdpck_merged_adapter *a = malloc(sizeof *a);
        char *name = strdup(strtab_text(&list->adapters, r->adapter_name));
        if (a == NULL || name == NULL) {
            free(a);
            free(name);
            return error_set_nomem(err, strtab_nbytes(&list->adapters, r->adapter_name));
        }
        *a = (fsdpck_merged_adapter){.struct_nbytes = sizeof *a,
                                     .name = name,
                                     .modules = r->modules,
                                     .replaced = r->replaced,
                                     .least_scale = r->least_scale,
                                     .largest_scale = r->largest_scale};
        c->merged_adapters[c->merged.adapter_count++] = a;
    }
    return FSDPCK_OK;
}

/* Adapters whose product is zero change nothing. */
static fsdpck_status warn_zero(const fsdpck_checkpoint *c, const merge_list *list,
                               fsdpck_error *err)
{
    const char *first = NULL;
    size_t count = 0, all = 0;
    /* Files of other hosts are read only while all ranks serve them. */
    if (c->remote_files != NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < list->steps.count; i++) {
        const merge_step *s = VEC_AT(&list->steps, const merge_step, i);
        const merge_input *in = VEC_AT(&list->inputs, const merge_input, s->input);
        bool zero = false;
        if (s->kind != MERGE_PRODUCT)
            continue;
        all++;
        RETURN_IF(lora_is_zero(in->src, in->cat, s->b, &zero, err));
        if (zero && count++ == 0)
            first = catalogue_name(in->cat, catalogue_tensor(in->cat, s->b)->name);
    }
    if (count > 0)
        log_warn(
            &c->ctx->log, FSDPCK_FINDING_LORA_ZERO,
            "compare with an earlier checkpoint, and check that the module was trained",
            "%zu of %zu merged products are zero, as their lora_B is all zeros; the first is '%s'",
            count, all, first);
    return FSDPCK_OK;
}

/* PEFT merges them without safe_merge too. */
static fsdpck_status warn_nan(const fsdpck_checkpoint *c, const merge_list *list, fsdpck_error *err)
{
    const char *first = NULL;
    size_t count = 0;
    if (c->remote_files != NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < list->steps.count; i++) {
        const merge_step *s = VEC_AT(&list->steps, const merge_step, i);
        const merge_input *in = VEC_AT(&list->inputs, const merge_input, s->input);
        const uint32_t parts[] = {s->a, s->b, s->magnitude};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            bool has_nan = false;
            if (parts[k] != CAT_NONE && (k == 0 || s->kind == MERGE_PRODUCT))
                RETURN_IF(lora_has_nan(in->src, in->cat, parts[k], &has_nan, err));
            if (has_nan && count++ == 0)
                first = catalogue_name(in->cat, catalogue_tensor(in->cat, parts[k])->name);
        }
    }
    if (count > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_NAN,
                 "give --merge-safe to refuse such an adapter, as PEFT does with safe_merge",
                 "%zu tensor%s of the merged adapters contain%s NaN or infinity, the first is '%s'",
                 count, text_plural(count), count == 1 ? "s" : "", first);
    return FSDPCK_OK;
}

static fsdpck_status keep_ties(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; i < c->base->ties.count; i++) {
        const tied_pair *t = VEC_AT(&c->base->ties, const tied_pair, i);
        const tied_pair made = {merger_same(c->merger, t->first), merger_same(c->merger, t->alias)};
        if (made.first != CAT_NONE && made.alias != CAT_NONE)
            RETURN_IF(vec_add(&c->ties, &made, err));
    }
    return FSDPCK_OK;
}

static bool is_merged(const lora_set *set, const lora_tensor *t, const merge_request *requests,
                      size_t count)
{
    const char *name = t->adapter == LORA_NONE ? "" : strtab_text(&set->adapters, t->adapter);
    for (size_t i = 0; t->adapter != LORA_NONE && i < count; i++)
        if (requests[i].beside == NULL &&
            (requests[i].adapter == NULL || strcmp(requests[i].adapter, name) == 0))
            return true;
    return false;
}

/* Adapters in the checkpoint that are not merged are left out of the output. */
static fsdpck_status skip_unmerged(fsdpck_checkpoint *c, const merge_request *requests,
                                   size_t count, fsdpck_error *err)
{
    const catalogue *from = &c->base->cat;
    lora_set set;
    fsdpck_status st = checkpoint_find_adapters(c->base, &set, err);
    for (size_t i = 0; st == FSDPCK_OK && i < lora_tensor_count(&set); i++) {
        const lora_tensor *t = lora_tensor_at(&set, i);
        const uint32_t name = catalogue_tensor(from, t->tensor)->name;
        if (t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL ||
            is_merged(&set, t, requests, count))
            continue;
        st = catalogue_add_skipped(&c->cat, catalogue_name(from, name),
                                   catalogue_name_nbytes(from, name), false,
                                   catalogue_tensor_nbytes(from, t->tensor), VALUE_OF_NONE, err);
    }
    lora_set_release(&set);
    return st;
}

/* c->cat from the weights of c->base and the requests. */
static fsdpck_status merge_all(fsdpck_checkpoint *c, opened_adapter *base, merge_request *requests,
                               size_t count, const fsdpck_merge_options *m, fsdpck_error *err)
{
    const bool safe = m->safe != 0;
    merge_list list;
    merge_list_init(&list, &c->metadata);
    list.no_reading = c->remote_files != NULL;
    list.wide = m->wide != 0;
    merged_find_tied(c->base, &list);
    fsdpck_status st = merged_add_tied(&list, requests, count, &base->names, &base->tied,
                                       &base->tensors.tied, err);
    base->tensors.inputs = base->names.items;
    base->tensors.count = base->names.count;
    if (st == FSDPCK_OK)
        st = merge_list_make(&list, &base->tensors, requests, count, safe, err);
    if (st == FSDPCK_OK)
        st = merged_check_tied(&list, err);
    if (st == FSDPCK_OK)
        st = note_adapters(c, &list, requests, count, err);
    if (st == FSDPCK_OK)
        st = warn_zero(c, &list, err);
    if (st == FSDPCK_OK && !safe)
        st = warn_nan(c, &list, err);
    if (st == FSDPCK_OK && group_rank(c->ctx->group) == 0) {
        warn_lost(c, &list, requests, count);
        merged_warn_tied(c, &list, requests, count);
    }
    if (st == FSDPCK_OK)
        st = merger_new(&list, &c->cat, &c->merger, err);
    merge_list_release(&list);
    if (st != FSDPCK_OK) {
        error_path(err, c->path);
        return st;
    }
    c->src = *merger_source(c->merger);
    c->merged.struct_nbytes = sizeof c->merged;
    c->merged.tensors = merger_count(c->merger);
    c->merged.adapters = (const fsdpck_merged_adapter *const *)c->merged_adapters;
    RETURN_IF(skip_unmerged(c, requests, count, err));
    RETURN_IF(derived_checkpoint_skip_others(c, err));
    RETURN_IF(keep_ties(c, err));
    RETURN_IF(checkpoint_parts_all_model(&c->cat, &c->parts, err));
    /* No mesh is inferred: the parts of a weight are no shards. */
    c->sharded_otherwise = c->base->sharded_otherwise;
    return FSDPCK_OK;
}

static bool is_given(const fsdpck_adapter_options *a)
{
    return a->config != NULL || a->has_lora_alpha || a->use_rslora || a->fan_in_fan_out;
}

static fsdpck_status apply(fsdpck_checkpoint *c, const fsdpck_merge_options *m, fsdpck_error *err)
{
    const size_t count = m->adapter_count;
    if (count > 1 && m->config != NULL && is_given(m->config))
        return FAIL(err, USAGE, NONE,
                    "config of the merge options does not apply to several adapters");
    opened_adapter *opened = calloc(count, sizeof *opened);
    merge_request *requests = calloc(count, sizeof *requests);
    opened_adapter base = {.names = VEC_OF(lora_input, &c->metadata)};
    strtab_init(&base.tied, &c->metadata);
    fsdpck_status st = FSDPCK_OK;
    if (opened == NULL || requests == NULL)
        st = error_set_nomem(err, count * sizeof *opened);
    if (st == FSDPCK_OK)
        st = list_tensors(c->base, &base, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = take_request(c, m, i, &opened[i], &requests[i], err);
    if (st == FSDPCK_OK)
        count_layers(c->base, requests, count);
    if (st == FSDPCK_OK)
        st = merge_all(c, &base, requests, count, m, err);
    for (size_t i = 0; opened != NULL && i < count; i++)
        opened_adapter_release(&opened[i]);
    opened_adapter_release(&base);
    free(opened);
    free(requests);
    return st;
}

fsdpck_status checkpoint_merge(fsdpck_checkpoint *base, const fsdpck_merge_options *merge,
                               fsdpck_checkpoint **beside, fsdpck_checkpoint **out,
                               fsdpck_error *err)
{
    *out = NULL;
    RETURN_IF(checkpoint_load_inner(base, err));
    const fsdpck_status st = derived_checkpoint_new(base, out, err);
    if (*out != NULL) {
        (*out)->beside = beside;
        (*out)->beside_count = merge->adapter_count;
    }
    return st == FSDPCK_OK ? apply(*out, merge, err) : st;
}

const fsdpck_checkpoint *checkpoint_merged(const fsdpck_checkpoint *c)
{
    while (c != NULL && c->merger == NULL)
        c = c->base;
    return c;
}

void checkpoint_merge_release(fsdpck_checkpoint *c)
{
    merger_free(c->merger);
    for (size_t i = 0; i < c->merged.adapter_count; i++) {
        free((char *)c->merged_adapters[i]->name);
        free(c->merged_adapters[i]);
    }
    free(c->merged_adapters);
}

/* --- verify --- */

static fsdpck_status check_fit(fsdpck_checkpoint *base, opened_adapter *own, opened_adapter *adapter,
                               adapter_fit *fit, fsdpck_error *err)
{
    const fsdpck_merge_options plain = {.struct_nbytes = sizeof plain};
    merge_request r = {.name = fit->adapter->path};
    merge_list list;
    RETURN_IF(checkpoint_load_inner(base, err));
    RETURN_IF(list_tensors(base, own, err));
    RETURN_IF(list_tensors(fit->adapter, adapter, err));
    RETURN_IF(read_config(fit->adapter, fit->adapter, NULL, &plain, &adapter->config, err));
    r.beside = &adapter->tensors;
    r.config = &adapter->config;
    count_layers(base, &r, 1);
    merge_list_init(&list, &fit->adapter->metadata);
    list.no_reading = true;
    merged_find_tied(base, &list);
    list.is_untold = true; /* whether tied weights are equal is a question of their bytes */
    fsdpck_status st = merge_list_make(&list, &own->tensors, &r, 1, false, err);
    fit->lost = r.lost;
    if (st == FSDPCK_OK && r.lost > 0) {
        text_puts(&fit->first, first_lost(&list, &r));
        st = text_check(&fit->first, err);
    }
    merge_list_release(&list);
    return st;
}

fsdpck_status adapter_fits(fsdpck_checkpoint *base, adapter_fit *fit, fsdpck_error *err)
{
    opened_adapter own = {.names = VEC_OF(lora_input, &fit->adapter->metadata)};
    opened_adapter adapter = {.names = VEC_OF(lora_input, &fit->adapter->metadata)};
    strtab_init(&own.tied, &fit->adapter->metadata);
    strtab_init(&adapter.tied, &fit->adapter->metadata);
    const fsdpck_status st = check_fit(base, &own, &adapter, fit, err);
    opened_adapter_release(&own);
    opened_adapter_release(&adapter);
    return st;
}
