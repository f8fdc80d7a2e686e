#include <string.h>

#include "base/text.h"
#include "model/model_internal.h"

/* State of the selection, one item per module (parents: two). */
typedef struct chooser {
    model *m;
    const model_wrap *wrap;
    const model_sharding *root; /* of the module that has the policy */
    uint8_t *scopes;
    uint8_t *ignored;  /* of parameters */
    uint32_t *parents; /* tree of minima, to find the common ancestor of two modules */
    int64_t *numel;    /* of the parameters at and below it, each counted once */
    int64_t *wrapped;  /* of those that units below it took */
    uint8_t *visited;
} chooser;

static bool has_class(const chooser *c, uint32_t module, const char *const *names, size_t n)
{
    const uint32_t id = model_module_at(c->m, module)->class_name;
    if (id == MODEL_NONE)
        return false;
    const char *name = strtab_text(&c->m->classes, id);
    return text_is_one_of(name, strlen(name), names, n);
}

static bool is_container(const chooser *c, uint32_t module)
{
    static const char *const names[] = {"ModuleList", "ModuleDict"};
    return has_class(c, module, names, 2);
}

static bool is_leaf(const chooser *c, uint32_t module)
{
    static const char *const names[] = {"MultiheadAttention"};
    return has_class(c, module, names, 1);
}

static bool mixes_precision(const chooser *c)
{
    return c->root->param_dtype != DTYPE_NONE || c->root->reduce_dtype != DTYPE_NONE ||
           c->root->buffer_dtype != DTYPE_NONE;
}

/* Mixed precision excludes batch norms: they become separate units in full precision. */
static bool is_kept_precise(const chooser *c, uint32_t module)
{
    static const char *const names[] = {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
                                        "SyncBatchNorm"};
    return mixes_precision(c) && has_class(c, module, names, 4);
}

static fsdpck_status choose(chooser *c, uint32_t index, fsdpck_error *err)
{
    model_module *module = VEC_AT(&c->m->modules, model_module, index);
    model_sharding s = *c->root;
    if (is_kept_precise(c, index))
        s.param_dtype = s.reduce_dtype = s.buffer_dtype = DTYPE_NONE;
    RETURN_IF(vec_add(&c->m->shardings, &s, err));
    module->kinds |= MODULE_FSDP;
    module->sharding = (uint32_t)(c->m->shardings.count - 1);
    c->root = model_sharding_of(c->m, model_module_at(c->m, c->wrap->module));
    return FSDPCK_OK;
}

static bool may_wrap(const chooser *c, uint32_t module)
{
    return !(c->scopes[module] & (SCOPE_CLOSED | SCOPE_IGNORED)) &&
           model_module_at(c->m, module)->same_as == MODEL_NONE;
}

static fsdpck_status choose_by_class(chooser *c, uint32_t first, uint32_t end, fsdpck_error *err)
{
    /* Most models have a handful of classes, so each is looked up once. */
    const size_t nclasses = strtab_count(&c->m->classes);
    uint8_t *wanted = budget_alloc(c->m->owner, nclasses, err);
    if (wanted == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < c->wrap->classes.count; i++)
        wanted[*VEC_AT(&c->wrap->classes, const uint32_t, i)] = 1;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = first; i < end && st == FSDPCK_OK; i++) {
        const uint32_t id = model_module_at(c->m, i)->class_name;
        if (may_wrap(c, i) && ((id != MODEL_NONE && wanted[id]) || is_kept_precise(c, i)))
            st = choose(c, i, err);
    }
    budget_free(c->m->owner, wanted, nclasses);
    return st;
}

static void build_parents(chooser *c)
{
    const uint32_t count = model_module_count(c->m);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t parent = model_module_at(c->m, i)->parent;
        c->parents[count + i] = parent == MODEL_NONE ? 0 : parent;
    }
    for (uint32_t i = count - 1; i > 0; i--) {
        const uint32_t a = c->parents[2 * i];
        const uint32_t b = c->parents[2 * i + 1];
        c->parents[i] = a < b ? a : b;
    }
}

/* In pre-order this is the smallest parent of the modules after a up to b, a < b. */
static uint32_t common_ancestor(const chooser *c, uint32_t a, uint32_t b)
{
    if (a == b)
        return a;
    const uint32_t count = model_module_count(c->m);
    uint32_t least = a;
    for (uint32_t l = a + 1 + count, r = b + 1 + count; l < r; l /= 2, r /= 2) {
        if (l & 1) {
            least = c->parents[l] < least ? c->parents[l] : least;
            l++;
        }
        if (r & 1) {
            r--;
            least = c->parents[r] < least ? c->parents[r] : least;
        }
    }
    return least;
}

/* A parameter with several names counts once in each subtree: duplicates are subtracted where two
 * names meet. The reader has checked that the sum fits. */
static void count_numel(chooser *c)
{
    const model *m = c->m;
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const model_param *p = model_param_at(m, i);
        if (p->same_as != MODEL_NONE || c->ignored[i])
            continue;
        const int64_t numel = (int64_t)box_nelems(model_shape(m, p->shape_at), p->ndim);
        c->numel[p->module] += numel;
        for (uint32_t k = p->next_name; k != MODEL_NONE;) {
            const model_param *next = model_param_at(m, k);
            c->numel[next->module] += numel;
            c->numel[common_ancestor(c, p->module, next->module)] -= numel;
            p = next;
            k = next->next_name;
        }
    }
    for (uint32_t i = model_module_count(m); i-- > 1;)
        c->numel[model_module_at(m, i)->parent] += c->numel[i];
}

static bool goes_below(const chooser *c, uint32_t module)
{
    if (mixes_precision(c))
        return true;
    return (uint64_t)c->numel[module] >= c->wrap->min_numel && !is_leaf(c, module);
}

static fsdpck_status choose_by_size(chooser *c, uint32_t first, uint32_t end, fsdpck_error *err)
{
    build_parents(c);
    count_numel(c);
    c->visited[first - 1] = goes_below(c, first - 1);
    for (uint32_t i = first; i < end; i++)
        c->visited[i] =
            c->visited[model_module_at(c->m, i)->parent] && may_wrap(c, i) && goes_below(c, i);
    for (uint32_t i = end; i-- > first;) {
        if (!c->visited[i])
            continue;
        const int64_t rest = c->numel[i] - c->wrapped[i];
        const bool large = rest >= 0 && (uint64_t)rest >= c->wrap->min_numel;
        if ((large && !is_container(c, i)) || is_kept_precise(c, i)) {
            RETURN_IF(choose(c, i, err));
            c->wrapped[i] = c->numel[i];
        }
        c->wrapped[model_module_at(c->m, i)->parent] += c->wrapped[i];
    }
    return FSDPCK_OK;
}

static fsdpck_status check_plain(const chooser *c, uint32_t first, uint32_t end, fsdpck_error *err)
{
    for (uint32_t i = first; i < end; i++) {
        const model_module *module = model_module_at(c->m, i);
        if (!(module->kinds & (MODULE_FSDP | MODULE_FULLY_SHARD)))
            continue;
        return FAIL_WITH(err, BADINPUT, MODEL_WRAP, ("auto_wrap is above a wrapped module"),
                         (offset, c->wrap->offset_bytes),
                         (tensor, model_name(c->m, module->name, NULL)),
                         (expected, "no 'fsdp' below the module of the policy"), (found, "one"),
                         (next, "give either the policy or the modules that it selected"));
    }
    return FSDPCK_OK;
}

fsdpck_status model_apply_wrap(model *m, const model_wrap *wrap, fsdpck_error *err)
{
    const uint64_t nmodules = m->modules.count;
    const uint64_t nparams = m->params.count;
    const model_module *root = model_module_at(m, wrap->module);
    const uint32_t first = wrap->module + 1;
    const uint32_t end = root->next;
    chooser c = {.m = m, .wrap = wrap, .root = model_sharding_of(m, root)};
    RETURN_IF(check_plain(&c, first, end, err));
    /* One block: 8 bytes per module for each of the sums and the tree, then flags. */
    const uint64_t nbytes = nmodules * (8 + 8 + 8 + 2) + nparams;
    uint8_t *block = budget_alloc(m->owner, nbytes, err);
    if (block == NULL)
        return FSDPCK_LIMIT;
    c.numel = (int64_t *)(void *)block;
    c.wrapped = c.numel + nmodules;
    c.parents = (uint32_t *)(void *)(c.wrapped + nmodules);
    c.scopes = (uint8_t *)(c.parents + 2 * nmodules);
    c.visited = c.scopes + nmodules;
    c.ignored = c.visited + nmodules;
    model_find_scopes(m, c.scopes, c.ignored);
    const fsdpck_status st =
        wrap->by_size ? choose_by_size(&c, first, end, err) : choose_by_class(&c, first, end, err);
    budget_free(m->owner, block, nbytes);
    return st;
}
