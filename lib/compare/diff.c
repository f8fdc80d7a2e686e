/* Compares two checkpoints. Both are selected as for a consolidation; tensor_pairs.h reads them together. */
#include "compare/diff.h"
#include "base/struct_copy.h"

#include "compare/digest.h"
#include "open/recorded_checksums.h"
#include "run/manifest_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- both targets ---- */

static bool same_type(const catalogue *a, uint32_t i, const catalogue *b, uint32_t k)
{
    const cat_tensor *x = catalogue_tensor(a, i), *y = catalogue_tensor(b, k);
    return x->dtype == y->dtype &&
           shape_equal(catalogue_shape(a, i), x->ndim, catalogue_shape(b, k), y->ndim);
}

/* Pairs by name, in the order of A, then what only one side has. */
static fsdpck_status match_tensors(fsdpck_diff *d, fsdpck_error *err)
{
    catalogue *a = &d->a.to.cat, *b = &d->b.to.cat;
    const uint64_t na = catalogue_tensor_count(a), nb = catalogue_tensor_count(b);
    uint8_t *met = calloc(nb + 1, 1);
    if (met == NULL)
        return error_set_nomem(err, nb);
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < na; i++) {
        const uint32_t name = catalogue_tensor(a, i)->name;
        const uint32_t k =
            catalogue_find(b, catalogue_name(a, name), catalogue_name_nbytes(a, name));
        if (k != CAT_NONE)
            met[k] = 1;
        if (k == CAT_NONE || !same_type(a, i, b, k)) {
            st = diff_add_row(
                d,
                &(diff_row){
                    .kind = k == CAT_NONE ? FSDPCK_DIFF_ONLY_A : FSDPCK_DIFF_TYPE, .a = i, .b = k},
                err);
            continue;
        }
        st = tensor_pairs_add(&d->common, i, k, err);
        if (st == FSDPCK_OK)
            st = vec_add(&d->pairs, &(diff_pair){0}, err);
    }
    for (uint32_t k = 0; st == FSDPCK_OK && k < nb; k++)
        if (!met[k])
            st = diff_add_row(d, &(diff_row){.kind = FSDPCK_DIFF_ONLY_B, .a = CAT_NONE, .b = k},
                              err);
    free(met);
    return st;
}

/* ---- values ---- */

static void compare_part(void *ctx, unsigned worker, const pair_elements *e)
{
    fsdpck_diff *d = ctx;
    diff_pair *p = VEC_AT(&d->pairs, diff_pair, e->pair);
    const uint32_t tensor = VEC_AT(&d->common.list, const tensor_pair, e->pair)->a;
    const dtype type = (dtype)catalogue_tensor(&d->a.to.cat, tensor)->dtype;
    compare_stats stats = {0};
    change_sums sums = {0};
    (void)worker;
    if (p->streamed)
        return;
    const bool differ = compare_elements(type, &d->rule, e->a, e->b, e->count, e->first, &stats);
    if (d->norms)
        change_sums_add_elements(type, e->a, differ ? e->b : NULL, e->count, &sums);
    if (!differ && sums.n == 0)
        return;
    pthread_mutex_lock(&d->lock);
    compare_add(&p->stats, &stats);
    change_sums_add(&p->sums, &sums);
    pthread_mutex_unlock(&d->lock);
    if (d->brief && stats.differing > 0)
        atomic_store(&d->enough.set, 1);
}

/* Compressed chunks come front to back only: digests of their tensors are compared. */
static fsdpck_status compare_streamed(fsdpck_diff *d, fsdpck_error *err)
{
    bool any = false;
    for (size_t i = 0; i < d->pairs.count; i++) {
        diff_pair *p = VEC_AT(&d->pairs, diff_pair, i);
        p->streamed = tensor_pairs_is_streamed(&d->common, i);
        any = any || p->streamed;
    }
    if (!any)
        return FSDPCK_OK;
    d->a.to.want_digest = true;
    d->b.to.want_digest = true;
    RETURN_IF(exec_run(d->a.exec, NULL, err));
    RETURN_IF(exec_run(d->b.exec, NULL, err));
    for (size_t i = 0; i < d->pairs.count; i++) {
        diff_pair *p = VEC_AT(&d->pairs, diff_pair, i);
        const tensor_pair *of = VEC_AT(&d->common.list, const tensor_pair, i);
        const cat_tensor *a = catalogue_tensor(&d->a.to.cat, of->a);
        const cat_tensor *b = catalogue_tensor(&d->b.to.cat, of->b);
        if (p->streamed && catalogue_tensor_nelems(&d->a.to.cat, of->a) > 0 &&
            d->a.to.chunk_digest[a->first_chunk] != d->b.to.chunk_digest[b->first_chunk])
            p->stats.differing = UINT64_MAX;
    }
    return FSDPCK_OK;
}

/* Sends a rank's results of a pair to the others. */
typedef struct pair_found {
    uint64_t pair;
    compare_stats stats;
    change_sums sums;
} pair_found;

static fsdpck_status receive_pairs(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                   fsdpck_error *err)
{
    fsdpck_diff *d = ctx;
    (void)rank;
    (void)err;
    for (uint64_t at = 0; at < nbytes; at += sizeof(pair_found)) {
        pair_found one;
        memcpy(&one, bytes + at, sizeof one);
        diff_pair *p = VEC_AT(&d->pairs, diff_pair, one.pair);
        compare_add(&p->stats, &one.stats);
        change_sums_add(&p->sums, &one.sums);
        if (d->brief)
            atomic_store(&d->enough.set, 1);
    }
    return FSDPCK_OK;
}

/* Combines all results; those of streamed pairs are already equal on all ranks. */
static fsdpck_status all_reduce_pairs(fsdpck_diff *d, fsdpck_status st, fsdpck_error *err)
{
    text_buf bytes = {.limit_bytes = SIZE_MAX / 2};
    if (d->a.ctx->group == NULL)
        return st;
    for (size_t i = 0; i < d->pairs.count; i++) {
        diff_pair *p = VEC_AT(&d->pairs, diff_pair, i);
        pair_found one;
        if (p->streamed || (p->stats.differing == 0 && p->sums.n == 0))
            continue;
        memset(&one, 0, sizeof one);
        one.pair = i;
        one.stats = p->stats;
        one.sums = p->sums;
        text_append(&bytes, (const char *)&one, sizeof one);
        p->stats = (compare_stats){0};
        p->sums = (change_sums){0};
    }
    if (st == FSDPCK_OK)
        st = text_check(&bytes, err);
    st = group_all_gather(d->a.ctx->group, st, GROUP_STOPS, bytes.text, bytes.nbytes, receive_pairs,
                          d, err);
    text_release(&bytes);
    return st;
}

static fsdpck_status compare_values(fsdpck_diff *d, fsdpck_error *err)
{
    group *g = d->a.ctx->group;
    RETURN_IF(tensor_pairs_assign(&d->common, err));
    RETURN_IF(compare_streamed(d, err));
    fsdpck_status st = exec_check_replicas(d->a.exec, err);
    if (st == FSDPCK_OK)
        st = exec_check_replicas(d->b.exec, err);
    RETURN_IF(group_agree_result(g, st, false, err));
    st = tensor_pairs_walk(&d->common, "comparing", compare_part, d, &d->enough, err);
    if (st == FSDPCK_CANCELLED && atomic_load(&d->enough.set))
        st = FSDPCK_OK;
    RETURN_IF(all_reduce_pairs(d, st, err));
    RETURN_IF(exec_all_reduce_stats(d->a.exec, FSDPCK_OK, err));
    return exec_all_reduce_stats(d->b.exec, FSDPCK_OK, err);
}

/* ---- all of it ---- */

static const catalogue *row_side(const fsdpck_diff *d, const diff_row *r, uint32_t *index)
{
    *index = r->a != CAT_NONE ? r->a : r->b;
    return r->a != CAT_NONE ? &d->a.to.cat : &d->b.to.cat;
}

static fsdpck_status begin_side(fsdpck_diff *d, run *r, const run_options *o, fsdpck_part part,
                                fsdpck_checkpoint *src, fsdpck_error *err)
{
    run_init(r, src->ctx, src, o);
    r->dst = "";
    r->writer = &digest_writer;
    r->bare_optimizer = true;
    r->attributes = true;
    r->dtype_option = "--as";
    const fsdpck_checkpoint *other = src == d->a.src ? d->b.src : d->a.src;
    r->names_objects = r->opt.select.objects != FSDPCK_OBJECTS_DROP;
    r->may_be_empty = diff_may_be_empty(o, src, other, part);
    if (part != FSDPCK_PART_ALL)
        r->key_beside = checkpoint_parts_outer_key(&other->parts, (checkpoint_part)part);
    r->opt.select.part = part;
    r->opt.output.direct = FSDPCK_OFF;
    if (part == FSDPCK_PART_ALL && r->opt.select.clean_names == FSDPCK_AUTO)
        r->opt.select.clean_names = FSDPCK_OFF;
    if (r == &d->b) {
        r->opt.select.strip_prefix_count = 0;
        r->opt.select.rename_count = 0;
        r->opt.select.dtype_count = 0;
    } else if (d->optimizer_rule[0] != '\0') {
        d->optimizer_rules[0] = d->optimizer_rule;
        r->opt.select.rename = d->optimizer_rules;
        r->opt.select.rename_count = 1;
    }
    RETURN_IF(run_check_engine(r, err));
    fsdpck_status st = run_select(r, err);
    if (st == FSDPCK_OK)
        st = checkpoint_check_flat(src, &r->to.cat, err);
    if (st != FSDPCK_OK) {
        error_path(err, src->path);
        return st;
    }
    return manifest_files_check_lost(r, err);
}

static fsdpck_status add_value_rows(fsdpck_diff *d, fsdpck_error *err)
{
    for (size_t i = 0; i < d->pairs.count; i++) {
        const diff_pair *p = VEC_AT(&d->pairs, const diff_pair, i);
        const tensor_pair *of = VEC_AT(&d->common.list, const tensor_pair, i);
        const diff_row row = {
            .kind = FSDPCK_DIFF_VALUES, .a = of->a, .b = of->b, .stats = p->stats, .sums = p->sums};
        if (p->stats.differing > 0)
            RETURN_IF(diff_add_row(d, &row, err));
    }
    return FSDPCK_OK;
}

/* All steps before values are read. */
static fsdpck_status prepare(fsdpck_diff *d, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                             const run_options *o, fsdpck_part *part, diff_shared_key *shared,
                             fsdpck_error *err)
{
    RETURN_IF(checkpoint_load_inner(a, err));
    RETURN_IF(checkpoint_load_inner(b, err));
    RETURN_IF(diff_choose_part(o, a, b, part, err));
    RETURN_IF(diff_share_key(o, a, b, *part, shared, err));
    diff_rename_optimizer(o, a, b, *part, d->optimizer_rule, sizeof d->optimizer_rule);
    RETURN_IF(begin_side(d, &d->a, o, *part, a, err));
    RETURN_IF(begin_side(d, &d->b, o, *part, b, err));
    if (*part != FSDPCK_PART_ALL && o->select.part < 0)
        log_write(&a->ctx->log, LOG_NOTE, "comparing only the %s parts, which both have",
                  fsdpck_part_name(*part));
    if (d->optimizer_rule[0] != '\0')
        log_write(&a->ctx->log, LOG_NOTE,
                  "comparing the optimizer under '%s' in A with that under '%s' in B",
                  a->parts.optimizer_key, b->parts.optimizer_key);
    tensor_pairs_share_memory(&d->common);
    RETURN_IF(match_tensors(d, err));
    return tensor_pairs_plan(&d->common, err);
}

static fsdpck_status finish_values(fsdpck_diff *d, fsdpck_error *err)
{
    RETURN_IF(tensor_pairs_check_unchanged(&d->common, err));
    return add_value_rows(d, err);
}

static fsdpck_status run_diff(fsdpck_diff *d, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                              const run_options *o, diff_shared_key *shared, fsdpck_error *err)
{
    group *g = a->ctx->group;
    fsdpck_part part = FSDPCK_PART_ALL;
    const fsdpck_status st = prepare(d, a, b, o, &part, shared, err);
    RETURN_IF(run_agree_on_plan(&d->a, st, GROUP_GOES_ON, err));
    RETURN_IF(run_agree_on_plan(&d->b, FSDPCK_OK, GROUP_GOES_ON, err));
    RETURN_IF(group_agree_result(g, tensor_pairs_resolve(&d->common, err), true, err));
    const bool of_a = checkpoint_has_checksums(a), of_b = checkpoint_has_checksums(b);
    d->has_checksums = of_a || of_b;
    d->values_skipped = d->brief && d->rows.count > 0;
    if (!d->values_skipped)
        RETURN_IF(compare_values(d, err));
    RETURN_IF(group_agree(g, finish_values(d, err), err));
    const bool selected = d->a.opt.select.keys_count > 0; /* tensors alone */
    if (part != FSDPCK_PART_MODEL && !selected && d->a.names_objects &&
        (!d->brief || d->rows.count == 0))
        RETURN_IF(group_agree(g, diff_objects(d, err), err));
    return FSDPCK_OK;
}

fsdpck_status diff_make(fsdpck_context *ctx, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                        const fsdpck_diff_options *options, fsdpck_diff **out, fsdpck_error *err)
{
    fsdpck_diff_options o = FSDPCK_INIT(fsdpck_diff_options);
    run_options parts;
    *out = NULL;
    RETURN_IF(STRUCT_COPY_IN(&o, options, fsdpck_diff_options, err));
    RETURN_IF(struct_check_number("fsdpck_diff_options.atol", o.atol, INFINITY, err));
    RETURN_IF(struct_check_number("fsdpck_diff_options.rtol", o.rtol, INFINITY, err));
    RETURN_IF(run_options_of_diff(&parts, options, err));
    fsdpck_diff *d = calloc(1, sizeof *d);
    if (d == NULL)
        return error_set_nomem(err, sizeof *d);
    d->rule = (compare_rule){o.atol, o.rtol};
    d->brief = o.brief;
    d->norms = o.norms && !o.brief;
    d->pairs = VEC_OF(diff_pair, &a->metadata);
    d->rows = VEC_OF(diff_row, &a->metadata);
    d->beside = VEC_OF(diff_file, &a->metadata);
    d->texts.limit_bytes = SIZE_MAX / 2;
    pthread_mutex_init(&d->lock, NULL);
    run_init(&d->a, ctx, a, NULL);
    run_init(&d->b, ctx, b, NULL);
    tensor_pairs_init(&d->common, &d->a, &d->b);
    diff_shared_key shared = {0};
    const fsdpck_status st = run_diff(d, a, b, &parts, &shared, err);
    diff_unshare_key(&shared);
    progress_phase(&ctx->progress, NULL, 0);
    if (st != FSDPCK_OK)
        diff_free_one(d);
    else
        *out = d;
    return st;
}

void diff_free_one(fsdpck_diff *d)
{
    VEC_RELEASE_ALL(&d->pairs, &d->rows, &d->beside);
    tensor_pairs_release(&d->common);
    text_release(&d->texts);
    pthread_mutex_destroy(&d->lock);
    run_release(&d->a);
    run_release(&d->b);
    free(d);
}

void diff_get_info_one(const fsdpck_diff *d, fsdpck_diff_info *all)
{
    struct exec_stats a, b;
    exec_get_stats(d->a.exec, &a);
    exec_get_stats(d->b.exec, &b);
    *all = (fsdpck_diff_info){
        .struct_nbytes = sizeof *all,
        .part = fsdpck_part_name((fsdpck_part)d->a.opt.select.part),
        .tensors_a = catalogue_tensor_count(&d->a.to.cat),
        .tensors_b = catalogue_tensor_count(&d->b.to.cat),
        .tensors_compared = d->values_skipped ? 0 : d->pairs.count,
        .objects_compared = d->objects_compared,
        .bytes_read = a.bytes_read + b.bytes_read,
        .rows = d->rows.count,
        .stopped = d->may_have_more || d->values_skipped || atomic_load(&d->enough.set) != 0,
        .atol = d->rule.atol,
        .rtol = d->rule.rtol,
        .has_checksums = d->has_checksums,
    };
    for (size_t i = 0; i < all->tensors_compared; i++) {
        all->by_digest += VEC_AT(&d->pairs, const diff_pair, i)->streamed;
        all->nbytes_compared +=
            catalogue_tensor_nbytes(&d->a.to.cat, VEC_AT(&d->common.list, const tensor_pair, i)->a);
    }
}

/* The index of an element, row-major. */
static void unravel_index(const uint64_t *shape, unsigned ndim, uint64_t number, uint64_t *index)
{
    for (unsigned k = ndim; k-- > 0;) {
        index[k] = number % shape[k];
        number /= shape[k];
    }
}

/* Its name and types. */
static void type_row(const fsdpck_diff *d, const diff_row *r, fsdpck_diff_row *row)
{
    uint32_t index;
    const catalogue *c = row_side(d, r, &index);
    const cat_tensor *t = catalogue_tensor(c, index);
    row->name = catalogue_name(c, t->name);
    row->name_nbytes = catalogue_name_nbytes(c, t->name);
    row->part = diff_part_of_tensor(r->a != CAT_NONE ? &d->a : &d->b, index);
    row->is_counter = diff_is_counter(c, index);
    if (r->a != CAT_NONE) {
        const cat_tensor *a = catalogue_tensor(&d->a.to.cat, r->a);
        row->dtype_a = dtype_get((dtype)a->dtype)->name;
        row->ndim_a = a->ndim;
        row->shape_a = catalogue_shape(&d->a.to.cat, r->a);
    }
    if (r->b != CAT_NONE) {
        const cat_tensor *b = catalogue_tensor(&d->b.to.cat, r->b);
        row->dtype_b = dtype_get((dtype)b->dtype)->name;
        row->ndim_b = b->ndim;
        row->shape_b = catalogue_shape(&d->b.to.cat, r->b);
    }
}

static void tensor_row(const fsdpck_diff *d, const diff_row *r, fsdpck_diff_row *row)
{
    uint32_t index;
    const catalogue *c = row_side(d, r, &index);
    type_row(d, r, row);
    if (r->kind != FSDPCK_DIFF_VALUES)
        return;
    const dtype type = (dtype)catalogue_tensor(c, index)->dtype;
    row->nelems = catalogue_tensor_nelems(c, index);
    row->located = r->stats.differing != UINT64_MAX;
    if (!row->located)
        return;
    row->differing = r->stats.differing;
    row->not_numbers = r->stats.not_numbers;
    row->nans = r->stats.nans;
    row->largest = r->stats.largest;
    row->has_norms = r->sums.n == row->nelems;
    row->norm_a = change_sums_norm(r->sums.aa);
    row->relative = change_sums_relative(&r->sums);
    row->distance = change_sums_norm(r->sums.distance);
    unravel_index(row->shape_a, row->ndim_a, r->stats.first, row->first);
    compare_print(type, r->stats.first_a, row->first_a, sizeof row->first_a);
    compare_print(type, r->stats.first_b, row->first_b, sizeof row->first_b);
}

bool diff_fill_compared(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row)
{
    const tensor_pair *of = VEC_AT(&d->common.list, const tensor_pair, index);
    const diff_row one = {.kind = FSDPCK_DIFF_VALUES, .a = of->a, .b = of->b};
    type_row(d, &one, row);
    return atomic_load(&d->enough.set) == 0 &&
           VEC_AT(&d->pairs, const diff_pair, index)->stats.differing == 0;
}

void diff_fill_row(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row)
{
    const diff_row *r = VEC_AT(&d->rows, const diff_row, index);
    row->kind = r->kind;
    if (r->kind < FSDPCK_DIFF_OBJECT_ONLY_A) {
        tensor_row(d, r, row);
        return;
    }
    const catalogue *c = r->a != CAT_NONE ? &d->a.src->cat : &d->b.src->cat;
    const uint32_t object = r->a != CAT_NONE ? r->a : r->b; /* none: keys of a dict */
    const cat_object *o = object == CAT_NONE ? NULL : catalogue_object(c, object);
    row->name = d->texts.text + r->name_at;
    row->name_nbytes = r->name_nbytes;
    row->part = object == CAT_NONE ? FSDPCK_PART_OTHER
                                   : diff_part_of_object(r->a != CAT_NONE ? &d->a : &d->b, object);
    row->rank = o == NULL || o->rank == UINT16_MAX ? -1 : o->rank;
    if (r->kind == FSDPCK_DIFF_OBJECT) {
        row->text_a = d->texts.text + r->text_at;
        row->text_b = d->texts.text + r->text_b_at;
    }
}
