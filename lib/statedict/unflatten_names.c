#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "state/tensor_rank_suffix.h"
#include "statedict/unflatten_internal.h"

static const char *const flat_names[] = {"_flat_param", "flat_param"};

static size_t last_part_at(const char *text, size_t nbytes)
{
    while (nbytes > 0 && text[nbytes - 1] != '.')
        nbytes--;
    return nbytes;
}

/* fairscale numbers the flat parameters of a module: 'flat_param_0'. */
static size_t without_number(const char *text, size_t nbytes)
{
    size_t end = nbytes;
    while (end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9')
        end--;
    return end > 0 && end < nbytes && text[end - 1] == '_' ? end - 1 : nbytes;
}

bool flat_name_is_flat(const char *text, size_t nbytes)
{
    const size_t at = last_part_at(text, nbytes);
    nbytes = without_number(text, nbytes);
    return TEXT_IS_IN(text + at, nbytes - at, flat_names);
}

void flat_name_read(const catalogue *c, uint32_t tensor, flat_name *n)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    size_t nbytes = catalogue_name_nbytes(c, t->name);

    *n = (flat_name){.text = catalogue_name(c, t->name), .rank = CAT_NONE};
    if (t->flags & CAT_TENSOR_OF_RANK)
        n->rank = name_cut_rank(n->text, &nbytes);
    n->key_nbytes = nbytes;
    const size_t count = value_count(&c->pool, t->path);
    if (count == 0)
        return;
    size_t last_nbytes;
    const char *last = value_text(&c->pool, value_item(&c->pool, t->path, count - 1), &last_nbytes);
    if (last == NULL)
        return;
    if (n->rank != CAT_NONE)
        (void)name_cut_rank(last, &last_nbytes);
    if (last_nbytes > nbytes || memcmp(n->text + nbytes - last_nbytes, last, last_nbytes) != 0)
        return;
    n->key_at = nbytes - last_nbytes;
    n->key_nbytes = last_nbytes;
}

/* Without a path, outer keys precede the model's own name: the fewest that give a name of a unit.
 */
static const unit *find_unit(const unit_list *l, const char *text, size_t nbytes, bool has_path,
                             size_t *outer_nbytes)
{
    const size_t end = last_part_at(text, nbytes);
    size_t at = 0;

    for (;;) {
        const unit *u = unit_list_find(l, text + at, end > at ? end - at - 1 : 0);
        *outer_nbytes = at;
        if (u != NULL || at >= end)
            return u;
        if (has_path && (at > 0 || end < 7 || memcmp(text, "module.", 7) != 0))
            return NULL; /* only DDP's prefix may be there */
        while (at < end && text[at] != '.')
            at++;
        at++;
    }
}

fsdpck_status flat_name_unit(const flat_adapter *v, const flat_name *n, const unit **u,
                             bool *is_flat, text_buf *outer, fsdpck_error *err)
{
    text_buf clean = {0};
    size_t outer_nbytes = 0;

    *u = NULL;
    *is_flat = flat_name_is_flat(n->text + n->key_at, n->key_nbytes);
    outer->nbytes = 0;
    const bool keyed = unit_count(v->units) > 0 && unit_at(v->units, 0)->keyed;
    if (!*is_flat && !keyed)
        return FSDPCK_OK;
    fqn_clean(n->text + n->key_at, n->key_nbytes, false, &clean);
    fsdpck_status st = text_check(&clean, err);
    if (st == FSDPCK_OK && keyed) {
        *u = unit_list_find(v->units, clean.text, clean.nbytes);
        *is_flat = *is_flat || *u != NULL;
        text_append(outer, n->text, n->key_at);
        st = text_check(outer, err);
    } else if (st == FSDPCK_OK) {
        *u = find_unit(v->units, clean.text, clean.nbytes, n->key_at > 0, &outer_nbytes);
        text_append(outer, n->text, n->key_at);
        text_append(outer, clean.text, *u == NULL ? 0 : outer_nbytes);
        st = text_check(outer, err);
    }
    text_release(&clean);
    return st;
}

bool flat_path_numbered(const value_pool *pool, value path, bool by_text, size_t *depth,
                        uint32_t *number)
{
    const size_t count = value_count(pool, path);
    size_t nbytes;
    uint64_t n = 0;

    if (count < 3 || !value_is_str(pool, value_item(pool, path, count - 3), "state"))
        return false;
    const value v = value_item(pool, path, count - 2);
    const bool fits = value_kind_of(v) == VALUE_BYTES || (by_text && value_kind_of(v) == VALUE_STR);
    const char *text = fits ? value_text(pool, v, &nbytes) : NULL;
    if (text == NULL || nbytes == 0 || nbytes > 9)
        return false;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    *depth = count - 3;
    *number = (uint32_t)n;
    return true;
}

/* With more candidates than this the search for namesakes is skipped: a model has at most one
 * parameter of that name. */
#define NAMESAKES_TRIED 256u

static bool is_buffer(const char *name, size_t nbytes)
{
    static const char *const buffers[] = {"running_mean", "running_var", "inv_freq"};
    const size_t at = last_part_at(name, nbytes);
    return TEXT_IS_IN(name + at, nbytes - at, buffers);
}

/* Whether a tensor is `flat_param` or `flat_param_0` only by name: its module has other parameters,
 * which FSDP would have flattened, in the same form: whole, or in shards. A whole tensor next to
 * shards may be a buffer. `_flat_param` is torch's own name. */
static bool is_namesake(const catalogue *cat, const cat_tensor *t, const flat_name *n)
{
    const size_t module = last_part_at(n->text, n->key_at + n->key_nbytes);
    if (n->text[module] == '_' || (t->flags & CAT_TENSOR_OF_RANK))
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *k = catalogue_tensor(cat, i);
        const char *name = catalogue_name(cat, k->name);
        const size_t nbytes = catalogue_name_nbytes(cat, k->name);
        if (k->ndim > 0 && dtype_get((dtype)k->dtype)->kind == DTYPE_IS_FLOAT &&
            !(k->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) && nbytes > module &&
            memcmp(name, n->text, module) == 0 && !flat_name_is_flat(name, nbytes) &&
            !is_buffer(name, nbytes) && (t->nchunks <= 1 || k->nchunks > 1))
            return true;
    }
    return false;
}

/* *namesakes: number of tensors with the name only. */
static uint64_t count_flat(const catalogue *cat, uint32_t *first, uint64_t *namesakes)
{
    uint64_t count = 0, tried = 0;
    *namesakes = 0;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        flat_name n;
        if (t->flags & CAT_TENSOR_IN_OBJECT)
            continue;
        flat_name_read(cat, (uint32_t)i, &n);
        if (t->ndim != 1 || !flat_name_is_flat(n.text + n.key_at, n.key_nbytes))
            continue;
        if (tried++ < NAMESAKES_TRIED && is_namesake(cat, t, &n))
            ++*namesakes;
        else if (count++ == 0 && first != NULL)
            *first = (uint32_t)i;
    }
    return count;
}

uint64_t flat_params_count(const catalogue *cat, uint32_t *first)
{
    uint64_t namesakes;
    return count_flat(cat, first, &namesakes);
}

uint64_t flat_params_namesakes(const catalogue *cat)
{
    uint64_t namesakes;
    (void)count_flat(cat, NULL, &namesakes);
    return namesakes;
}
