/* merged_checkpoint.c: a checkpoint with adapters merged into its weights. Each adapter is inside the checkpoint, or is a
 * checkpoint of its own, with its adapter_config.json. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lora/lora_zero.h"
#include "lora/merge_list.h"
#include "open/checkpoint.h"
#include "open/merge_inputs.h"
#include "open/merged_ties.h"
#include "open/model_config.h"

#define SELF "self"

bool merge_adapter_is_self(const char *text, const char **name)
{
    const size_t n = strlen(SELF);
    *name = NULL;
    if (strncmp(text, SELF, n) != 0 || (text[n] != '\0' && text[n] != ':'))
        return false;
    *name = text[n] == ':' ? text + n + 1 : NULL;
    return true;
}

/* --- the request --- */

static fsdpck_status take_request(fsdpck_checkpoint *c, const fsdpck_merge_options *m, size_t i,
                                  merge_inputs *a, merge_request *r, fsdpck_error *err)
{
    const char *text = m->adapters[i];
    *r = (merge_request){.name = text};
    a->names = VEC_OF(lora_input, &c->metadata);
    if (merge_adapter_is_self(text, &r->adapter)) {
        RETURN_IF(merge_read_config(c, c->base, r->adapter, m, &a->config, err));
    } else {
        RETURN_IF(checkpoint_load_inner(c->beside[i], err));
        RETURN_IF(merge_inputs_list(c->beside[i], a, err));
        RETURN_IF(merge_read_config(c, c->beside[i], NULL, m, &a->config, err));
        r->beside = &a->tensors;
    }
    r->config = &a->config;
    return FSDPCK_OK;
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
                text_plural(requests[i].lost), merge_first_lost(list, &requests[i]));
}

static void warn_lost_biases(const fsdpck_checkpoint *c, const merge_list *list,
                             const merge_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (requests[i].lost_biases > 0)
            log_warn(
                &c->ctx->log, FSDPCK_FINDING_LORA_PAIR, "check that the adapter is complete",
                "adapter '%s' lacks %" PRIu64
                " bias%s of the base model that its config names as trained, the first is '%s'",
                strtab_text(&list->adapters, requests[i].adapter_name), requests[i].lost_biases,
                requests[i].lost_biases == 1 ? "" : "es",
                merge_first_lost_bias(list, &requests[i]));
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
static fsdpck_status merge_all(fsdpck_checkpoint *c, merge_inputs *base, merge_request *requests,
                               size_t count, const fsdpck_merge_options *m, fsdpck_error *err)
{
    const bool safe = m->safe != 0;
    merge_list list;
    merge_list_init(&list, &c->metadata);
    list.no_reading = c->remote_files != NULL;
    list.wide = m->wide != 0;
    merged_find_tied(c->base, &list);
    fsdpck_status st = merged_add_tied(&list, &c->base->cat, requests, count, &base->names,
                                       &base->tied, &base->tensors.tied, err);
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
        warn_lost_biases(c, &list, requests, count);
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
    merge_inputs *opened = calloc(count, sizeof *opened);
    merge_request *requests = calloc(count, sizeof *requests);
    merge_inputs base = {.names = VEC_OF(lora_input, &c->metadata)};
    strtab_init(&base.tied, &c->metadata);
    fsdpck_status st = FSDPCK_OK;
    if (opened == NULL || requests == NULL)
        st = error_set_nomem(err, count * sizeof *opened);
    if (st == FSDPCK_OK)
        st = merge_inputs_list(c->base, &base, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = take_request(c, m, i, &opened[i], &requests[i], err);
    if (st == FSDPCK_OK)
        merge_count_layers(c->base, requests, count);
    if (st == FSDPCK_OK)
        st = merge_all(c, &base, requests, count, m, err);
    for (size_t i = 0; opened != NULL && i < count; i++)
        merge_inputs_release(&opened[i]);
    merge_inputs_release(&base);
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
