/* merge_modules.c: the changes that the modules of an adapter make, as PEFT's layers merge them. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_internal.h"
#include "lora/merge_list_internal.h"

static const cat_tensor *tensor_of(const list_maker *k, uint32_t index, const uint64_t **shape)
{
    const uint32_t t = lora_cat_tensor(&k->set, index);
    *shape = catalogue_shape(&k->joined, t);
    return catalogue_tensor(&k->joined, t);
}

static const char *path_of(const list_maker *k, const lora_module *m)
{
    return lora_text(&k->set, m->path);
}

static fsdpck_status fail_pair(const list_maker *k, const lora_module *m, const char *part,
                               fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_PAIR, ("'%s' has no %s", path_of(k, m), part),
                     (tensor, path_of(k, m)));
}

static fsdpck_status fail_kind(const list_maker *k, const lora_module *m, const char *what,
                               fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, LORA_KIND,
                     ("the adapter of '%s' has %s, which cannot be merged", path_of(k, m), what),
                     (tensor, path_of(k, m)), (next, "merge it with PEFT"));
}

/* --- numbers --- */

static fsdpck_status check_rank(const list_maker *k, const lora_module *m, uint64_t rank,
                                const lora_numbers *n, fsdpck_error *err)
{
    if (rank == n->r)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, LORA_RANK,
        ("'%s' has rank %" PRIu64 ", but its config has %" PRIu64, path_of(k, m), rank, n->r),
        (tensor, path_of(k, m)));
}

static void note_scale(merge_request *r, double scale)
{
    if (r->modules == 0 || scale < r->least_scale)
        r->least_scale = scale;
    if (r->modules == 0 || scale > r->largest_scale)
        r->largest_scale = scale;
    r->modules++;
}

/* --- the orientation of a weight --- */

enum { FITS = 1, FITS_TRANSPOSED = 2 };

/* As [.., out, in], as [.., in, out], or both. */
static unsigned orientations(const list_maker *k, const lora_module *m)
{
    const uint64_t *a, *b, *w;
    const cat_tensor *ta = tensor_of(k, m->a, &a), *tb = tensor_of(k, m->b, &b);
    const cat_tensor *tw = tensor_of(k, m->base_weight, &w);
    if (ta->ndim < 2 || tb->ndim < 2 || tw->ndim < 2)
        return 0;
    const unsigned row = m->kind == LORA_PARAMETER && tw->ndim == 3 ? 1 : 0;
    const uint64_t in = box_nelems(a + 1, ta->ndim - 1), out = b[0];
    const uint64_t columns = box_nelems(w + row + 1, tw->ndim - row - 1);
    const bool two = tw->ndim == row + 2;
    return (w[row] == out && columns == in ? FITS : 0u) |
           (two && w[row] == in && columns == out ? FITS_TRANSPOSED : 0u);
}

/* What the other modules of the adapter of this kind show, by non-square weights: of a parameter those of the same
 * path. *last: a module with such a weight, or NULL. */
static unsigned shown_by_others(const list_maker *k, const lora_module *m, const lora_module **last)
{
    unsigned shown = 0;
    *last = NULL;
    for (size_t i = 0; i < lora_module_count(&k->set); i++) {
        const lora_module *o = lora_module_at(&k->set, i);
        if (o->adapter != m->adapter || o->kind != m->kind || o->a == LORA_NONE ||
            o->b == LORA_NONE || o->base_weight == LORA_NONE ||
            (m->kind == LORA_PARAMETER && o->path != m->path) ||
            lora_is_head(path_of(k, o), strlen(path_of(k, o))))
            continue;
        const unsigned fits = orientations(k, o);
        if (fits != FITS && fits != FITS_TRANSPOSED)
            continue;
        shown |= fits;
        *last = o;
    }
    return shown;
}

/* An output projection is a linear module; PEFT sets fan_in_fan_out to false for an adapter of one and of Conv1D. */
static bool has_head(const list_maker *k, const lora_module *of)
{
    for (size_t i = 0; i < lora_module_count(&k->set); i++) {
        const lora_module *m = lora_module_at(&k->set, i);
        const char *path = path_of(k, m);
        if (m->adapter == of->adapter && m->kind == LORA_LINEAR && lora_is_head(path, strlen(path)))
            return true;
    }
    return false;
}

static fsdpck_status fail_shape(const list_maker *k, const lora_module *m, fsdpck_error *err)
{
    const uint64_t *a, *b;
    const cat_tensor *ta = tensor_of(k, m->a, &a), *tb = tensor_of(k, m->b, &b);
    (void)tb;
    return FAIL_WITH(err, BADINPUT, LORA_SHAPE,
                     ("the adapter of '%s' has %" PRIu64 " inputs and %" PRIu64
                      " outputs, unlike the weight",
                      path_of(k, m), ta->ndim > 1 ? box_nelems(a + 1, ta->ndim - 1) : 0, b[0]),
                     (tensor, path_of(k, m)));
}

static fsdpck_status fail_square(const list_maker *k, const lora_module *m, const char *next,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_SHAPE,
                     ("the weight of '%s' is square, so its shape does not show which dim is the "
                      "inputs",
                      path_of(k, m)),
                     (tensor, path_of(k, m)), (next, "%s", next));
}

/* PEFT transposes weights of Conv1D alone, whatever the config says. */
static fsdpck_status fail_transposed(const list_maker *k, const lora_module *m,
                                     const lora_module *other, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                     ("'fan_in_fan_out' of the adapter's config contradicts the weights: that of "
                      "'%s' is square, and that of '%s' is [out, in]",
                      path_of(k, m), path_of(k, other)),
                     (tensor, path_of(k, m)), (expected, "false"), (found, "true"),
                     (next, "set fan_in_fan_out to false in the adapter's config, or merge it with "
                            "PEFT if only some weights are [in, out]"));
}

static fsdpck_status find_orientation(const list_maker *k, const lora_module *m, bool *transposed,
                                      fsdpck_error *err)
{
    const unsigned fits = m->kind == LORA_EMBEDDING ? FITS_TRANSPOSED : orientations(k, m);
    *transposed = fits == FITS_TRANSPOSED;
    if (fits == 0)
        return fail_shape(k, m, err);
    if (fits != (FITS | FITS_TRANSPOSED))
        return FSDPCK_OK;
    const uint64_t *w;
    const lora_module *other;
    const unsigned others = shown_by_others(k, m, &other);
    if (m->kind == LORA_PARAMETER) {
        /* Of two dims it is [out, in]; the experts of one module have one order. */
        *transposed = others == FITS_TRANSPOSED;
        if (tensor_of(k, m->base_weight, &w)->ndim == 3 && others != FITS &&
            others != FITS_TRANSPOSED)
            return fail_square(k, m, "merge it with PEFT", err);
        return FSDPCK_OK;
    }
    *transposed =
        k->request->config->fan_in_fan_out || (others == FITS_TRANSPOSED && has_head(k, m));
    if (!*transposed && (others & FITS_TRANSPOSED))
        return fail_square(k, m, "set fan_in_fan_out in adapter_config.json", err);
    if (*transposed && others == FITS)
        return fail_transposed(k, m, other, err);
    return FSDPCK_OK;
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
        list_maker_note_missing(k, path_of(k, m));
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
    const cat_tensor *ta = tensor_of(k, m->a, &a), *tw = tensor_of(k, m->base_weight, &w);
    const uint64_t experts = m->kind == LORA_PARAMETER && tw->ndim == 3 ? w[0] : 1;
    s.rank = ta->ndim > 0 && experts > 0 ? a[0] / experts : 0;
    RETURN_IF(list_maker_numbers(k, m, &n, err));
    RETURN_IF(check_rank(k, m, s.rank, &n, err));
    RETURN_IF(find_orientation(k, m, &s.transposed, err));
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
        list_maker_note_missing(k, path_of(k, m));
        return FSDPCK_OK;
    }
    s.a = list_maker_use(k, m->tokens);
    const lora_module *owner =
        lora_module_at(&k->set, lora_tokens_owner(&k->set, &k->joined, k->request->config, index));
    RETURN_IF(merge_token_rows(k->request->config, path_of(k, owner),
                               strtab_nbytes(&k->set.names, owner->path), rows, err));
    s.row_count = rows->count - s.first_row;
    /* PEFT trains rows of the embedding for the output projection too, but not the other way round. */
    const bool is_own = owner == m && lora_is_head(path_of(k, m), strlen(path_of(k, m)));
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
    old.ndim = tensor_of(k, base, &old.dims)->ndim;
    made.ndim = tensor_of(k, i, &made.dims)->ndim;
    return lora_check_replacing(name, lora_text(&k->set, t->saved), old, made, err);
}

/* Embeddings come first, as in models: an output projection that is tied to one gets both changes. Encoders come before
 * decoders, which may have the same embedding. */
enum { ORDER_EMBEDDINGS, ORDER_DECODER, ORDER_OTHERS, ORDERS };

static unsigned order_of(const list_maker *k, const lora_module *m)
{
    const char *path = path_of(k, m);
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
