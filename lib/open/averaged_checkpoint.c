/* averaged_checkpoint.c: a checkpoint of the averages of several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "average/coefficients.h"
#include "base/struct_copy.h"
#include "open/average_checks.h"

/* Of the sum of the weights from 1, without a warning: three weights of 0.333. */
#define SUM_ERROR_MAX 1e-3

/* --- the request --- */

static fsdpck_status check_numbers(const fsdpck_average_options *o, fsdpck_error *err)
{
    for (size_t i = 0; i < o->weights_count; i++)
        if (!isfinite(o->weights[i]))
            return FAIL(err, USAGE, NONE, "weight number %zu is not finite", i + 1);
    bool zero = o->weights != NULL;
    for (size_t i = 0; i < o->weights_count; i++)
        zero = zero && o->weights[i] == 0;
    if (zero)
        return FAIL(err, USAGE, NONE, "all weights are 0");
    if (!isfinite(o->scale))
        return FAIL(err, USAGE, NONE, "the scale of the base is not finite");
    if (o->slerp && !(o->slerp_t >= 0 && o->slerp_t <= 1))
        return FAIL(err, USAGE, NONE, "the position of a slerp is between 0 and 1, not %g",
                    o->slerp_t);
    return FSDPCK_OK;
}

static fsdpck_status check_request(const fsdpck_average_options *o, size_t count, fsdpck_error *err)
{
    const bool weighted = o->weights != NULL || o->schedule != NULL || o->normalize;
    if (count == 0)
        return FAIL(err, USAGE, NONE, "an average requires an input");
    if (o->weights != NULL && o->schedule != NULL)
        return FAIL(err, USAGE, NONE, "weights and a schedule contradict each other");
    if (o->weights != NULL && o->weights_count != count)
        return FAIL_WITH(err, USAGE, NONE, ("the number of weights differs from that of inputs"),
                         (expected, "%zu", count), (found, "%zu", o->weights_count));
    if (o->slerp && (count != 2 || weighted || o->base != NULL))
        return FAIL_WITH(err, USAGE, NONE, ("slerp takes two inputs, and neither weights nor base"),
                         (found, "%zu inputs", count));
    if (o->objects_from > count)
        return FAIL(err, USAGE, NONE, "objects cannot come from input %llu of %zu",
                    (unsigned long long)o->objects_from, count);
    return check_numbers(o, err);
}

static fsdpck_status choose_rule(fsdpck_checkpoint *c, const fsdpck_average_options *o,
                                 size_t count, fsdpck_error *err)
{
    average_rule *r = &c->average_rule;
    *r = (average_rule){.count = count,
                        .has_base = o->base != NULL,
                        .scale = o->scale,
                        .slerp = o->slerp != 0,
                        .slerp_t = o->slerp_t,
                        .wide = o->accumulate_fp64 != 0};
    r->coefficients = calloc(count, sizeof *r->coefficients);
    if (r->coefficients == NULL)
        return error_set_nomem(err, count * sizeof *r->coefficients);
    average_coefficients_equal(r->coefficients, count);
    if (o->weights != NULL)
        memcpy(r->coefficients, o->weights, count * sizeof *r->coefficients);
    if (o->schedule != NULL)
        RETURN_IF(average_coefficients_schedule(o->schedule, r->coefficients, count, err));
    return o->normalize ? average_coefficients_normalize(r->coefficients, count, err) : FSDPCK_OK;
}

static double sum_of(const average_rule *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->coefficients[i];
    return sum;
}

/* Differences from a base may have any weights. */
static void warn_of_sum(const fsdpck_checkpoint *c, const fsdpck_average_options *o)
{
    const double sum = sum_of(&c->average_rule);
    if (o->weights == NULL || o->normalize || o->base != NULL || fabs(sum - 1) <= SUM_ERROR_MAX)
        return;
    log_warn(&c->ctx->log, FSDPCK_FINDING_AVERAGE_SUM,
             sum == 0 ? "give weights that add up to 1" : "", "the weights add up to %.10g, not 1",
             sum);
}

/* --- the checkpoint --- */

/* Names of one parameter, if they are tied in every input. */
static bool is_tied_in(const fsdpck_checkpoint *c, uint32_t a, uint32_t b)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, a), *u = catalogue_tensor(&c->cat, b);
    place p = {0}, q = {0};
    for (size_t i = 0; i < c->ties.count; i++) {
        const tied_pair *tie = VEC_AT(&c->ties, const tied_pair, i);
        if ((tie->first == a && tie->alias == b) || (tie->first == b && tie->alias == a))
            return true;
    }
    if (t->alias == CAT_NONE || t->alias != u->alias || t->nchunks != 1 || u->nchunks != 1 ||
        c->src.locate(c->src.ctx, t->first_chunk, &p, NULL) != FSDPCK_OK ||
        c->src.locate(c->src.ctx, u->first_chunk, &q, NULL) != FSDPCK_OK)
        return false;
    return p.file == q.file && p.offset_bytes == q.offset_bytes && p.rows && q.rows &&
           shape_equal(catalogue_shape(&c->cat, a), t->ndim, catalogue_shape(&c->cat, b), u->ndim);
}

static fsdpck_status keep_tie(fsdpck_checkpoint *c, const average_match *m, uint32_t a, uint32_t b,
                              fsdpck_error *err)
{
    for (size_t i = 0; i < m->count; i++) {
        const uint32_t mine = *VEC_AT(&m->tensors, const uint32_t, (uint64_t)a * m->count + i);
        const uint32_t alias = *VEC_AT(&m->tensors, const uint32_t, (uint64_t)b * m->count + i);
        if (mine == CAT_NONE || alias == CAT_NONE || !is_tied_in(m->inputs[i], mine, alias))
            return FSDPCK_OK;
    }
    return vec_add(&c->ties, &(tied_pair){a, b}, err);
}

typedef struct aliased {
    uint32_t alias, tensor;
} aliased;

static int by_alias(const void *left, const void *right)
{
    const aliased *a = left, *b = right;
    ORDER_BY(a->alias, b->alias);
    ORDER_BY(a->tensor, b->tensor);
    return 0;
}

static fsdpck_status keep_ties(fsdpck_checkpoint *c, const average_match *m, fsdpck_error *err)
{
    const fsdpck_checkpoint *from = c->base;
    vec list = VEC_OF(aliased, &c->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < from->ties.count; i++) {
        const tied_pair *t = VEC_AT(&from->ties, const tied_pair, i);
        st = keep_tie(c, m, t->first, t->alias, err);
    }
    for (uint32_t i = 0; st == FSDPCK_OK && i < from->parts.tensor_count; i++)
        if (catalogue_tensor(&from->cat, i)->alias != CAT_NONE && averager_computes(c->average, i))
            st = vec_add(&list, &(aliased){catalogue_tensor(&from->cat, i)->alias, i}, err);
    if (st == FSDPCK_OK && list.count > 1)
        qsort(list.items, list.count, sizeof(aliased), by_alias);
    const aliased *a = list.items;
    for (size_t i = 1, first = 0; st == FSDPCK_OK && i < list.count; i++) {
        if (a[i].alias != a[first].alias)
            first = i;
        else
            st = keep_tie(c, m, a[first].tensor, a[i].tensor, err);
    }
    vec_release(&list);
    return st;
}

static fsdpck_status make_average(fsdpck_checkpoint *c, const average_match *m, fsdpck_error *err)
{
    average_input *inputs = calloc(m->count, sizeof *inputs);
    if (inputs == NULL)
        return error_set_nomem(err, m->count * sizeof *inputs);
    for (size_t i = 0; i < m->count; i++)
        inputs[i] = (average_input){&m->inputs[i]->cat, &m->inputs[i]->src, m->inputs[i]->path};
    const average_request request = {.inputs = inputs,
                                     .count = m->count,
                                     .shape = m->shape,
                                     .tensors = m->tensors.items,
                                     .rule = &c->average_rule,
                                     .trust_others = m->trusts_objects};
    const fsdpck_status st = averager_new(&request, &c->cat, &c->average, err);
    free(inputs);
    return st;
}

static fsdpck_status list_averaged(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&c->cat);
    uint8_t *takes = calloc(count + 1, 1);
    c->average_only.tensors = takes;
    if (takes == NULL)
        return error_set_nomem(err, count);
    for (uint32_t i = 0; i < count; i++) {
        takes[i] = averager_takes(c->average, i);
        if (averager_computes(c->average, i))
            RETURN_IF(vec_add(&c->averaged, &i, err));
    }
    return FSDPCK_OK;
}

/* Of `__metadata__`: without the texts that another input contradicts, unless one is chosen for them. */
static fsdpck_status keep_texts(fsdpck_checkpoint *c, const average_match *m, fsdpck_error *err)
{
    const cat_metadata *from = c->cat.origin.metadata;
    if (m->trusts_objects || from == NULL)
        return FSDPCK_OK;
    RETURN_IF(cat_metadata_copy(&c->average_texts, from, err));
    for (size_t i = 0; i < m->count; i++)
        if (m->inputs[i]->cat.origin.metadata != NULL)
            cat_metadata_keep_same(&c->average_texts, m->inputs[i]->cat.origin.metadata);
    c->cat.origin.metadata = &c->average_texts;
    return FSDPCK_OK;
}

static fsdpck_status fill(fsdpck_checkpoint *c, average_match *m, fsdpck_error *err)
{
    const fsdpck_checkpoint *from = c->base;
    const bool is_model = from->base != NULL; /* mapped or dequantized */
    RETURN_IF(average_match_find(m, err));
    RETURN_IF(make_average(c, m, err));
    RETURN_IF(keep_texts(c, m, err));
    c->src = *averager_source(c->average);
    RETURN_IF(list_averaged(c, err));
    RETURN_IF(keep_ties(c, m, err));
    RETURN_IF(is_model ? checkpoint_parts_all_model(&c->cat, &c->parts, err)
                       : checkpoint_parts_find(&c->cat, &c->parts, err));
    c->parts.assumes_order = from->parts.assumes_order;
    c->sharded_otherwise = from->sharded_otherwise;
    return FSDPCK_OK;
}

static fsdpck_status prepare_inputs(fsdpck_checkpoint *const *inputs, size_t count,
                                    fsdpck_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (inputs[i]->remote_files != NULL)
            return FAIL_WITH(err, UNSUPPORTED, NONE,
                             ("files on the disks of other hosts cannot be averaged"),
                             (path, inputs[i]->path), (next, "use a shared file system"));
        RETURN_IF(checkpoint_load_inner(inputs[i], err));
        RETURN_IF(checkpoint_check_flat(inputs[i], &inputs[i]->cat, err));
        RETURN_IF(checkpoint_check_sizes(inputs[i], err));
    }
    return FSDPCK_OK;
}

/* The inputs, with the base last; with o->ema, checkpoints made of them. */
static fsdpck_status take_inputs(fsdpck_checkpoint *c, fsdpck_checkpoint *const *given,
                                 size_t count, const fsdpck_average_options *o, fsdpck_error *err)
{
    c->inputs = calloc(count + 1, sizeof(fsdpck_checkpoint *));
    if (c->inputs == NULL)
        return error_set_nomem(err, count * sizeof(fsdpck_checkpoint *));
    c->owns_inputs = o->ema != 0;
    for (size_t i = 0; i < count + (o->base != NULL); i++) {
        fsdpck_checkpoint *input = i < count ? given[i] : o->base;
        fsdpck_checkpoint **to = &c->inputs[c->input_count++];
        if (o->ema)
            RETURN_IF(checkpoint_ema(input, to, err));
        else
            *to = input;
    }
    return FSDPCK_OK;
}

static fsdpck_status make(fsdpck_checkpoint *const *given, size_t count,
                          const fsdpck_average_options *o, const fsdpck_select_options *select,
                          fsdpck_checkpoint **out, fsdpck_error *err)
{
    const size_t shape = o->objects_from > 0 ? o->objects_from - 1 : 0;
    const select_options rules = {.keys = select->keys,
                                  .keys_count = select->keys_count,
                                  .exclude = select->exclude,
                                  .exclude_count = select->exclude_count};
    RETURN_IF(check_request(o, count, err));
    const fsdpck_status made = derived_checkpoint_new(given[shape], out, err);
    fsdpck_checkpoint *c = *out;
    if (c != NULL)
        c->borrows_base = true;
    RETURN_IF(made);
    RETURN_IF(choose_rule(c, o, count, err));
    c->averaged = VEC_OF(uint32_t, &c->metadata);
    cat_metadata_init(&c->average_texts, &c->metadata);
    RETURN_IF(average_steps_find(given, count, &c->average_steps, err));
    if (o->schedule != NULL)
        RETURN_IF(average_steps_check(given, count, c->average_steps, err));
    RETURN_IF(take_inputs(c, given, count, o, err));
    c->base = c->inputs[shape];
    RETURN_IF(prepare_inputs(c->inputs, c->input_count, err));
    RETURN_IF(average_check_adapters(c->inputs, c->input_count, shape, err));
    uint8_t *takes = calloc(c->base->parts.object_count + 1, 1);
    c->average_only.objects = takes;
    if (takes == NULL)
        return error_set_nomem(err, c->base->parts.object_count);
    average_match m = {.inputs = c->inputs,
                       .count = c->input_count,
                       .shape = shape,
                       .part = select->part < 0 ? PART_MODEL : (checkpoint_part)select->part,
                       .rules = &rules,
                       .trusts_objects = o->objects_from > 0,
                       .tensors = VEC_OF(uint32_t, &c->metadata),
                       .takes_objects = takes};
    const fsdpck_status st = fill(c, &m, err);
    c->average_tensors = m.tensors;
    if (st == FSDPCK_OK) {
        warn_of_sum(c, o);
        average_warn_inputs(given, count, shape);
    }
    return st;
}

fsdpck_status fsdpck_average(fsdpck_context *ctx, fsdpck_checkpoint *const *inputs, size_t count,
                             const fsdpck_average_options *options, fsdpck_checkpoint **out,
                             fsdpck_error *err)
{
    fsdpck_average_options o = FSDPCK_INIT(fsdpck_average_options);
    fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
    *out = NULL;
    RETURN_IF(STRUCT_COPY_IN(&o, options, fsdpck_average_options, err));
    RETURN_IF(STRUCT_COPY_IN(&select, o.select, fsdpck_select_options, err));
    progress_phase(&ctx->progress, "comparing metadata", 0);
    const fsdpck_status st =
        group_agree(ctx->group, make(inputs, count, &o, &select, out, err), err);
    progress_phase(&ctx->progress, NULL, 0);
    if (st != FSDPCK_OK) {
        fsdpck_close(*out);
        *out = NULL;
    }
    return st;
}

/* --- its results --- */

void fsdpck_average_get_info(const fsdpck_checkpoint *ckpt, fsdpck_average_info *info)
{
    const bool is_average = ckpt->average != NULL;
    const fsdpck_average_info found = {
        .struct_nbytes = sizeof found,
        .inputs = is_average ? ckpt->average_rule.count : 0,
        .coefficients =
            is_average && !ckpt->average_rule.slerp ? ckpt->average_rule.coefficients : NULL,
        .tensors = is_average ? ckpt->averaged.count : 0,
        .sum = is_average && !ckpt->average_rule.slerp ? sum_of(&ckpt->average_rule) : 0,
        .steps = is_average ? ckpt->average_steps : NULL,
    };
    struct_copy_out(info, &found, sizeof found);
}

void fsdpck_average_get_tensor(const fsdpck_checkpoint *ckpt, uint64_t index,
                               fsdpck_average_tensor *t)
{
    fsdpck_average_tensor found = {.struct_nbytes = sizeof found, .name = ""};
    if (ckpt->average != NULL && index < ckpt->averaged.count) {
        const uint32_t tensor = *VEC_AT(&ckpt->averaged, const uint32_t, index);
        const uint32_t name = catalogue_tensor(&ckpt->cat, tensor)->name;
        found.name = catalogue_name(&ckpt->cat, name);
        found.name_nbytes = catalogue_name_nbytes(&ckpt->cat, name);
        for (size_t i = 0; i < ckpt->average_rule.count; i++) {
            const double distance = averager_distance(ckpt->average, tensor, i);
            if (distance > found.distance) {
                found.distance = distance;
                found.input = i;
            }
        }
    }
    struct_copy_out(t, &found, sizeof found);
}
