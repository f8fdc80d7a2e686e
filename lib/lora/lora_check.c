#include "lora/lora_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

typedef struct check_state {
    const lora_set *set;
    const catalogue *c;
    uint32_t adapter;
    const lora_config *config; /* or NULL */
    lora_found_fn found;
    void *ctx;
    bool has_magnitude;
    bool has_linear; /* a module is of torch's class, whose weight is [out, in] */
} check_state;

/* Hands a fault on. */
#define REPORT(s, err, status, finding, ...)                    \
    do {                                                        \
        fsdpck_error fault_ = FSDPCK_ERROR_INIT;                \
        (void)FAIL_WITH(&fault_, status, finding, __VA_ARGS__); \
        RETURN_IF((s)->found((s)->ctx, &fault_, err));          \
    } while (0)

static const char *name_of(const check_state *s, uint32_t i)
{
    return catalogue_name(s->c, catalogue_tensor(s->c, lora_cat_tensor(s->set, i))->name);
}

static const uint64_t *shape_of(const check_state *s, uint32_t i, unsigned *ndim)
{
    const uint32_t t = lora_cat_tensor(s->set, i);
    *ndim = catalogue_tensor(s->c, t)->ndim;
    return catalogue_shape(s->c, t);
}

/* ---- pairs ---- */

static fsdpck_status check_pair(const check_state *s, const lora_module *m, fsdpck_error *err)
{
    const char *path = lora_text(s->set, m->path);
    const bool b_alone = m->a == LORA_NONE;
    if (b_alone != (m->b == LORA_NONE) || (b_alone && m->b == LORA_NONE)) {
        const uint32_t has = !b_alone ? m->a : m->b != LORA_NONE ? m->b : LORA_NONE;
        REPORT(s, err, BADINPUT, LORA_PAIR,
               ("module '%s' has %s", path,
                has == LORA_NONE ? "neither lora_A nor lora_B"
                : b_alone        ? "lora_B without lora_A"
                                 : "lora_A without lora_B"),
               (tensor, has == LORA_NONE ? path : name_of(s, has)),
               (next, "check that the checkpoint is complete, and save the adapter again"));
    }
    if (s->has_magnitude && m->magnitude == LORA_NONE && m->kind != LORA_PARAMETER)
        REPORT(s, err, BADINPUT, LORA_PAIR, ("module '%s' has no magnitude vector of DoRA", path),
               (expected, "a vector for each module, as other modules have one"),
               (next, "check that the checkpoint is complete, and save the adapter again"));
    return FSDPCK_OK;
}

/* ---- ranks ---- */

static bool fits_rank(uint64_t rows, uint64_t experts, uint64_t r)
{
    return experts == 0 ? r > 0 && rows % r == 0 : rows / experts == r;
}

/* Without the base model, the adapter of a parameter may belong to any one that the config names for its module, and
 * rank_pattern may give each another rank. */
static fsdpck_status fits_unnamed(const check_state *s, const lora_module *m, uint64_t rows,
                                  bool *fits, fsdpck_error *err)
{
    const char *path = lora_text(s->set, m->path), *leaf;
    const size_t nbytes = strtab_nbytes(&s->set->names, m->path);
    const uint64_t experts = lora_module_experts(s->set, s->c, m);
    text_buf key = {0};
    size_t n;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0;
         st == FSDPCK_OK && !*fits && m->kind == LORA_PARAMETER && m->parameter == LORA_NONE &&
         i < strtab_count(&s->config->target_parameters.texts);
         i++) {
        lora_numbers numbers = {0};
        if (!lora_target_leaf(s->config, i, path, nbytes, &leaf, &n))
            continue;
        key.nbytes = 0;
        text_append(&key, path, nbytes);
        text_puts(&key, ".");
        text_append(&key, leaf, n);
        st = text_check(&key, err);
        if (st == FSDPCK_OK)
            st = lora_config_numbers(s->config, key.text, key.nbytes, &numbers, err);
        *fits = fits_rank(rows, experts, numbers.r);
    }
    text_release(&key);
    return st;
}

static fsdpck_status check_rank_of_config(const check_state *s, const lora_module *m, uint64_t rows,
                                          fsdpck_error *err)
{
    text_buf key = {0};
    lora_numbers n = {0};
    fsdpck_status st = lora_module_key(s->set, m, &key, err);
    if (st == FSDPCK_OK)
        st = lora_config_numbers(s->config, key.text, key.nbytes, &n, err);
    text_release(&key);
    RETURN_IF(st);
    const uint64_t experts = lora_module_experts(s->set, s->c, m);
    bool fits = fits_rank(rows, experts, n.r);
    RETURN_IF(fits_unnamed(s, m, rows, &fits, err));
    if (fits)
        return FSDPCK_OK;
    const bool is_slice = experts == 1 && rows > 0 && n.r > rows && n.r % rows == 0;
    REPORT(s, err, BADINPUT, LORA_RANK,
           ("rank of module '%s' differs from the adapter's config%s", lora_text(s->set, m->path),
            is_slice ? ": one rank may have saved its own slice only" : ""),
           (tensor, name_of(s, m->a)), (expected, "rank %" PRIu64, n.r),
           (found, "%" PRIu64 " rows%s", rows, experts > 1 ? " for all experts" : ""),
           (next, is_slice ? "save the adapter again with a full state dict: no other file holds "
                             "the other rows"
                           : "give the config of this training with --adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_rank(const check_state *s, const lora_module *m, fsdpck_error *err)
{
    unsigned of_a, of_b;
    if (m->a == LORA_NONE)
        return FSDPCK_OK;
    const uint64_t *a = shape_of(s, m->a, &of_a);
    if (of_a < 2) {
        REPORT(s, err, BADINPUT, LORA_SHAPE,
               ("lora_A of module '%s' is no matrix", lora_text(s->set, m->path)),
               (tensor, name_of(s, m->a)), (found, "%u dim%s", of_a, of_a == 1 ? "" : "s"),
               (next, "save the adapter again with a full state dict"));
        return FSDPCK_OK;
    }
    if (m->b != LORA_NONE) {
        const uint64_t *b = shape_of(s, m->b, &of_b);
        /* Groups of a convolution divide the second dim, as do blocks. */
        const bool divides = of_a > 2 || (s->config != NULL && s->config->has_blocks);
        const bool fits =
            of_b == of_a && b[1] > 0 && a[0] > 0 && (b[1] == a[0] || (divides && a[0] % b[1] == 0));
        if (!fits)
            REPORT(s, err, BADINPUT, LORA_RANK,
                   ("lora_A and lora_B of module '%s' have different ranks",
                    lora_text(s->set, m->path)),
                   (tensor, name_of(s, m->b)), (expected, "%" PRIu64 ", the rows of lora_A", a[0]),
                   (found, "%" PRIu64 " columns of lora_B", of_b < 2 ? 0 : b[1]),
                   (next, "save the adapter again with a full state dict: one rank may have saved "
                          "its own slice only"));
        if (!fits)
            return FSDPCK_OK;
    }
    return s->config != NULL && s->config->has_r ? check_rank_of_config(s, m, a[0], err)
                                                 : FSDPCK_OK;
}

/* ---- shapes ---- */

static bool fits_matrix(const uint64_t *a, const uint64_t *b, const uint64_t *w, bool either)
{
    return (b[0] == w[0] && a[1] == w[1]) || (either && b[0] == w[1] && a[1] == w[0]);
}

/* Whether A and B make a delta of the weight's shape. */
static bool fits_base(const check_state *s, const lora_module *m, const uint64_t *w, unsigned ndim)
{
    unsigned of_a, of_b;
    const uint64_t *a = shape_of(s, m->a, &of_a), *b = shape_of(s, m->b, &of_b);
    if (of_a < 2 || of_b < 2)
        return true; /* reported as a rank */
    switch (m->kind) {
    case LORA_EMBEDDING:
        return ndim == 2 && a[1] == w[0] && b[0] == w[1];
    case LORA_PARAMETER:
        if (ndim == 3)
            return w[0] > 0 && a[0] % w[0] == 0 && fits_matrix(a, b, w + 1, true);
        return ndim == 2 && fits_matrix(a, b, w, false);
    case LORA_CONV:
        return of_a == ndim && a[1] == w[1] && b[0] == w[0] &&
               memcmp(a + 2, w + 2, (ndim - 2) * sizeof *w) == 0;
    default:
        /* Conv1D of transformers is [in, out], with fan_in_fan_out; PEFT sets that to false where the adapter has a linear
         * module too, as lm_head. */
        return ndim == 2 &&
               fits_matrix(a, b, w,
                           s->config == NULL || s->has_linear || s->config->fan_in_fan_out);
    }
}

static bool is_linear(const check_state *s, const lora_module *m)
{
    unsigned of_a, of_b, ndim;
    const char *path = lora_text(s->set, m->path);
    if (m->adapter != s->adapter || m->kind != LORA_LINEAR || m->a == LORA_NONE ||
        m->b == LORA_NONE)
        return false;
    const uint64_t *a = shape_of(s, m->a, &of_a), *b = shape_of(s, m->b, &of_b);
    if (lora_is_head(path, strlen(path)))
        return true;
    if (of_a != 2 || of_b != 2 || m->base_weight == LORA_NONE)
        return false;
    const uint64_t *w = shape_of(s, m->base_weight, &ndim);
    return ndim == 2 && fits_matrix(a, b, w, false);
}

static void find_linear(check_state *s)
{
    for (size_t i = 0; i < lora_module_count(s->set); i++)
        s->has_linear = s->has_linear || is_linear(s, lora_module_at(s->set, i));
}

static void print_shape(const uint64_t *dims, unsigned ndim, char *text, size_t capacity)
{
    size_t at = ndim == 0 ? 1 : 0;
    snprintf(text, capacity, "%s", ndim == 0 ? "[" : "");
    for (unsigned i = 0; i < ndim && at < capacity; i++) {
        const int n =
            snprintf(text + at, capacity - at, "%s%" PRIu64, i == 0 ? "[" : ", ", dims[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at + 1 < capacity)
        snprintf(text + at, capacity - at, "]");
}

static void print_tensor(const check_state *s, uint32_t tensor, char *text, size_t capacity)
{
    unsigned ndim;
    const uint64_t *dims = shape_of(s, tensor, &ndim);
    print_shape(dims, ndim, text, capacity);
}

static fsdpck_status check_tokens(const check_state *s, const lora_module *m, lora_shape w,
                                  fsdpck_error *err)
{
    unsigned of_rows;
    char base[120], rows[120];
    if (m->tokens == LORA_NONE)
        return FSDPCK_OK;
    const uint64_t *r = shape_of(s, m->tokens, &of_rows);
    if (w.ndim == 2 && of_rows == 2 && r[1] == w.dims[1] && r[0] <= w.dims[0])
        return FSDPCK_OK;
    print_shape(w.dims, w.ndim, base, sizeof base);
    print_tensor(s, m->tokens, rows, sizeof rows);
    REPORT(s, err, BADINPUT, LORA_SHAPE,
           ("trainable tokens of '%s' do not fit its weight", lora_text(s->set, m->path)),
           (tensor, name_of(s, m->tokens)), (expected, "rows of %s", base), (found, "%s", rows),
           (next, "give the base model that the adapter was trained on"));
    return FSDPCK_OK;
}

/* Weights of another adapter have another number of rows. A config without rows for the module is not decided here. */
static fsdpck_status check_token_count(const check_state *s, uint32_t index, fsdpck_error *err)
{
    const lora_module *m = lora_module_at(s->set, index);
    unsigned ndim;
    if (m->tokens == LORA_NONE || s->config == NULL || !s->config->has_tokens)
        return FSDPCK_OK;
    const uint64_t *shape = shape_of(s, m->tokens, &ndim);
    const lora_module *owner =
        lora_module_at(s->set, lora_tokens_owner(s->set, s->c, s->config, index));
    vec rows = VEC_OF(uint64_t, s->config->owner);
    const fsdpck_status st =
        lora_token_rows(s->config, lora_text(s->set, owner->path),
                        strtab_nbytes(&s->set->names, owner->path), &rows, err);
    const uint64_t count = rows.count;
    vec_release(&rows);
    if (st == FSDPCK_BADINPUT || (st == FSDPCK_OK && ndim == 2 && shape[0] == count))
        return FSDPCK_OK;
    RETURN_IF(st);
    REPORT(s, err, BADINPUT, LORA_SHAPE,
           ("trainable tokens of '%s' are not those of the config", lora_text(s->set, m->path)),
           (tensor, name_of(s, m->tokens)), (expected, "%" PRIu64 " rows", count),
           (found, "%" PRIu64, ndim == 0 ? 0 : shape[0]),
           (next, "give the config of this training with --adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_against(const check_state *s, const lora_module *m, lora_shape w,
                                   fsdpck_error *err)
{
    char base[120], a[120], b[120];
    if (m->kind == LORA_TOKENS)
        return check_tokens(s, m, w, err);
    if (m->a == LORA_NONE || m->b == LORA_NONE || fits_base(s, m, w.dims, w.ndim))
        return FSDPCK_OK;
    print_shape(w.dims, w.ndim, base, sizeof base);
    print_tensor(s, m->a, a, sizeof a);
    print_tensor(s, m->b, b, sizeof b);
    REPORT(s, err, BADINPUT, LORA_SHAPE,
           ("adapter of module '%s' does not fit its weight", lora_text(s->set, m->path)),
           (tensor, name_of(s, m->b)), (expected, "a product of the shape %s", base),
           (found, "lora_A %s, lora_B %s", a, b),
           (next, "give the base model that the adapter was trained on"));
    return FSDPCK_OK;
}

static fsdpck_status check_shape(const check_state *s, const lora_module *m, fsdpck_error *err)
{
    lora_shape w;
    if (m->base_weight == LORA_NONE)
        return FSDPCK_OK;
    w.dims = shape_of(s, m->base_weight, &w.ndim);
    return check_against(s, m, w, err);
}

/* The weight of a module in another catalogue, whose names are those of the base model. */
static fsdpck_status find_weight(const check_state *s, const lora_module *m, const catalogue *base,
                                 text_buf *name, uint32_t *tensor, fsdpck_error *err)
{
    name->nbytes = 0;
    text_puts(name, lora_text(s->set, m->path));
    if (m->kind == LORA_PARAMETER && m->parameter != LORA_NONE)
        text_printf(name, ".%s", lora_text(s->set, m->parameter));
    else if (m->kind != LORA_PARAMETER)
        text_puts(name, m->is_attention ? ".in_proj_weight" : ".weight");
    RETURN_IF(text_check(name, err));
    *tensor = catalogue_find(base, name->text, name->nbytes);
    return FSDPCK_OK;
}

static fsdpck_status check_magnitude(const check_state *s, const lora_module *m, fsdpck_error *err)
{
    unsigned of_b;
    if (m->magnitude == LORA_NONE || m->b == LORA_NONE)
        return FSDPCK_OK;
    const uint64_t *b = shape_of(s, m->b, &of_b);
    const uint64_t nelems = catalogue_tensor_nelems(s->c, lora_cat_tensor(s->set, m->magnitude));
    if (of_b < 2 || nelems == b[0])
        return FSDPCK_OK;
    REPORT(s, err, BADINPUT, LORA_SHAPE,
           ("magnitude vector of module '%s' does not fit lora_B", lora_text(s->set, m->path)),
           (tensor, name_of(s, m->magnitude)), (expected, "%" PRIu64 " elements", b[0]),
           (found, "%" PRIu64, nelems), (next, "save the adapter again with a full state dict"));
    return FSDPCK_OK;
}

static fsdpck_status check_foreign(const check_state *s, fsdpck_error *err)
{
    for (uint32_t i = 0; i < lora_tensor_count(s->set); i++) {
        if (lora_tensor_at(s->set, i)->role != LORA_ROLE_FOREIGN)
            continue;
        REPORT(s, err, UNSUPPORTED, LORA_KIND,
               ("'%s' belongs to an adapter of another method than LoRA, or has an unknown name",
                name_of(s, i)),
               (tensor, name_of(s, i)),
               (next, "save the adapter with PEFT, or omit the tensor with --exclude"));
        return FSDPCK_OK;
    }
    return FSDPCK_OK;
}

fsdpck_status lora_check(const lora_set *set, const catalogue *c, uint32_t adapter,
                         const lora_config *config, lora_found_fn found, void *ctx,
                         fsdpck_error *err)
{
    check_state s = {
        .set = set, .c = c, .adapter = adapter, .config = config, .found = found, .ctx = ctx};
    RETURN_IF(check_foreign(&s, err));
    find_linear(&s);
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        if (m->adapter != adapter)
            continue;
        s.has_magnitude = s.has_magnitude || m->magnitude != LORA_NONE;
    }
    for (uint32_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        if (m->adapter != adapter)
            continue;
        if (m->kind != LORA_SAVED && m->kind != LORA_TOKENS) {
            RETURN_IF(check_pair(&s, m, err));
            RETURN_IF(check_rank(&s, m, err));
            RETURN_IF(check_magnitude(&s, m, err));
        }
        if (m->kind == LORA_TOKENS)
            RETURN_IF(check_token_count(&s, i, err));
        if (m->kind != LORA_SAVED)
            RETURN_IF(check_shape(&s, m, err));
    }
    return config == NULL ? FSDPCK_OK
                          : lora_check_config(set, adapter, 0, config, NULL, found, ctx, err);
}

static void count_missing(const lora_set *set, const lora_module *m, lora_base_counts *counts)
{
    const char *path = lora_text(set, m->path);
    const bool renamed = lora_is_head(path, strlen(path)) || m->kind == LORA_PARAMETER;
    if (counts->missing == 0 || (!renamed && counts->missing == counts->renamed))
        counts->first_missing = path;
    counts->missing++;
    counts->renamed += renamed;
}

fsdpck_status lora_check_base(const lora_set *set, const catalogue *c, uint32_t adapter,
                              const lora_config *config, const catalogue *base, const strtab *tied,
                              lora_base_counts *counts, lora_found_fn found, void *ctx,
                              fsdpck_error *err)
{
    check_state s = {
        .set = set, .c = c, .adapter = adapter, .config = config, .found = found, .ctx = ctx};
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    find_linear(&s);
    *counts = (lora_base_counts){0};
    for (size_t i = 0; i < lora_module_count(set) && st == FSDPCK_OK; i++) {
        const lora_module *m = lora_module_at(set, i);
        uint32_t tensor = CAT_NONE;
        if (m->adapter != adapter || m->kind == LORA_SAVED)
            continue;
        st = find_weight(&s, m, base, &name, &tensor, err);
        if (st != FSDPCK_OK)
            break;
        const bool is_tied = tied != NULL && tensor == CAT_NONE &&
                             strtab_find(tied, name.text, name.nbytes) != STRTAB_NONE;
        counts->compared += tensor != CAT_NONE || is_tied;
        if (tensor == CAT_NONE && !is_tied)
            count_missing(set, m, counts);
        if (tensor != CAT_NONE)
            st = check_against(
                &s, m,
                (lora_shape){catalogue_shape(base, tensor), catalogue_tensor(base, tensor)->ndim},
                err);
    }
    text_release(&name);
    if (st == FSDPCK_OK && counts->compared == 0 && counts->renamed > 0)
        st = lora_count_experts(set, adapter, base, &counts->experts, err);
    return st;
}

fsdpck_status lora_check_replacing(const char *name, const char *tensor, lora_shape base,
                                   lora_shape made, fsdpck_error *err)
{
    char expected[120], found[120];
    if (shape_equal(base.dims, base.ndim, made.dims, made.ndim))
        return FSDPCK_OK;
    const bool other_rows = base.ndim == 2 && made.ndim == 2 && base.dims[1] == made.dims[1];
    print_shape(base.dims, base.ndim, expected, sizeof expected);
    print_shape(made.dims, made.ndim, found, sizeof found);
    return FAIL_WITH(
        err, BADINPUT, LORA_SHAPE,
        ("the adapter replaces '%s' of the base model by a tensor of another shape", name),
        (tensor, tensor), (expected, "%s", expected), (found, "%s", found),
        (next, "%s",
         other_rows ? "resize the embeddings of the base model first, as the training did, with "
                      "the tokenizer of the training; or merge with the code of the training"
                    : "give the base model that the adapter was trained on"));
}

static fsdpck_status check_replaced(const check_state *s, uint32_t i, const catalogue *base,
                                    fsdpck_error *err)
{
    const lora_tensor *t = lora_tensor_at(s->set, i);
    fsdpck_error fault = FSDPCK_ERROR_INIT;
    lora_shape made;
    if (t->base == LORA_NONE || (t->role != LORA_ROLE_SAVED && t->role != LORA_ROLE_BASE))
        return FSDPCK_OK;
    const char *name = lora_text(s->set, t->base);
    const uint32_t old = catalogue_find(base, name, strtab_nbytes(&s->set->names, t->base));
    if (old == CAT_NONE)
        return FSDPCK_OK;
    made.dims = shape_of(s, i, &made.ndim);
    const lora_shape of = {catalogue_shape(base, old), catalogue_tensor(base, old)->ndim};
    if (lora_check_replacing(name, name_of(s, i), of, made, &fault) == FSDPCK_OK)
        return FSDPCK_OK;
    return s->found(s->ctx, &fault, err);
}

fsdpck_status lora_check_replaced(const lora_set *set, const catalogue *c, const bool *chosen,
                                  const catalogue *base, lora_found_fn found, void *ctx,
                                  fsdpck_error *err)
{
    const check_state s = {.set = set, .c = c, .found = found, .ctx = ctx};
    for (uint32_t i = 0; i < lora_tensor_count(set); i++)
        if (chosen == NULL || chosen[i])
            RETURN_IF(check_replaced(&s, i, base, err));
    return FSDPCK_OK;
}
