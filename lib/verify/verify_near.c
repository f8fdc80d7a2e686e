#include "verify/verify_near.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compare/near_fault.h"
#include "run/like_output.h"

/* Roles whose cause is searched: each search reads other tensors. */
#define SEARCHED_MAX 16u

typedef struct near_check {
    fsdpck_verify *v;
    near_roles *near;
    nearness n;
    near_fault *faults; /* by role */
} near_check;

/* ---- findings ---- */

static const char *name_of_row(const near_check *k, uint32_t row)
{
    const cat_tensor *t = catalogue_tensor(&k->v->src->cat, k->near->rows[row].tensor);
    return catalogue_name(&k->v->src->cat, t->name);
}

static void put_role_name(const near_check *k, const near_role *role, char *text, size_t capacity)
{
    escape_text(text, capacity, strtab_text(&k->near->names, role->name),
                strtab_nbytes(&k->near->names, role->name));
}

static void put_subject(const near_check *k, const near_role *role, char *text, size_t capacity)
{
    char name[300];
    put_role_name(k, role, name, sizeof name);
    if (role->judged == 1)
        snprintf(text, capacity, "'%s' is unrelated to that in the folder of --like", name);
    else
        snprintf(text, capacity,
                 "%" PRIu64 " of %" PRIu64 " tensors '%s' %s in the folder of --like", role->far,
                 role->judged, name,
                 role->far == 1 ? "is unrelated to that" : "are unrelated to those");
}

/* The first far tensors of a role that has others. */
static void put_far_names(const near_check *k, const near_role *role, text_buf *text)
{
    like_names names = {0};
    if (role->far < 2 || role->far == role->judged)
        return;
    for (uint64_t i = 0; i < role->far; i++)
        like_names_add(&names, &k->v->src->cat, k->near->rows[role->first + i].tensor);
    text_printf(text, ": %s", names.names.text == NULL ? "" : names.names.text);
    like_names_put_more(&names, text);
    like_names_release(&names);
}

static void put_expected(const near_check *k, const near_role *role, char *text, size_t capacity)
{
    const bool is_role = 2 * role->far < role->judged;
    if (is_role)
        snprintf(text, capacity, "cosine near %.4g, the median of these tensors",
                 role->cosine_median);
    else if (near_roles_are_unrelated(k->near))
        snprintf(text, capacity, "cosine near 1");
    else
        snprintf(text, capacity,
                 "cosine near %.4g, the median of the medians of %" PRIu32 " role%s",
                 k->near->cosine_median, k->near->judged_roles, text_plural(k->near->judged_roles));
}

/* Returns the next step. */
static const char *put_found(const near_check *k, const near_role *role, char *text,
                             size_t capacity)
{
    const near_fault *fault = &k->faults[role - k->near->roles];
    const double cosine = k->near->rows[role->first].cosine;
    const catalogue *b = &k->n.b.to.cat;
    char name[160];
    switch (fault->kind) {
    case NEAR_FAULT_TENSOR:
        escape_text(name, sizeof name, catalogue_name(b, catalogue_tensor(b, fault->tensor)->name),
                    catalogue_name_nbytes(b, catalogue_tensor(b, fault->tensor)->name));
        snprintf(text, capacity,
                 "cosine %.4g to the same name, but %.4g to '%s' in the folder of --like", cosine,
                 fault->cosine, name);
        return "export again: these tensors were exchanged, or one was written twice";
    case NEAR_FAULT_ROPE:
        snprintf(text, capacity,
                 "cosine %.4g, but %.4g with the rows of each head (%" PRIu64
                 ") in the other order of RoPE",
                 cosine, fault->cosine, fault->head_rows);
        return "export again, and convert the order of RoPE: see 'rope' in fsdpck-map(5)";
    default:
        snprintf(text, capacity, "cosine %.4g%s; median of the role %.4g", cosine,
                 role->far > 1 ? " of this tensor, the worst" : "", role->cosine_median);
        return "export again: likely causes are a square matrix that was transposed and a fused "
               "one "
               "that was split in another order, see 'transpose' and 'ungroup' in fsdpck-map(5); "
               "if "
               "training replaced these tensors, use --no-nearness";
    }
}

static void report_role(const near_check *k, const near_role *role)
{
    char subject[420], expected[200], found[250];
    text_buf names = {0};
    fsdpck_error what;
    put_subject(k, role, subject, sizeof subject);
    put_far_names(k, role, &names);
    put_expected(k, role, expected, sizeof expected);
    const char *next = put_found(k, role, found, sizeof found);
    FAIL_WITH(&what, BADINPUT, EXPORT_NEAR, ("%s%s", subject, names.text == NULL ? "" : names.text),
              (path, k->v->src->path), (tensor, name_of_row(k, role->first)),
              (expected, "%s", expected), (found, "%s", found), (next, "%s", next));
    findings_report(&k->v->found, &what);
    text_release(&names);
}

static void report_model(const near_check *k)
{
    fsdpck_error what;
    uint64_t far = 0;
    for (uint32_t i = 0; i < k->near->role_count; i++)
        far += k->near->roles[i].far > 0;
    FAIL_WITH(
        &what, BADINPUT, EXPORT_NEAR,
        ("values are unrelated to those in the folder of --like: trained from scratch, or another "
         "model"),
        (path, k->v->src->path),
        (expected, "cosines near 1, as after a training that began with the folder of --like"),
        (found, "median %.4g of the medians of %" PRIu32 " role%s; unrelated: %" PRIu64,
         k->near->cosine_median, k->near->judged_roles, text_plural(k->near->judged_roles), far),
        (next, "check that training began with the model of --like; for a model trained "
               "from scratch, use --no-nearness"));
    findings_report(&k->v->found, &what);
}

/* ---- what no training does ---- */

typedef struct change_text {
    const char *is, *are, *found, *next;
} change_text;

static const change_text change_texts[NEAR_CHANGES] = {
    [NEAR_CHANGE_SPOILT] = {"has NaN or infinite elements that are finite",
                            "have NaN or infinite elements that are finite", "",
                            "export again, or use an earlier checkpoint if its own tensors have "
                            "them; if they are intended, use --no-nearness"},
    [NEAR_CHANGE_ZEROS] = {"is all zeros, but not", "are all zeros, but not", "zeros",
                           "export again, and check how the export fills these tensors; if zeros "
                           "are intended, use --no-nearness"},
    [NEAR_CHANGE_LESS] = {"is 1 less than that", "are 1 less than those",
                          "near after adding 1 to each element",
                          "export again with --map-set norm_offset=1, or another map that adds 1: "
                          "the trainer stores norms minus 1"},
    [NEAR_CHANGE_MORE] = {"is 1 more than that", "are 1 more than those",
                          "near after subtracting 1 from each element",
                          "export again with --map-set norm_offset=0, or another map that does not "
                          "add 1: this model stores norms minus 1"},
    [NEAR_CHANGE_SCALED] =
        {"is a multiple of that", "are multiples of those", "",
         "export again, and check which step multiplies these tensors, such as a "
         "scale, or a sum over ranks in place of their mean; if it is intended, use "
         "--no-nearness"},
};

/* The least and the largest factor of the rows. */
static void put_factors(const near_check *k, const near_role *role, char *text, size_t capacity)
{
    double least = INFINITY, most = -INFINITY, cosine = 1;
    for (uint32_t i = role->first; i < role->end; i++) {
        const near_row *row = &k->near->rows[i];
        if (row->change != NEAR_CHANGE_SCALED)
            continue;
        least = fmin(least, row->projection);
        most = fmax(most, row->projection);
        cosine = fmin(cosine, fabs(row->cosine));
    }
    const int nbytes = snprintf(text, capacity, "scaled by %.4g", least);
    if (most > least)
        snprintf(text + nbytes, capacity - (size_t)nbytes, " to %.4g; cosines from %.4f", most,
                 cosine);
    else
        snprintf(text + nbytes, capacity - (size_t)nbytes, "; cosine %.4f", cosine);
}

static void report_change(const near_check *k, const near_role *role, near_change change)
{
    const change_text *text = &change_texts[change];
    uint64_t count = 0, spoilt = 0;
    uint32_t first = role->end;
    char name[300], subject[420], found[80];
    fsdpck_error what;
    for (uint32_t i = role->end; i-- > role->first;)
        if (k->near->rows[i].change == change) {
            count++;
            spoilt += k->near->rows[i].spoilt;
            first = i;
        }
    if (count == 0)
        return;
    put_role_name(k, role, name, sizeof name);
    if (role->end - role->first == 1)
        snprintf(subject, sizeof subject, "'%s' %s", name, text->is);
    else
        snprintf(subject, sizeof subject, "%" PRIu64 " of %" PRIu32 " tensors '%s' %s", count,
                 role->end - role->first, name, count == 1 ? text->is : text->are);
    snprintf(found, sizeof found, "%s", text->found);
    if (change == NEAR_CHANGE_SPOILT)
        snprintf(found, sizeof found, "%" PRIu64 " NaN or infinite element%s", spoilt,
                 text_plural(spoilt));
    else if (change == NEAR_CHANGE_SCALED)
        put_factors(k, role, found, sizeof found);
    FAIL_WITH(&what, BADINPUT, EXPORT_NEAR, ("%s in the folder of --like", subject),
              (path, k->v->src->path), (tensor, name_of_row(k, first)),
              (expected, "values near those in the folder of --like"), (found, "%s", found),
              (next, "%s", text->next));
    findings_report_as(&k->v->found, change == NEAR_CHANGE_SCALED ? FINDING_WARNING : FINDING_ERROR,
                       &what);
}

static void report_changes(const near_check *k)
{
    for (uint32_t i = 0; i < k->near->role_count; i++)
        for (near_change c = NEAR_CHANGE_NONE + 1; c < NEAR_CHANGES; c++)
            report_change(k, &k->near->roles[i], c);
}

/* ---- second look ---- */

/* Of the worst tensor of each far role. */
static fsdpck_status find_faults(near_check *k, bool *any, fsdpck_error *err)
{
    unsigned searched = 0;
    *any = false;
    for (uint32_t i = 0; i < k->near->role_count && searched < SEARCHED_MAX; i++) {
        const near_role *role = &k->near->roles[i];
        if (role->far == 0)
            continue;
        searched++;
        RETURN_IF(near_fault_find(&k->n, k->near->rows[role->first].pair, &k->faults[i], err));
        *any = *any || k->faults[i].kind != NEAR_FAULT_NONE;
    }
    return FSDPCK_OK;
}

static fsdpck_status judge(near_check *k, fsdpck_error *err)
{
    bool any;
    near_roles_mark(k->near);
    k->faults = calloc(k->near->role_count + 1, sizeof *k->faults);
    if (k->faults == NULL)
        return error_set_nomem(err, k->near->role_count * sizeof *k->faults);
    RETURN_IF(find_faults(k, &any, err));
    report_changes(k);
    if (near_roles_are_unrelated(k->near) && !any) {
        report_model(k);
        return FSDPCK_OK;
    }
    for (uint32_t i = 0; i < k->near->role_count; i++)
        if (k->near->roles[i].far > 0)
            report_role(k, &k->near->roles[i]);
    return FSDPCK_OK;
}

/* ---- all of it ---- */

static const char *reason_to_skip(const fsdpck_verify *v, uint64_t errors)
{
    if (v->options.no_nearness)
        return "--no-nearness";
    if (v->options.level >= 0 && v->level < CHECK_CHECKSUM)
        return "the level reads no values";
    if (verify_is_sample(v))
        return "--sample";
    if (v->options.max_seconds > 0)
        return "--max-duration";
    return errors > 0 ? "SRC has errors" : NULL;
}

/* Warnings of the selection were reported by the check itself. */
static void drop_warnings(fsdpck_verify *v)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    while (fsdpck_context_warning(v->src->ctx, v->first_warning, &w))
        v->first_warning++;
}

static fsdpck_status run_check(near_check *k, fsdpck_error *err)
{
    group *g = k->v->src->ctx->group;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    fsdpck_status st = nearness_measure(&k->n, &what);
    drop_warnings(k->v);
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED) {
        findings_add_new(&k->v->found, FINDING_ERROR, &what);
        k->near->skipped = "SRC has errors";
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK) {
        if (err != NULL)
            *err = what;
        return st;
    }
    st = near_roles_make(k->near, &k->n, &k->v->src->cat, err);
    if (st == FSDPCK_OK)
        st = judge(k, err);
    return group_agree(g, st, err);
}

fsdpck_status verify_near_check(fsdpck_verify *v, fsdpck_checkpoint *base, uint64_t errors,
                                fsdpck_error *err)
{
    const fsdpck_work_options work = {.struct_nbytes = sizeof work,
                                      .threads = v->options.threads,
                                      .memory_nbytes = v->options.memory_nbytes,
                                      .engine = FSDPCK_ENGINE_THREADS};
    near_check k = {.v = v};
    k.near = v->near = near_roles_new();
    if (v->near == NULL)
        return error_set_nomem(err, sizeof *v->near);
    v->near->skipped = reason_to_skip(v, errors);
    if (v->near->skipped != NULL)
        return FSDPCK_OK;
    nearness_init(&k.n, v->src, base, &work);
    const fsdpck_status st = run_check(&k, err);
    nearness_release(&k.n);
    free(k.faults);
    return st;
}
