#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_likeness.h"
#include "lora/merge_list_internal.h"

/* --- tensors of both checkpoints --- */

static fsdpck_status join(list_maker *k, const merge_checkpoint *from, vec *inputs,
                          fsdpck_error *err)
{
    for (size_t i = 0; i < from->count; i++) {
        const lora_input *in = &from->inputs[i];
        const cat_tensor *t = catalogue_tensor(from->cat, in->tensor);
        lora_input made = *in;
        RETURN_IF(catalogue_add_tensor(&k->joined, in->name, in->nbytes, (dtype)t->dtype, t->ndim,
                                       catalogue_shape(from->cat, in->tensor), &made.tensor, err));
        RETURN_IF(vec_add(inputs, &made, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status find_adapters(list_maker *k, fsdpck_error *err)
{
    const merge_checkpoint *beside = k->request->beside;
    vec inputs = VEC_OF(lora_input, k->owner);
    k->own = beside == NULL ? 0 : beside->count;
    fsdpck_status st = beside == NULL ? FSDPCK_OK : join(k, beside, &inputs, err);
    if (st == FSDPCK_OK)
        st = join(k, k->base, &inputs, err);
    if (st == FSDPCK_OK)
        st = lora_set_find(&k->joined, inputs.items, inputs.count, beside != NULL, k->owner,
                           &k->set, err);
    vec_release(&inputs);
    if (st == FSDPCK_OK)
        st = lora_set_name_parameters(&k->set, &k->joined, k->request->config, err);
    RETURN_IF(st);
    k->used = budget_alloc(k->owner, lora_tensor_count(&k->set), err);
    return k->used == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

/* --- the requested adapter --- */

static fsdpck_status fail_no_adapter(const list_maker *k, fsdpck_error *err)
{
    if (k->request->beside != NULL)
        return FAIL_WITH(err, BADINPUT, LORA_BASE, ("'%s' contains no adapter", k->request->name),
                         (expected, "tensors with names such as '....lora_A.weight'"),
                         (next, "give the folder of the adapter: --merge-adapter FOLDER"));
    return FAIL_WITH(err, USAGE, NONE, ("the checkpoint contains no adapter"),
                     (next, "give the folder of the adapter: --merge-adapter FOLDER"));
}

static fsdpck_status fail_choice(const list_maker *k, const char *wrong, fsdpck_error *err)
{
    text_buf names = {0};
    for (uint32_t i = 0; i < lora_adapter_count(&k->set); i++)
        text_printf(&names, "%s'%s'", i == 0 ? "" : ", ", strtab_text(&k->set.adapters, i));
    fsdpck_status st = text_check(&names, err);
    if (st == FSDPCK_OK && wrong != NULL)
        st = FAIL_WITH(err, USAGE, NONE, ("the checkpoint contains no adapter '%s'", wrong),
                       (found, "%s", names.text));
    else if (st == FSDPCK_OK)
        st = FAIL_WITH(err, USAGE, NONE, ("the checkpoint contains several adapters"),
                       (found, "%s", names.text),
                       (next, "name one: --merge-adapter self:NAME; repeat the option for more"));
    text_release(&names);
    return st;
}

/* Adapters of a folder are those whose tensors it contains; they have one name, or none. With "bias": "all" a folder also has
 * names of the form of another adapter. */
static uint32_t first_beside(const list_maker *k)
{
    uint32_t found = LORA_NONE;
    for (uint32_t i = 0; i < k->own; i++) {
        const lora_tensor *t = lora_tensor_at(&k->set, i);
        if (t->adapter == LORA_NONE)
            continue;
        if (t->role != LORA_ROLE_SAVED)
            return t->adapter;
        found = found == LORA_NONE ? t->adapter : found;
    }
    return found;
}

static fsdpck_status choose_adapter(list_maker *k, fsdpck_error *err)
{
    const size_t count = lora_adapter_count(&k->set);
    const char *name = k->request->adapter;
    if (k->request->beside != NULL) {
        k->adapter = first_beside(k);
        return k->adapter == LORA_NONE ? fail_no_adapter(k, err) : FSDPCK_OK;
    }
    if (count == 0)
        return fail_no_adapter(k, err);
    if (name == NULL && count > 1)
        return fail_choice(k, NULL, err);
    k->adapter = name == NULL ? 0 : strtab_find(&k->set.adapters, name, strlen(name));
    return k->adapter == STRTAB_NONE ? fail_choice(k, name, err) : FSDPCK_OK;
}

static fsdpck_status name_adapter(list_maker *k, fsdpck_error *err)
{
    const merge_request *r = k->request;
    const char *name = r->beside != NULL ? r->name : strtab_text(&k->set.adapters, k->adapter);
    return strtab_intern(&k->list->adapters, name, strlen(name), &k->request->adapter_name, err);
}

/* --- targets --- */

/* Tensors of the base model, in their order. */
static fsdpck_status add_targets(list_maker *k, fsdpck_error *err)
{
    const size_t tensors = catalogue_tensor_count(k->base->cat);
    if (tensors > 0 && vec_push_n(&k->target_of, tensors, err) == NULL)
        return FSDPCK_LIMIT;
    if (k->base->tied > 0 && vec_push_n(&k->tied_target, k->base->tied, err) == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = k->own; i < lora_tensor_count(&k->set); i++) {
        const lora_tensor *t = lora_tensor_at(&k->set, i);
        merge_target made = {.tensor = list_maker_tensor(k, (uint32_t)i)};
        const lora_role role = list_maker_role(k, (uint32_t)i);
        if ((role != LORA_ROLE_BASE && role != LORA_ROLE_ORIGINAL) ||
            list_maker_is_tied(k, (uint32_t)i))
            continue;
        RETURN_IF(strtab_intern(&k->list->names, lora_text(&k->set, t->base),
                                strtab_nbytes(&k->set.names, t->base), &made.name, err));
        RETURN_IF(vec_add(&k->list->targets, &made, err));
        *VEC_AT(&k->target_of, uint32_t, made.tensor) = (uint32_t)k->list->targets.count;
    }
    return FSDPCK_OK;
}

static int compare_rows(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The last one would win. PEFT refuses to load such adapters together. */
static fsdpck_status check_rows(list_maker *k, const merge_target *t, const merge_step *s,
                                fsdpck_error *err)
{
    for (uint64_t i = 0; s->kind == MERGE_ROWS && i < t->step_count; i++) {
        const merge_step *old = VEC_AT(&k->list->steps, merge_step, t->first_step + i);
        vec rows = VEC_OF(uint64_t, k->owner);
        const uint64_t *both = NULL;
        if (old->kind != MERGE_ROWS || old->adapter == s->adapter || old->row_count == 0)
            continue;
        uint64_t *sorted = vec_push_n(&rows, old->row_count, err);
        if (sorted == NULL)
            return FSDPCK_LIMIT;
        memcpy(sorted, VEC_AT(&k->list->rows, uint64_t, old->first_row),
               old->row_count * sizeof *sorted);
        qsort(sorted, old->row_count, sizeof *sorted, compare_rows);
        for (uint64_t r = 0; both == NULL && r < s->row_count; r++)
            both = bsearch(VEC_AT(&k->list->rows, uint64_t, s->first_row + r), sorted,
                           old->row_count, sizeof *sorted, compare_rows);
        const uint64_t row = both == NULL ? 0 : *both;
        vec_release(&rows);
        if (both != NULL)
            return FAIL_WITH(err, UNSUPPORTED, LORA_MERGE,
                             ("adapters '%s' and '%s' both have trained the token %" PRIu64
                              " of '%s'",
                              strtab_text(&k->list->adapters, old->adapter),
                              strtab_text(&k->list->adapters, s->adapter), row,
                              strtab_text(&k->list->names, t->name)),
                             (next, "merge the adapters one after another: the last one then "
                                    "decides the token"));
    }
    return FSDPCK_OK;
}

/* The steps of each target, in the order of the requests. */
static fsdpck_status group_steps(list_maker *k, fsdpck_error *err)
{
    vec *targets = &k->list->targets, *steps = &k->list->steps;
    uint64_t first = 0;
    RETURN_IF(list_maker_add_tied(k, err));
    for (size_t i = 0; i < k->pending.count; i++)
        VEC_AT(targets, merge_target, VEC_AT(&k->pending, const pending_step, i)->target)
            ->step_count++;
    for (size_t i = 0; i < targets->count; i++) {
        merge_target *t = VEC_AT(targets, merge_target, i);
        t->first_step = first;
        first += t->step_count;
        t->step_count = 0;
    }
    if (first > 0 && vec_push_n(steps, first, err) == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < k->pending.count; i++) {
        const pending_step *p = VEC_AT(&k->pending, const pending_step, i);
        merge_target *t = VEC_AT(targets, merge_target, p->target);
        if (p->step.kind == MERGE_REPLACE && t->step_count > 0)
            return FAIL_WITH(err, UNSUPPORTED, LORA_MERGE,
                             ("adapter '%s' replaces '%s', which another adapter changes",
                              strtab_text(&k->list->adapters, p->step.adapter),
                              strtab_text(&k->list->names, t->name)),
                             (next, "merge the adapters one after another"));
        RETURN_IF(check_rows(k, t, &p->step, err));
        *VEC_AT(steps, merge_step, t->first_step + t->step_count++) = p->step;
    }
    return FSDPCK_OK;
}

/* --- every tensor is used --- */

/* What to do about names that are not those of the base model. */
static const char *advice(const list_maker *k)
{
    static const char titan[] = "tok_embeddings.weight", experts[] = ".experts.";
    static const char inner[] = ".base_layer";
    bool is_titan = false, has_experts = false, lacks_experts = true, lacks_wrapper = true;
    for (size_t i = 0; i < k->base->count; i++) {
        const lora_input *in = &k->base->inputs[i];
        is_titan = is_titan || text_ends_with(in->name, in->nbytes, titan);
        has_experts = has_experts || strstr(in->name, experts) != NULL;
    }
    for (size_t i = 0; i < k->missing_count && i < sizeof k->missing / sizeof k->missing[0]; i++) {
        const char *path = k->missing[i];
        lacks_experts = lacks_experts && strstr(path, "experts") != NULL;
        lacks_wrapper = lacks_wrapper && text_ends_with(path, strlen(path), inner);
    }
    if (is_titan)
        return "convert the base model to the names of Hugging Face first, with fsdpck consolidate "
               "SRC BASE --map NAME (fsdpck maps lists them), and merge into BASE";
    /* The second parameter of a module has its wrapper inside that of the first. */
    if (lacks_wrapper && k->missing_count > 0)
        return "save the adapter again: it lacks the tensors of another parameter of the module";
    if (has_experts && lacks_experts)
        return "the base model has its experts under other names: convert it with fsdpck "
               "consolidate SRC BASE --map NAME, or with --import (fsdpck maps lists them), and "
               "merge into BASE";
    return LORA_BASE_ADVICE;
}

static fsdpck_status fail_named(const list_maker *k, const char *what, fsdpck_error *err)
{
    text_buf names = {0};
    const size_t most = sizeof k->missing / sizeof k->missing[0];
    lora_likeness like;
    lora_likeness_init(&like, k->missing[0]);
    for (size_t i = 0; i < k->base->count; i++)
        lora_likeness_try(&like, k->base->inputs[i].name, k->base->inputs[i].nbytes);
    for (size_t i = 0; i < k->missing_count && i < most; i++)
        text_printf(&names, "%s'%s'", i == 0 ? "" : ", ", k->missing[i]);
    if (k->missing_count > most)
        text_puts(&names, ", ...");
    fsdpck_status st = text_check(&names, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, LORA_BASE,
                       ("adapter '%s' does not fit the base model: %s: %zu",
                        strtab_text(&k->list->adapters, k->request->adapter_name), what,
                        k->missing_count),
                       (found, "%s", names.text), (next, "%s", advice(k)));
    if (st == FSDPCK_BADINPUT && like.best[0] != '\0')
        error_expected(err, "modules of the base model, such as '%s'", like.best);
    text_release(&names);
    return st;
}

/* Whether the adapter has a tensor whose name is `name` without the bytes from `begin` to `end`, and a step uses it. */
static bool is_used_without(const list_maker *k, const char *name, const char *begin,
                            const char *end)
{
    const size_t head = (size_t)(begin - name);
    for (uint32_t j = 0; j < k->own; j++) {
        const char *other = lora_text(&k->set, lora_tensor_at(&k->set, j)->saved);
        if (k->used[j] && strncmp(other, name, head) == 0 && strcmp(other + head, end) == 0)
            return true;
    }
    return false;
}

/* With "bias": "all", PEFT also saves the biases of a module of modules_to_save under X.original_module and
 * X.modules_to_save, and does not load them; those of modules inside have the adapter's name too: X.modules_to_save.default. */
static bool is_second_copy(const list_maker *k, uint32_t i)
{
    static const char *const segments[] = {"original_module.", "modules_to_save."};
    const char *name = lora_text(&k->set, lora_tensor_at(&k->set, i)->saved);
    /* A name with the adapter's name has become one without. */
    if (is_used_without(k, name, name, name))
        return true;
    for (size_t s = 0; s < sizeof segments / sizeof *segments; s++) {
        const char *at = strstr(name, segments[s]);
        if (at != NULL && is_used_without(k, name, at, at + strlen(segments[s])))
            return true;
    }
    return false;
}

/* Tensors of the requested adapter that no step uses. */
static fsdpck_status check_used(list_maker *k, fsdpck_error *err)
{
    if (k->missing_count > 0)
        return fail_named(k, "modules without weight there", err);
    for (size_t i = 0; i < lora_tensor_count(&k->set); i++) {
        const lora_tensor *t = lora_tensor_at(&k->set, i);
        const bool foreign = t->role == LORA_ROLE_FOREIGN && k->own == 0;
        const bool own = k->own > 0 ? i < k->own : t->adapter == k->adapter || foreign;
        if (!k->used[i] && own && !is_second_copy(k, (uint32_t)i))
            list_maker_note_missing(k, lora_text(&k->set, t->saved));
    }
    return k->missing_count > 0 ? fail_named(k, "tensors without place there", err) : FSDPCK_OK;
}

/* --- the list --- */

static fsdpck_status check_config(const list_maker *k, fsdpck_error *err)
{
    const lora_config *c = k->request->config;
    if (k->request->beside != NULL && lora_initial_changes_base(c->initial))
        return FAIL_WITH(err, UNSUPPORTED, LORA_KIND,
                         ("init_lora_weights '%s' of adapter '%s' changed the base model too",
                          c->initial, strtab_text(&k->list->adapters, k->request->adapter_name)),
                         (next, "merge it with PEFT, or convert it with "
                                "path_initial_model_for_weight_conversion of save_pretrained"));
    if (c->unmergeable[0] != '\0')
        return FAIL_WITH(err, UNSUPPORTED, LORA_KIND,
                         ("adapter '%s' has the setting %s, which cannot be merged",
                          strtab_text(&k->list->adapters, k->request->adapter_name),
                          c->unmergeable),
                         (next, "merge it with PEFT"));
    if (!c->has_alpha || !c->has_r)
        return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                         ("the config of adapter '%s' lacks %s",
                          strtab_text(&k->list->adapters, k->request->adapter_name),
                          c->has_alpha ? "r" : "lora_alpha"),
                         (next, "give the adapter_config.json of the training"));
    return FSDPCK_OK;
}

static fsdpck_status stop_at_fault(void *ctx, const fsdpck_error *fault, fsdpck_error *err)
{
    (void)ctx;
    if (err != NULL)
        *err = *fault;
    return fault->status;
}

/* With equal factors the product of the embedding is that of the output projection too. */
static fsdpck_status check_dropped(const list_maker *k, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_module_count(&k->set); i++) {
        const lora_module *m = lora_module_at(&k->set, i);
        bool dropped = false;
        if (m->adapter == k->adapter && k->together[i] == MERGE_ALONE)
            RETURN_IF(lora_is_dropped(&k->set, m, k->request->config, &dropped, err));
        if (dropped)
            return FAIL_WITH(
                err, BADINPUT, LORA_CONFIG,
                ("the adapter has factors for '%s', which target_modules of its config does not "
                 "name: PEFT loads the adapter without them",
                 lora_text(&k->set, m->path)),
                (tensor, lora_text(&k->set, m->path)),
                (next, "to merge them, add this name to target_modules of adapter_config.json; "
                       "else remove the tensors"));
    }
    return FSDPCK_OK;
}

/* A name of the set in the list, or STRTAB_NONE. */
static uint32_t find_in_list(const list_maker *k, uint32_t name)
{
    return name == LORA_NONE ? STRTAB_NONE
                             : strtab_find(&k->list->names, lora_text(&k->set, name),
                                           strtab_nbytes(&k->set.names, name));
}

static fsdpck_status make_one(list_maker *k, fsdpck_error *err)
{
    RETURN_IF(find_adapters(k, err));
    RETURN_IF(choose_adapter(k, err));
    RETURN_IF(name_adapter(k, err));
    RETURN_IF(check_config(k, err));
    if (k->list->targets.count == 0)
        RETURN_IF(add_targets(k, err));
    RETURN_IF(list_maker_add_modules(k, err));
    RETURN_IF(check_used(k, err));
    lora_lost lost = {.layers = k->request->layers,
                      .shared = k->request->shared,
                      .first = LORA_NONE,
                      .first_bias = LORA_NONE};
    RETURN_IF(lora_check_config(&k->set, k->adapter, k->own, k->request->config, &lost,
                                stop_at_fault, NULL, err));
    RETURN_IF(check_dropped(k, err));
    k->request->lost = lost.unproven;
    k->request->first_lost = find_in_list(k, lost.first);
    k->request->lost_biases = lost.biases;
    k->request->first_lost_bias = find_in_list(k, lost.first_bias);
    return FSDPCK_OK;
}

static fsdpck_status make_request(list_maker *k, merge_request *request, fsdpck_error *err)
{
    const merge_input in = request->beside == NULL
                               ? *VEC_AT(&k->list->inputs, const merge_input, 0)
                               : (merge_input){request->beside->cat, request->beside->src};
    k->request = request;
    k->missing_count = 0;
    k->input = request->beside == NULL ? 0 : (uint32_t)k->list->inputs.count;
    if (k->input > 0)
        RETURN_IF(vec_add(&k->list->inputs, &in, err));
    catalogue_init(&k->joined, k->owner);
    k->set = (lora_set){0};
    k->used = NULL;
    k->together = NULL;
    const fsdpck_status st = make_one(k, err);
    budget_free(k->owner, k->together, k->together == NULL ? 0 : lora_module_count(&k->set) + 1);
    budget_free(k->owner, k->used, k->used == NULL ? 0 : lora_tensor_count(&k->set));
    lora_set_release(&k->set);
    catalogue_release(&k->joined);
    return st;
}

fsdpck_status merge_list_make(merge_list *list, const merge_checkpoint *base,
                              merge_request *requests, size_t count, bool safe, fsdpck_error *err)
{
    budget *owner = list->inputs.owner;
    list_maker k = {.list = list,
                    .base = base,
                    .safe = safe,
                    .owner = owner,
                    .target_of = VEC_OF(uint32_t, owner),
                    .tied_target = VEC_OF(uint32_t, owner),
                    .pending = VEC_OF(pending_step, owner)};
    fsdpck_status st = vec_add(&list->inputs, &(merge_input){base->cat, base->src}, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = make_request(&k, &requests[i], err);
    if (st == FSDPCK_OK)
        st = group_steps(&k, err);
    VEC_RELEASE_ALL(&k.target_of, &k.tied_target, &k.pending);
    return st;
}
