/* merge_modules.c: the changes that the modules of an adapter make, as PEFT's layers merge them. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_internal.h"
#include "lora/merge_list_internal.h"

static fsdpck_status fail_pair(const list_maker *k, const lora_module *m, const char *part,
                               fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_PAIR, ("'%s' has no %s", list_maker_path(k, m), part),
                     (tensor, list_maker_path(k, m)));
}

static fsdpck_status fail_kind(const list_maker *k, const lora_module *m, const char *what,
                               fsdpck_error *err)
{
    return FAIL_WITH(
        err, UNSUPPORTED, LORA_KIND,
        ("the adapter of '%s' has %s, which cannot be merged", list_maker_path(k, m), what),
        (tensor, list_maker_path(k, m)), (next, "merge it with PEFT"));
}

/* --- numbers --- */

static fsdpck_status check_rank(const list_maker *k, const lora_module *m, uint64_t rank,
                                const lora_numbers *n, fsdpck_error *err)
{
    if (rank == n->r)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, LORA_RANK,
                     ("'%s' has rank %" PRIu64 ", but its config has %" PRIu64,
                      list_maker_path(k, m), rank, n->r),
                     (tensor, list_maker_path(k, m)));
}

static void note_scale(merge_request *r, double scale)
{
    if (r->modules == 0 || scale < r->least_scale)
        r->least_scale = scale;
    if (r->modules == 0 || scale > r->largest_scale)
        r->largest_scale = scale;
    r->modules++;
}

/* --- steps --- */

static fsdpck_status add_bias(list_maker *k, const lora_module *m, const merge_step *of,
                              fsdpck_error *err)
{
    merge_step s = {.kind = MERGE_ADD,
                    .input = of->input,
                    .adapter = of->adapter,
                    .magnitude = CAT_NONE,
                    .scale = of->scale,
                    .finite = of->finite};
    if (m->a_bias != LORA_NONE)
        return fail_kind(k, m, "a bias of lora_A", err);
    if (m->b_bias == LORA_NONE)
        return FSDPCK_OK;
    if (m->base_bias == LORA_NONE)
        return fail_kind(k, m, "a bias of lora_B for a module without bias", err);
    s.a = list_maker_use(k, m->b_bias);
    return list_maker_add(k, m->base_bias, &s, err);
}

/* PEFT rounds these products before it adds them. */
static bool is_rounded(const lora_module *m)
{
    return m->kind == LORA_EMBEDDING || m->kind == LORA_PARAMETER || m->is_attention ||
           m->holder != LORA_NONE;
}

/* Adds a product to its weight. PEFT adds that of out_proj of nn.MultiheadAttention twice, in a training too: first as a part
 * of the module around it, then as a linear module, without safe_merge. */
static fsdpck_status add_to_weight(list_maker *k, const lora_module *m, merge_step s,
                                   fsdpck_error *err)
{
    RETURN_IF(list_maker_add(k, m->base_weight, &s, err));
    if (m->holder == LORA_NONE)
        return FSDPCK_OK;
    s.round_delta = false;
    s.finite = false;
    return list_maker_add(k, m->base_weight, &s, err);
}

static fsdpck_status add_product(list_maker *k, uint32_t index, fsdpck_error *err)
{
    const lora_module *m = lora_module_at(&k->set, index);
    const lora_config *config = k->request->config;
    lora_numbers n;
    const uint64_t *a, *w;
    if (m->a == LORA_NONE || m->b == LORA_NONE)
        return fail_pair(k, m, m->a == LORA_NONE ? "lora_A" : "lora_B", err);
    if (m->magnitude == LORA_NONE && config->use_dora)
        return fail_pair(k, m, "magnitude vector of DoRA", err);
    if (m->base_weight == LORA_NONE) {
        list_maker_note_missing(k, list_maker_path(k, m));
        return FSDPCK_OK;
    }
    merge_step s = {.kind = MERGE_PRODUCT,
                    .input = k->input,
                    .adapter = k->request->adapter_name,
                    .a = list_maker_use(k, m->a),
                    .b = list_maker_use(k, m->b),
                    .magnitude = list_maker_use(k, m->magnitude),
                    .round_delta = k->safe || is_rounded(m),
                    .finite = k->safe,
                    .together = (merge_together)k->together[index]};
    const cat_tensor *ta = list_maker_shape(k, m->a, &a),
                     *tw = list_maker_shape(k, m->base_weight, &w);
    const uint64_t experts = m->kind == LORA_PARAMETER && tw->ndim == 3 ? w[0] : 1;
    s.rank = ta->ndim > 0 && experts > 0 ? a[0] / experts : 0;
    RETURN_IF(list_maker_numbers(k, m, &n, err));
    RETURN_IF(check_rank(k, m, s.rank, &n, err));
    RETURN_IF(list_maker_orientation(k, m, &s.transposed, err));
    s.scale = n.scaling;
    note_scale(k->request, s.scale);
    RETURN_IF(add_to_weight(k, m, s, err));
    return add_bias(k, m, &s, err);
}

static fsdpck_status add_tokens(list_maker *k, uint32_t index, fsdpck_error *err)
{
    const lora_module *m = lora_module_at(&k->set, index);
    vec *rows = &k->list->rows;
    merge_step s = {.kind = MERGE_ROWS,
                    .input = k->input,
                    .adapter = k->request->adapter_name,
                    .magnitude = CAT_NONE,
                    .finite = k->safe,
                    .first_row = rows->count};
    if (m->base_weight == LORA_NONE) {
        list_maker_note_missing(k, list_maker_path(k, m));
        return FSDPCK_OK;
    }
    s.a = list_maker_use(k, m->tokens);
    const lora_module *owner =
        lora_module_at(&k->set, lora_tokens_owner(&k->set, &k->joined, k->request->config, index));
    RETURN_IF(lora_token_rows(k->request->config, list_maker_path(k, owner),
                              strtab_nbytes(&k->set.names, owner->path), rows, err));
    s.row_count = rows->count - s.first_row;
    /* PEFT trains rows of the embedding for the output projection too, but not the other way round. */
    const bool is_own =
        owner == m && lora_is_head(list_maker_path(k, m), strlen(list_maker_path(k, m)));
    s.together = is_own ? MERGE_ALONE : MERGE_TOGETHER;
    k->request->replaced++;
    return list_maker_add(k, m->base_weight, &s, err);
}

/* Tensors of the adapter that replace those of the base model: of modules_to_save, and what else PEFT saves. */
static fsdpck_status add_replaced(list_maker *k, uint32_t i, bool tied, fsdpck_error *err)
{
    const lora_tensor *t = lora_tensor_at(&k->set, i);
    const lora_role role = list_maker_role(k, i);
    const bool saved = role == LORA_ROLE_SAVED && t->adapter == k->adapter;
    const char *name = lora_text(&k->set, t->base);
    merge_step s = {.kind = MERGE_REPLACE,
                    .input = k->input,
                    .adapter = k->request->adapter_name,
                    .a = list_maker_tensor(k, i),
                    .magnitude = CAT_NONE,
                    .finite = false};
    if (!saved && !(i < k->own && role == LORA_ROLE_BASE))
        return FSDPCK_OK;
    s.unties = saved || lora_config_saves(k->request->config, name, strlen(name));
    s.together = !s.unties || k->request->config->ties_tokens ? MERGE_TOGETHER : MERGE_ALONE;
    const uint32_t base = lora_set_find_base(&k->set, name, strtab_nbytes(&k->set.names, t->base));
    if (base == LORA_NONE || base < k->own)
        return FSDPCK_OK; /* reported as not used */
    if (list_maker_is_tied(k, base) != tied)
        return FSDPCK_OK;
    k->used[i] = 1;
    k->request->replaced++;
    /* PEFT saves one weight under both names. */
    if (tied && (!s.unties || k->request->config->ties_tokens) && list_maker_is_replaced(k, base))
        return FSDPCK_OK;
    return list_maker_add(k, base, &s, err);
}

/* Of a tensor that replaces another. */
static fsdpck_status check_replaced(const list_maker *k, uint32_t i, fsdpck_error *err)
{
    const lora_tensor *t = lora_tensor_at(&k->set, i);
    const lora_role role = list_maker_role(k, i);
    if (!k->used[i] || (role != LORA_ROLE_SAVED && role != LORA_ROLE_BASE))
        return FSDPCK_OK;
    const char *name = lora_text(&k->set, t->base);
    const uint32_t base = lora_set_find_base(&k->set, name, strtab_nbytes(&k->set.names, t->base));
    lora_shape old, made;
    if (base == LORA_NONE || base < k->own)
        return FSDPCK_OK; /* it is its own base: not replaced */
    old.ndim = list_maker_shape(k, base, &old.dims)->ndim;
    made.ndim = list_maker_shape(k, i, &made.dims)->ndim;
    return lora_check_replacing(name, lora_text(&k->set, t->saved), old, made, err);
}

/* Embeddings come first, as in models: an output projection that is tied to one gets both changes. Encoders come before
 * decoders, which may have the same embedding. */
enum { ORDER_EMBEDDINGS, ORDER_DECODER, ORDER_OTHERS, ORDERS };

static unsigned order_of(const list_maker *k, const lora_module *m)
{
    const char *path = list_maker_path(k, m);
    const size_t n = strlen(path);
    if (m->kind != LORA_EMBEDDING && (m->kind != LORA_TOKENS || lora_is_head(path, n)))
        return ORDER_OTHERS;
    return text_ends_with(path, n, "decoder.embed_tokens") ? ORDER_DECODER : ORDER_EMBEDDINGS;
}

/* The modules of one adapter that have this order. */
static fsdpck_status add_modules(list_maker *k, unsigned order, fsdpck_error *err)
{
    for (uint32_t i = 0; i < lora_module_count(&k->set); i++) {
        const lora_module *m = lora_module_at(&k->set, i);
        if (m->adapter != k->adapter || order_of(k, m) != order)
            continue;
        if (m->kind == LORA_TOKENS)
            RETURN_IF(add_tokens(k, i, err));
        else if (m->kind != LORA_SAVED)
            RETURN_IF(add_product(k, i, err));
    }
    return FSDPCK_OK;
}

fsdpck_status list_maker_add_modules(list_maker *k, fsdpck_error *err)
{
    for (uint32_t i = 0; i < lora_tensor_count(&k->set); i++)
        RETURN_IF(add_replaced(k, i, false, err));
    for (uint32_t i = 0; i < lora_tensor_count(&k->set); i++)
        RETURN_IF(add_replaced(k, i, true, err));
    RETURN_IF(list_maker_find_pairs(k, err));
    for (unsigned order = 0; order < ORDERS; order++)
        RETURN_IF(add_modules(k, order, err));
    for (uint32_t i = 0; i < lora_tensor_count(&k->set); i++)
        RETURN_IF(check_replaced(k, i, err));
    return FSDPCK_OK;
}
