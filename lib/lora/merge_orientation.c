/* merge_orientation.c: whether a weight is [out, in], as of nn.Linear, or [in, out], as of Conv1D of transformers. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"
#include "lora/merge_list_internal.h"

enum { FITS = 1, FITS_TRANSPOSED = 2 };

/* As [.., out, in], as [.., in, out], or both. */
static unsigned orientations(const list_maker *k, const lora_module *m)
{
    const uint64_t *a, *b, *w;
    const cat_tensor *ta = list_maker_shape(k, m->a, &a), *tb = list_maker_shape(k, m->b, &b);
    const cat_tensor *tw = list_maker_shape(k, m->base_weight, &w);
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
            lora_is_head(list_maker_path(k, o), strlen(list_maker_path(k, o))))
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
        const char *path = list_maker_path(k, m);
        if (m->adapter == of->adapter && m->kind == LORA_LINEAR && lora_is_head(path, strlen(path)))
            return true;
    }
    return false;
}

static fsdpck_status fail_shape(const list_maker *k, const lora_module *m, fsdpck_error *err)
{
    const uint64_t *a, *b;
    const cat_tensor *ta = list_maker_shape(k, m->a, &a), *tb = list_maker_shape(k, m->b, &b);
    (void)tb;
    return FAIL_WITH(
        err, BADINPUT, LORA_SHAPE,
        ("the adapter of '%s' has %" PRIu64 " inputs and %" PRIu64 " outputs, unlike the weight",
         list_maker_path(k, m), ta->ndim > 1 ? box_nelems(a + 1, ta->ndim - 1) : 0, b[0]),
        (tensor, list_maker_path(k, m)));
}

static fsdpck_status fail_square(const list_maker *k, const lora_module *m, const char *next,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_SHAPE,
                     ("the weight of '%s' is square, so its shape does not show which dim is the "
                      "inputs",
                      list_maker_path(k, m)),
                     (tensor, list_maker_path(k, m)), (next, "%s", next));
}

/* PEFT transposes weights of Conv1D alone, whatever the config says. */
static fsdpck_status fail_transposed(const list_maker *k, const lora_module *m,
                                     const lora_module *other, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                     ("'fan_in_fan_out' of the adapter's config contradicts the weights: that of "
                      "'%s' is square, and that of '%s' is [out, in]",
                      list_maker_path(k, m), list_maker_path(k, other)),
                     (tensor, list_maker_path(k, m)), (expected, "false"), (found, "true"),
                     (next, "set fan_in_fan_out to false in the adapter's config, or merge it with "
                            "PEFT if only some weights are [in, out]"));
}

/* Bytes that both begin with, to the last dot: the path of the module around both. */
static size_t shared_path(const char *a, const char *b)
{
    size_t shared = 0;
    for (size_t i = 0; a[i] == b[i] && a[i] != '\0'; i++)
        if (a[i] == '.')
            shared = i + 1;
    return shared;
}

/* Of a weight of the base model: FITS or FITS_TRANSPOSED if the length of its bias is that of one dim; FITS for one
 * without bias; else 0. */
static fsdpck_status shown_by_bias(const list_maker *k, const char *name, const uint64_t *shape,
                                   unsigned *fits, bool *has_bias, fsdpck_error *err)
{
    const uint64_t *length;
    text_buf bias = {0};
    text_append(&bias, name, strlen(name) - strlen("weight"));
    text_puts(&bias, "bias");
    const fsdpck_status st = text_check(&bias, err);
    const uint32_t i =
        st == FSDPCK_OK ? lora_set_find_base(&k->set, bias.text, bias.nbytes) : LORA_NONE;
    text_release(&bias);
    *has_bias = i != LORA_NONE;
    *fits = *has_bias ? 0 : FITS;
    if (*has_bias && list_maker_shape(k, i, &length)->ndim == 1 && shape[0] != shape[1])
        *fits =
            (length[0] == shape[0] ? FITS : 0u) | (length[0] == shape[1] ? FITS_TRANSPOSED : 0u);
    return st;
}

/* Conv1D always has a bias, so a weight without one is that of a linear module. Otherwise the weights in the smallest
 * module around it decide that show their orientation: those with a bias before those of the same layer without.
 * 0: none does, or they contradict each other. */
static fsdpck_status shown_by_base(const list_maker *k, const lora_module *m, unsigned *shown,
                                   fsdpck_error *err)
{
    const char *path = list_maker_path(k, m);
    const lora_layer_number layer = lora_first_number(path, strlen(path));
    size_t nearest = 0, nearest_plain = 0;
    *shown = m->base_bias == LORA_NONE || m->holder != LORA_NONE ? FITS : 0;
    if (*shown != 0)
        return FSDPCK_OK;
    for (uint32_t i = 0; i < lora_tensor_count(&k->set); i++) {
        const uint64_t *shape;
        const char *name = lora_text(&k->set, lora_tensor_at(&k->set, i)->base);
        const size_t n = shared_path(path, name);
        unsigned fits;
        bool has_bias;
        if ((n < nearest && n <= nearest_plain) || list_maker_role(k, i) != LORA_ROLE_BASE ||
            !text_ends_with(name, strlen(name), ".weight") ||
            list_maker_shape(k, i, &shape)->ndim != 2)
            continue;
        RETURN_IF(shown_by_bias(k, name, shape, &fits, &has_bias, err));
        if (!has_bias && layer.nnumbers > 0 && n > layer.begin && n > nearest_plain)
            nearest_plain = n;
        if (!has_bias || fits == 0 || n < nearest)
            continue;
        *shown = n > nearest ? fits : *shown | fits;
        nearest = n;
    }
    if (nearest_plain > nearest)
        *shown = FITS;
    if (*shown == (FITS | FITS_TRANSPOSED))
        *shown = 0;
    return FSDPCK_OK;
}

static fsdpck_status find_linear(const list_maker *k, const lora_module *m, bool *transposed,
                                 fsdpck_error *err)
{
    const lora_config *config = k->request->config;
    const lora_module *other;
    const unsigned others = shown_by_others(k, m, &other);
    unsigned base;
    if (config->fan_in_fan_out && others == FITS)
        return fail_transposed(k, m, other, err);
    RETURN_IF(shown_by_base(k, m, &base, err));
    *transposed = base != 0
                      ? base == FITS_TRANSPOSED
                      : config->fan_in_fan_out || (others == FITS_TRANSPOSED && has_head(k, m));
    if (base != 0 || *transposed || others == FITS || k->list->names_only)
        return FSDPCK_OK;
    if (others != 0)
        return fail_square(k, m, "set fan_in_fan_out in adapter_config.json", err);
    if (config->is_made)
        return fail_square(k, m,
                           "give the adapter_config.json of the training with --adapter-config, or "
                           "--fan-in-fan-out for a weight of Conv1D",
                           err);
    return FSDPCK_OK;
}

fsdpck_status list_maker_orientation(const list_maker *k, const lora_module *m, bool *transposed,
                                     fsdpck_error *err)
{
    const unsigned fits = m->kind == LORA_EMBEDDING ? FITS_TRANSPOSED : orientations(k, m);
    *transposed = fits == FITS_TRANSPOSED;
    if (fits == 0)
        return fail_shape(k, m, err);
    if (fits != (FITS | FITS_TRANSPOSED))
        return FSDPCK_OK;
    if (m->kind != LORA_PARAMETER)
        return find_linear(k, m, transposed, err);
    const uint64_t *w;
    const lora_module *other;
    const unsigned others = shown_by_others(k, m, &other);
    /* Of two dims it is [out, in]; the experts of one module have one order. */
    *transposed = others == FITS_TRANSPOSED;
    if (list_maker_shape(k, m->base_weight, &w)->ndim == 3 && others != FITS &&
        others != FITS_TRANSPOSED)
        return fail_square(k, m, "merge it with PEFT", err);
    return FSDPCK_OK;
}
