/* Reports obstacles to consolidate or reshard with default options: differing copies of a chunk,
 * tensors that need an option, and data that the default formats cannot hold. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "open/optimizer_copies.h"
#include "run/digest_run.h"
#include "verify/verify_internal.h"

static bool is_of_optimizer(const fsdpck_checkpoint *c, uint64_t tensor)
{
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == PART_OPTIMIZER;
}

static bool is_unreported(const fsdpck_checkpoint *c, uint64_t tensor)
{
    return is_of_optimizer(c, tensor) && !optimizer_copies_differ(c, tensor);
}

static bool names_optimizer(const fsdpck_checkpoint *c, const char *name)
{
    const uint32_t tensor = catalogue_find(&c->cat, name, strlen(name));
    return tensor != CAT_NONE && is_of_optimizer(c, tensor);
}

static bool differs(const rank_differences *d, uint64_t tensor)
{
    return (d->tensors[tensor / 64] >> tensor % 64 & 1) != 0;
}

/* Buffers of the model may differ between ranks if training does not synchronize them. Optimizer
 * state differs only if the files are of several saves; what shows at open has been reported. */
static void report_optimizer_differs(fsdpck_verify *v, const rank_differences *d)
{
    const catalogue *cat = &v->src->cat;
    const uint32_t named = catalogue_find(cat, d->first.tensor, strlen(d->first.tensor));
    const bool is_first = named != CAT_NONE && is_unreported(v->src, named);
    fsdpck_error what;
    uint64_t count = 0;
    const char *name = NULL;
    for (uint64_t i = 0; i < catalogue_tensor_count(cat); i++)
        if (differs(d, i) && is_unreported(v->src, i) && count++ == 0)
            name = catalogue_name(cat, catalogue_tensor(cat, i)->name);
    if (count == 0)
        return;
    FAIL_WITH(&what, BADINPUT, RANK_DIFFER, ("optimizer state differs between ranks"),
              (path, is_first ? d->first.path : v->src->path),
              (tensor, is_first ? d->first.tensor : name));
    if (count > 1)
        error_found(&what, "%s%s%" PRIu64 " tensors affected", is_first ? d->first.found : "",
                    is_first ? "; " : "", count);
    else if (is_first)
        error_found(&what, "%s", d->first.found);
    error_next(
        &what,
        "check that all files are from one save; if they are, give --per-rank keep, first or drop");
    findings_report_as(&v->found, FINDING_WARNING, &what);
}

/* The files are good: an option or a different format makes the conversion possible. */
static bool depends_on_options(const finding_kind *kind)
{
    return kind->class == FINDING_DOUBT || kind->class == FINDING_MODEL ||
           kind->class == FINDING_REQUEST || kind->class == FINDING_LIMIT;
}

static finding_severity severity_of(const fsdpck_error *what, bool other_format_works)
{
    const finding_kind *kind = finding_get(what->finding);
    const bool has_nothing = what->finding == FSDPCK_FINDING_KEY_NONE;
    if ((what->status == FSDPCK_UNSUPPORTED || has_nothing) && other_format_works)
        return FINDING_NOTE;
    if (kind == NULL)
        return FINDING_ERROR;
    /* Names that collide once they are cleaned: the user can choose other names. */
    if (what->status == FSDPCK_USAGE && other_format_works)
        return FINDING_WARNING;
    if (depends_on_options(kind) || what->status == FSDPCK_LIMIT)
        return FINDING_WARNING;
    return kind->severity < FINDING_WARNING ? FINDING_WARNING : kind->severity;
}

/* An obstacle to a conversion becomes a finding; any other failure is returned.
 * `other_format_works`: a different format can hold the data. */
static fsdpck_status report_stop(fsdpck_verify *v, fsdpck_error *what, bool other_format_works,
                                 fsdpck_error *err)
{
    const fsdpck_status st = what->status;
    if (st == FSDPCK_USAGE && what->finding == FSDPCK_FINDING_NONE)
        return FSDPCK_OK;
    if (st != FSDPCK_BADINPUT && st != FSDPCK_UNSUPPORTED && st != FSDPCK_LIMIT &&
        st != FSDPCK_USAGE) {
        if (err != NULL)
            *err = *what;
        return st;
    }
    if (what->finding == FSDPCK_FINDING_NONE)
        what->finding =
            st == FSDPCK_LIMIT ? FSDPCK_FINDING_LIMIT_MEMORY : FSDPCK_FINDING_SYS_UNSUPPORTED;
    if (what->path[0] == '\0')
        error_path(what, v->src->path);
    const finding_severity severity = severity_of(what, other_format_works);
    if (!findings_contain_id(&v->found, what->finding,
                             severity < FINDING_WARNING ? severity : FINDING_WARNING))
        findings_add_new(&v->found, finding_rules_given(&v->found.rules, what->finding, severity),
                         what);
    return FSDPCK_OK;
}

/* Part by part, so that an obstacle in one does not hide those of the others. */
static fsdpck_status check_parts(fsdpck_verify *v, fsdpck_error *err)
{
    static const fsdpck_part parts[] = {FSDPCK_PART_MODEL, FSDPCK_PART_OPTIMIZER,
                                        FSDPCK_PART_OTHER};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = digest_check_coverage(v->src->ctx, v->src, parts[i], &what);
        if (st != FSDPCK_OK && st != FSDPCK_USAGE) /* the part has no tensors */
            RETURN_IF(report_stop(v, &what, false, err));
    }
    return FSDPCK_OK;
}

/* Permitted differences between ranks must not hide differing copies. */
static fsdpck_status check_copies(fsdpck_verify *v, rank_differences *d, fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status st = digest_check_copies(v->src->ctx, v->src, d, &what);
    if (d->any) {
        report_optimizer_differs(v, d);
        if (!names_optimizer(v->src, d->first.tensor))
            findings_report(&v->found, &d->first);
    }
    if (st == FSDPCK_OK)
        return st;
    if (st != FSDPCK_USAGE)
        RETURN_IF(report_stop(v, &what, false, err));
    return d->any ? FSDPCK_OK : check_parts(v, err);
}

fsdpck_status verify_copies(fsdpck_verify *v, fsdpck_error *err)
{
    rank_differences d = {0};
    if (v->level < CHECK_CHECKSUM || v->found.counts[FINDING_ERROR] > 0 || verify_is_partial(v))
        return FSDPCK_OK;
    fsdpck_error_init(&d.first);
    const uint64_t nbytes = digest_differences_words(v->src) * sizeof *d.tensors;
    d.tensors = calloc(1, nbytes + 1);
    fsdpck_status st = d.tensors == NULL ? error_set_nomem(err, nbytes) : FSDPCK_OK;
    st = group_agree(v->src->ctx->group, st, err);
    if (st == FSDPCK_OK)
        st = check_copies(v, &d, err);
    free(d.tensors);
    return st;
}

/* A whole conversion without reading and writing data. */
static fsdpck_status plan_conversion(run *r, fsdpck_error *err)
{
    RETURN_IF(request_choose_writer(r, err));
    if (r->sharded)
        RETURN_IF(reshard_choose_layout(r, err));
    RETURN_IF(run_select(r, err));
    RETURN_IF(checkpoint_check_flat(r->src, &r->to.cat, err));
    RETURN_IF(run_lay_out(r, err));
    return run_make_plan(r, err);
}

static fsdpck_status try_conversion(fsdpck_verify *v, const char *format, uint64_t world_size,
                                    fsdpck_error *what)
{
    run r;
    fsdpck_error_init(what);
    run_init(&r, v->src->ctx, v->src, NULL);
    r.dst = "";
    r.sharded = world_size > 0;
    r.opt.output.format = format;
    r.opt.sharding.world_size = world_size;
    const fsdpck_status st = run_agree_on_plan(&r, plan_conversion(&r, what), GROUP_GOES_ON, what);
    run_release(&r);
    return st;
}

fsdpck_status verify_conversions(fsdpck_verify *v, fsdpck_error *err)
{
    static const struct {
        const char *format;
        uint64_t world_size;
    } ways[] = {{"safetensors", 0}, {"pt", 0}, {"dcp", 2}};
    enum { WAYS = sizeof ways / sizeof *ways };
    fsdpck_context *ctx = v->src->ctx;
    fsdpck_error stops[WAYS];
    fsdpck_status results[WAYS], st = FSDPCK_OK;
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    bool works = false;
    if (v->level < CHECK_COVERAGE || v->found.counts[FINDING_ERROR] > 0)
        return FSDPCK_OK;
    for (size_t i = 0; i < WAYS; i++) {
        results[i] = try_conversion(v, ways[i].format, ways[i].world_size, &stops[i]);
        works = works || results[i] == FSDPCK_OK;
    }
    for (size_t i = 0; i < WAYS && st == FSDPCK_OK; i++)
        if (results[i] != FSDPCK_OK)
            st = report_stop(v, &stops[i], works, err);
    while (fsdpck_context_warning(ctx, v->first_warning, &w)) /* of options that were not given */
        v->first_warning++;
    return st;
}
