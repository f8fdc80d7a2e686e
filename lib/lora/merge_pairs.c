/* merge_pairs.c: products that the training had in two tied weights. With ensure_weight_tying, PEFT trains the factors of an
 * embedding transposed for the output projection too. A model that was moved to another device during the training has lost
 * this: then both differ.
 * Source: peft 0.21.2 (tuners/lora/layer.py: tied_adapter). */
#include <string.h>

#include "lora/lora_internal.h"
#include "lora/merge_equal.h"
#include "lora/merge_list_internal.h"

static bool has_product(const list_maker *k, const lora_module *m, lora_kind kind)
{
    return m->adapter == k->adapter && m->kind == (uint32_t)kind && m->a != LORA_NONE &&
           m->b != LORA_NONE && m->a_bias == LORA_NONE && m->b_bias == LORA_NONE &&
           m->magnitude == LORA_NONE && m->base_weight != LORA_NONE;
}

static bool are_transposed(const list_maker *k, uint32_t one, uint32_t other)
{
    const uint32_t a = lora_cat_tensor(&k->set, one), b = lora_cat_tensor(&k->set, other);
    const uint64_t *x = catalogue_shape(&k->joined, a), *y = catalogue_shape(&k->joined, b);
    return catalogue_tensor(&k->joined, a)->ndim == 2 &&
           catalogue_tensor(&k->joined, b)->ndim == 2 && x[0] == y[1] && x[1] == y[0];
}

static fsdpck_status fail_remote(const list_maker *k, const lora_module *m, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, LORA_TIED,
                     ("adapter '%s' has products for an embedding and for '%s', and files of other "
                      "hosts cannot be compared: ensure_weight_tying may have made them one",
                      strtab_text(&k->list->adapters, k->request->adapter_name),
                      lora_text(&k->set, m->path)),
                     (next, "merge on a host that has all files"));
}

/* Whether `linear` has the product of `embedding`. */
static fsdpck_status is_pair(const list_maker *k, const lora_module *embedding,
                             const lora_module *linear, bool *pair, fsdpck_error *err)
{
    const merge_input *in = VEC_AT(&k->list->inputs, const merge_input, k->input);
    const uint32_t one[] = {linear->a, embedding->a}, other[] = {embedding->b, linear->b};
    lora_numbers first, second;
    *pair = are_transposed(k, one[0], other[0]) && are_transposed(k, one[1], other[1]);
    if (!*pair)
        return FSDPCK_OK;
    if (k->list->no_reading)
        return fail_remote(k, linear, err);
    RETURN_IF(list_maker_numbers(k, embedding, &first, err));
    RETURN_IF(list_maker_numbers(k, linear, &second, err));
    *pair = first.scaling >= second.scaling && first.scaling <= second.scaling;
    for (size_t i = 0; i < 2 && *pair; i++)
        RETURN_IF(merge_is_transpose(in->cat, in->src, list_maker_tensor(k, one[i]),
                                     list_maker_tensor(k, other[i]), k->owner, pair, err));
    return FSDPCK_OK;
}

fsdpck_status list_maker_find_pairs(list_maker *k, fsdpck_error *err)
{
    const size_t count = lora_module_count(&k->set);
    k->together = budget_alloc(k->owner, count + 1, err);
    if (k->together == NULL)
        return FSDPCK_LIMIT;
    memset(k->together, MERGE_ALONE, count + 1);
    const bool may_be = k->request->config->ties_tokens && !k->list->names_only;
    for (size_t i = 0; i < count && may_be; i++) {
        const lora_module *embedding = lora_module_at(&k->set, i);
        for (size_t j = 0; j < count && has_product(k, embedding, LORA_EMBEDDING); j++) {
            const lora_module *linear = lora_module_at(&k->set, j);
            bool pair = false;
            if (k->together[j] == MERGE_ALONE && has_product(k, linear, LORA_LINEAR))
                RETURN_IF(is_pair(k, embedding, linear, &pair, err));
            if (!pair)
                continue;
            k->together[i] = MERGE_TOGETHER;
            k->together[j] = MERGE_AGAIN;
        }
    }
    return FSDPCK_OK;
}
