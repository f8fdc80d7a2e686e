/* verify --like: shapes and dtypes of an output against those of the model folder. */
#include "verify/like_types.h"

#include <inttypes.h>

#include "verify/vocabulary_check.h"

typedef struct like_types {
    fsdpck_verify *v;
    const like_output *like;
    const model_facts *ours, *theirs;
} like_types;

/* One finding for all tensors of a list. */
static fsdpck_status report_types(const like_types *w, like_names *n, fsdpck_finding_id id,
                                  finding_severity severity, const char *differs, const char *next,
                                  fsdpck_error *err)
{
    const catalogue *c = w->ours->cat, *base = w->theirs->cat;
    text_buf expected = {0}, found = {0}, more = {0};
    if (n->count == 0)
        return FSDPCK_OK;
    const uint32_t name = catalogue_tensor(c, n->first)->name;
    const uint32_t k =
        catalogue_find(base, catalogue_name(c, name), catalogue_name_nbytes(c, name));
    like_names_put_more(n, &more);
    like_output_put_type(base, k, &expected);
    like_output_put_type(c, n->first, &found);
    fsdpck_status st = text_check(&n->names, err);
    if (st == FSDPCK_OK)
        st = text_check(&expected, err);
    if (st == FSDPCK_OK)
        st = text_check(&found, err);
    if (st == FSDPCK_OK) {
        fsdpck_error what;
        FAIL_AS(&what, FSDPCK_BADINPUT, id,
                ("%" PRIu64 " tensor%s a different %s than in the folder of --like: %s%s", n->count,
                 n->count == 1 ? " has" : "s have", differs, n->names.text,
                 more.text == NULL ? "" : more.text),
                (path, w->v->src->path), (tensor, catalogue_name(c, name)),
                (expected, "%s", expected.text), (found, "%s", found.text), (next, "%s", next));
        findings_report_as(&w->v->found, severity, &what);
        named_tensors_keep(w->v->src->ctx, &what, &n->all);
    }
    text_release(&more);
    text_release(&expected);
    text_release(&found);
    return st;
}

static bool is_float_cast(dtype a, dtype b)
{
    return dtype_get(a)->kind == DTYPE_IS_FLOAT && dtype_get(b)->kind == DTYPE_IS_FLOAT;
}

/* Lists by kind of difference. */
typedef struct type_lists {
    like_names shapes, resized, casts, kinds;
} type_lists;

static void compare_type(const like_types *w, uint32_t i, type_lists *to)
{
    const catalogue *c = w->ours->cat, *base = w->theirs->cat;
    const cat_tensor *t = catalogue_tensor(c, i);
    const uint32_t k =
        catalogue_find(base, catalogue_name(c, t->name), catalogue_name_nbytes(c, t->name));
    if (k == CAT_NONE || (t->flags & CAT_TENSOR_STORAGE) != 0)
        return;
    const cat_tensor *b = catalogue_tensor(base, k);
    if (!shape_equal(catalogue_shape(c, i), t->ndim, catalogue_shape(base, k), b->ndim)) {
        if (!vocabulary_is_resized(w->ours, w->theirs) ||
            !vocabulary_explains(w->ours, w->theirs, i, k)) {
            like_names_add(&to->shapes, c, i);
            return;
        }
        like_names_add(&to->resized, c, i);
    }
    if (t->dtype != b->dtype && !like_output_is_dequantized(w->like, c, k))
        like_names_add(is_float_cast((dtype)t->dtype, (dtype)b->dtype) ? &to->casts : &to->kinds, c,
                       i);
}

static fsdpck_status report_resized(const like_types *w, type_lists *lists, fsdpck_error *err)
{
    const catalogue *c = w->ours->cat;
    like_names *n = &lists->resized;
    text_buf text = {0};
    if (n->count == 0)
        return FSDPCK_OK;
    like_names_put(n,
                   n->count == 1 ? "tensor has a different number of rows"
                                 : "tensors have a different number of rows",
                   &text);
    const fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK) {
        fsdpck_error what;
        FAIL_WITH(
            &what, BADINPUT, EXPORT_VOCAB,
            ("vocabulary has another size than in the folder of --like: %s", text.text),
            (path, w->v->src->path),
            (tensor, catalogue_name(c, catalogue_tensor(c, n->first)->name)),
            (expected, "%" PRIu64 " rows", w->theirs->numbers[MODEL_VOCAB_SIZE]),
            (found, "%" PRIu64 " rows, as config.json states", w->ours->numbers[MODEL_VOCAB_SIZE]));
        findings_report_as(&w->v->found, FINDING_WARNING, &what);
        named_tensors_keep(w->v->src->ctx, &what, &n->all);
    }
    text_release(&text);
    return st;
}

static fsdpck_status report_lists(const like_types *w, type_lists *lists, fsdpck_error *err)
{
    static const char again[] =
        "check that the folder of --like belongs to this model, and export again";
    text_buf next = {0};
    vocabulary_put_advice(w->ours, w->theirs, &next);
    fsdpck_status st = text_check(&next, err);
    if (st == FSDPCK_OK)
        st = report_types(w, &lists->shapes, FSDPCK_FINDING_EXPORT_SHAPE, FINDING_ERROR, "shape",
                          next.text, err);
    if (st == FSDPCK_OK)
        st = report_resized(w, lists, err);
    if (st == FSDPCK_OK)
        st = report_types(w, &lists->kinds, FSDPCK_FINDING_EXPORT_DTYPE, FINDING_ERROR,
                          "kind of dtype", again, err);
    if (st == FSDPCK_OK)
        st = report_types(
            w, &lists->casts, FSDPCK_FINDING_EXPORT_DTYPE, FINDING_WARNING, "dtype",
            "if this was not intended, export again with the dtypes in the folder of --like", err);
    text_release(&next);
    return st;
}

fsdpck_status like_types_check(fsdpck_verify *v, const like_output *like, const model_facts *ours,
                               const model_facts *theirs, fsdpck_error *err)
{
    const like_types w = {v, like, ours, theirs};
    type_lists lists = {.shapes = {.lists = LIKE_LISTS},
                        {.lists = LIKE_LISTS},
                        {.lists = LIKE_LISTS},
                        {.lists = LIKE_LISTS}};
    for (uint32_t i = 0; i < catalogue_tensor_count(ours->cat); i++)
        compare_type(&w, i, &lists);
    const fsdpck_status st = report_lists(&w, &lists, err);
    like_names_release(&lists.shapes);
    like_names_release(&lists.resized);
    like_names_release(&lists.casts);
    like_names_release(&lists.kinds);
    return st;
}
