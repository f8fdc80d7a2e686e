#include "verify/config_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "open/config_settings.h"

/* More heads, or rows of a head, are read as this many: no product overflows. */
#define HEADS_MAX (UINT64_C(1) << 24)

/* ---- heads against rows ---- */

typedef struct head_numbers {
    uint64_t heads, key_heads, head_rows;
} head_numbers;

typedef struct projection {
    const char *names[2]; /* ends of names */
    unsigned heads, key_heads;
    const char *key;
} projection;

static const projection projections[] = {
    {{".q_proj.weight", ".q_proj.weight"}, 1, 0, "num_attention_heads"},
    {{".k_proj.weight", ".v_proj.weight"}, 0, 1, "num_key_value_heads"},
    {{".qkv_proj.weight", ".query_key_value.weight"}, 1, 2, "num_attention_heads"},
};

static uint64_t at_most(uint64_t n)
{
    return n < HEADS_MAX ? n : HEADS_MAX;
}

static head_numbers heads_of(const config_settings *s)
{
    head_numbers h = {.heads = at_most(config_settings_number(s, "num_attention_heads")),
                      .key_heads = at_most(config_settings_number(s, "num_key_value_heads")),
                      .head_rows = at_most(config_settings_number(s, "head_dim"))};
    if (h.key_heads == 0)
        h.key_heads = h.heads;
    if (h.head_rows == 0 && h.heads > 0)
        h.head_rows = at_most(config_settings_number(s, "hidden_size")) / h.heads;
    return h;
}

static uint64_t count_heads(const projection *p, const head_numbers *h)
{
    return p->heads * h->heads + p->key_heads * h->key_heads;
}

static bool is_projection(const projection *p, const char *name, size_t nbytes)
{
    return text_ends_with(name, nbytes, p->names[0]) || text_ends_with(name, nbytes, p->names[1]);
}

/* Whether BASE has the tensor with this shape, and its heads are the rows there. Models of other layouts,
 * such as those with gates or latent attention, differ in BASE too. */
static bool is_model(const catalogue *c, size_t tensor, const catalogue *base, uint64_t rows)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint32_t k =
        catalogue_find(base, catalogue_name(c, t->name), catalogue_name_nbytes(c, t->name));
    return k != CAT_NONE && t->ndim == 2 && catalogue_shape(c, tensor)[0] == rows &&
           shape_equal(catalogue_shape(c, tensor), t->ndim, catalogue_shape(base, k),
                       catalogue_tensor(base, k)->ndim);
}

static void report_heads(fsdpck_verify *v, const projection *p, const head_numbers *h,
                         size_t tensor)
{
    const catalogue *c = &v->src->cat;
    const uint64_t heads = count_heads(p, h);
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
              ("'%s' or 'head_dim' of config.json contradicts the tensors", p->key),
              (path_in, v->src->path, "config.json"),
              (tensor, catalogue_name(c, catalogue_tensor(c, tensor)->name)),
              (expected, "%" PRIu64 ", the number of rows", catalogue_shape(c, tensor)[0]),
              (found, "%" PRIu64 ": %" PRIu64 " head%s of %" PRIu64 " row%s", heads * h->head_rows,
               heads, text_plural(heads), h->head_rows, text_plural(h->head_rows)));
    findings_report(&v->found, &what);
}

/* Returns whether there is no contradiction. */
static bool check_heads(fsdpck_verify *v, const config_settings *ours,
                        const fsdpck_checkpoint *base, const config_settings *theirs)
{
    const head_numbers h = heads_of(ours), b = heads_of(theirs);
    const catalogue *c = &v->src->cat;
    bool good = true;
    if (h.heads == 0 || b.heads == 0)
        return true;
    for (size_t k = 0; k < sizeof projections / sizeof *projections; k++) {
        const projection *p = &projections[k];
        const uint64_t stated = count_heads(p, &h) * h.head_rows,
                       rows = count_heads(p, &b) * b.head_rows;
        for (size_t i = 0; stated != rows && i < catalogue_tensor_count(c); i++) {
            const uint32_t name = catalogue_tensor(c, i)->name;
            if (!is_projection(p, catalogue_name(c, name), catalogue_name_nbytes(c, name)) ||
                !is_model(c, i, &base->cat, rows))
                continue;
            report_heads(v, p, &h, i);
            good = false;
            break;
        }
    }
    return good;
}

/* ---- settings ---- */

static bool is_of_heads(const char *key)
{
    static const char *const names[] = {"num_attention_heads", "num_key_value_heads", "head_dim"};
    return TEXT_IS_IN(key, strlen(key), names);
}

static void put_setting(const config_settings *s, size_t index, text_buf *text)
{
    const config_setting *one = config_settings_of(s, index);
    text_printf(text, "%s%s ", text->nbytes > 0 ? ", " : "", config_settings_key(index));
    text_puts(text, one->text);
}

static void report_settings(fsdpck_verify *v, bool other_type, const text_buf *names,
                            const text_buf *expected, const text_buf *found)
{
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
              ("config.json changes what the model computes: it differs from that in the folder of "
               "--like in %s",
               names->text),
              (path_in, v->src->path, "config.json"), (expected, "%s", expected->text),
              (found, "%s", found->text));
    error_next(
        &what, "%s",
        other_type
            ? "check that the folder of --like is that of this model: the types differ"
            : "if the training did not change this, take config.json from the folder of --like");
    findings_report_as(&v->found, FINDING_WARNING, &what);
}

/* with_heads: the numbers of heads fit the tensors. */
static fsdpck_status check_settings(fsdpck_verify *v, const config_settings *ours,
                                    const config_settings *theirs, bool with_heads,
                                    fsdpck_error *err)
{
    text_buf names = {0}, expected = {0}, found = {0};
    /* The last keys, the model type and its class, come first: another model explains the others. */
    const size_t count = config_settings_count(), of_model = 2;
    for (size_t k = 0; k < count; k++) {
        const size_t i = k < of_model ? count - of_model + k : k - of_model;
        const char *key = config_settings_key(i);
        if (!config_settings_differ(ours, theirs, i) || (!with_heads && is_of_heads(key)))
            continue;
        text_printf(&names, "%s'%s'", names.nbytes > 0 ? ", " : "", key);
        put_setting(theirs, i, &expected);
        put_setting(ours, i, &found);
    }
    fsdpck_status st = text_check(&names, err);
    if (st == FSDPCK_OK)
        st = text_check(&expected, err);
    if (st == FSDPCK_OK)
        st = text_check(&found, err);
    if (st == FSDPCK_OK && names.nbytes > 0)
        report_settings(v, config_settings_differ(ours, theirs, count - of_model), &names,
                        &expected, &found);
    text_release(&names);
    text_release(&expected);
    text_release(&found);
    return st;
}

fsdpck_status config_check(fsdpck_verify *v, const model_config *ours,
                           const fsdpck_checkpoint *base, const model_config *theirs,
                           fsdpck_error *err)
{
    config_settings a, b;
    RETURN_IF(config_settings_read(ours, &a, err));
    RETURN_IF(config_settings_read(theirs, &b, err));
    if (!a.is_read || !b.is_read)
        return FSDPCK_OK;
    const bool good = check_heads(v, &a, base, &b);
    return check_settings(v, &a, &b, good, err);
}
