/* What would stop consolidate or reshard with default options is a finding: copies of a chunk that
 * differ, tensors that need an option, and what the formats written by default cannot hold. */
#include <stdio.h>
#include <string.h>

#include "compare/digest.h"
#include "run/run.h"
#include "statedict/unflatten.h"
#include "verify/verify_internal.h"

static bool is_of_optimizer(const fsdpck_checkpoint *c, uint64_t tensor)
{
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == PART_OPTIMIZER;
}

static bool names_optimizer(const fsdpck_checkpoint *c, const char *name)
{
    const uint32_t tensor = catalogue_find(&c->cat, name, strlen(name));
    return tensor != CAT_NONE && is_of_optimizer(c, tensor);
}

/* Buffers of the model may differ where nobody synchronises them; state of an optimizer has no reason
 * to, but that the files are of several saves. *any: there is some. */
static fsdpck_status tell_optimizer_differs(fsdpck_verify *v, const fsdpck_checkpoint *apart,
                                            const fsdpck_error *first, bool *any, fsdpck_error *err)
{
    const bool is_first = names_optimizer(v->src, first->tensor);
    fsdpck_error what;
    strtab names;
    uint32_t id;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&names, NULL);
    for (uint64_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(&apart->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&apart->cat, i);
        const char *name = catalogue_name(&apart->cat, t->name);
        const size_t nbytes = catalogue_name_nbytes(&apart->cat, t->name);
        if ((t->flags & CAT_TENSOR_DIFFERS) && is_of_optimizer(apart, i))
            st = strtab_intern(&names, name, flat_name_without_rank(name, nbytes), &id, err);
    }
    const size_t count = strtab_count(&names);
    *any = st == FSDPCK_OK && count > 0;
    if (*any) {
        fsdpck_error_init(&what);
        error_set(&what, FSDPCK_BADINPUT, FSDPCK_FINDING_RANK_DIFFER,
                  "optimizer state differs between ranks");
        error_path(&what, is_first ? first->path : v->src->path);
        error_tensor(&what, is_first ? first->tensor : strtab_text(&names, 0));
        if (count > 1)
            error_found(&what, "%s%s%zu tensors so", is_first ? first->found : "",
                        is_first ? "; " : "", count);
        else if (is_first)
            error_found(&what, "%s", first->found);
        error_next(&what,
                   "see whether all files are of one save; else say what becomes of it where "
                   "it is read: --per-rank keep, first or drop");
        findings_tell_as(&v->found, FINDING_WARNING, &what);
    }
    strtab_release(&names);
    return st;
}

/* One tensor of each rank, so that those that differ do not hide copies that must not. */
static fsdpck_status check_copies_apart(fsdpck_verify *v, const fsdpck_error *first, bool *any,
                                        fsdpck_error *err)
{
    fsdpck_context *ctx = v->src->ctx;
    const fsdpck_open_options *given = v->options.open;
    fsdpck_open_options o = FSDPCK_OPEN_OPTIONS_INIT;
    fsdpck_checkpoint *apart = NULL;
    fsdpck_warning w;

    if (given != NULL)
        memcpy(&o, given, given->struct_nbytes < sizeof o ? given->struct_nbytes : sizeof o);
    o.struct_nbytes = sizeof o;
    o.per_rank = FSDPCK_PER_RANK_KEEP;
    verify_take_warnings(v, ctx);
    fsdpck_status st = transform_open(ctx, v->path, &o, NULL, NULL, &apart, err);
    if (st == FSDPCK_OK)
        st = tell_optimizer_differs(v, apart, first, any, err);
    if (st == FSDPCK_OK)
        st = digest_check_coverage(ctx, apart, FSDPCK_PART_ALL, true, err);
    fsdpck_close(apart);
    while (fsdpck_context_warning(ctx, v->first_warning, &w)) /* have been told */
        v->first_warning++;
    return st;
}

/* Nothing is wrong with the files: an option, or another format, makes the conversion possible. */
static bool is_choice(const finding_kind *kind)
{
    return kind->class == FINDING_DOUBT || kind->class == FINDING_MODEL ||
           kind->class == FINDING_REQUEST || kind->class == FINDING_LIMIT;
}

static finding_severity severity_of(const fsdpck_error *what, bool another_holds)
{
    const finding_kind *kind = finding_get(what->finding);
    if (what->status == FSDPCK_UNSUPPORTED && another_holds)
        return FINDING_NOTE;
    if (kind == NULL)
        return FINDING_ERROR;
    if (is_choice(kind) || what->status == FSDPCK_LIMIT)
        return FINDING_WARNING;
    return kind->severity < FINDING_WARNING ? FINDING_WARNING : kind->severity;
}

/* What stopped a conversion becomes a finding; any other failure is the result. `another_holds`: another
 * format holds what this one cannot. */
static fsdpck_status tell_stop(fsdpck_verify *v, fsdpck_error *what, bool another_holds,
                               fsdpck_error *err)
{
    const fsdpck_status st = what->status;
    if (st == FSDPCK_USAGE)
        return FSDPCK_OK;
    if (st != FSDPCK_BADINPUT && st != FSDPCK_UNSUPPORTED && st != FSDPCK_LIMIT) {
        if (err != NULL)
            *err = *what;
        return st;
    }
    if (what->finding == FSDPCK_FINDING_NONE)
        what->finding =
            st == FSDPCK_LIMIT ? FSDPCK_FINDING_LIMIT_MEMORY : FSDPCK_FINDING_SYS_UNSUPPORTED;
    if (what->path[0] == '\0')
        error_path(what, v->src->path);
    const finding_severity severity = severity_of(what, another_holds);
    if (!findings_has(&v->found, what->finding,
                      severity < FINDING_WARNING ? severity : FINDING_WARNING))
        findings_add_new(&v->found, finding_rules_given(&v->found.rules, what->finding, severity),
                         what);
    return FSDPCK_OK;
}

/* Part for part: what stops one of them hides nothing of the others. */
static fsdpck_status check_parts(fsdpck_verify *v, fsdpck_error *err)
{
    static const fsdpck_part parts[] = {FSDPCK_PART_MODEL, FSDPCK_PART_OPTIMIZER,
                                        FSDPCK_PART_OTHER};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        fsdpck_error what;
        fsdpck_error_init(&what);
        if (digest_check_coverage(v->src->ctx, v->src, parts[i], true, &what) != FSDPCK_OK)
            RETURN_IF(tell_stop(v, &what, false, err));
    }
    return FSDPCK_OK;
}

fsdpck_status verify_copies(fsdpck_verify *v, fsdpck_error *err)
{
    fsdpck_error what;
    if (v->level < CHECK_CHECKSUM || v->found.counts[FINDING_ERROR] > 0 || verify_is_partial(v))
        return FSDPCK_OK;
    fsdpck_error_init(&what);
    fsdpck_status st = digest_check_coverage(v->src->ctx, v->src, FSDPCK_PART_ALL, true, &what);
    if (st == FSDPCK_OK)
        return st;
    if (what.finding == FSDPCK_FINDING_RANK_DIFFER) {
        const fsdpck_error first = what;
        bool any = false;
        fsdpck_error_init(&what);
        st = check_copies_apart(v, &first, &any, &what);
        if (!any || !names_optimizer(v->src, first.tensor))
            findings_tell(&v->found, &first);
        return st == FSDPCK_OK ? st : tell_stop(v, &what, false, err);
    }
    RETURN_IF(tell_stop(v, &what, false, err));
    return check_parts(v, err);
}

/* All of a conversion but reading and writing data. */
static fsdpck_status plan_conversion(run *r, fsdpck_error *err)
{
    RETURN_IF(request_choose_writer(r, err));
    if (r->sharded)
        RETURN_IF(reshard_choose_layout(r, err));
    RETURN_IF(run_aim(r, err));
    RETURN_IF(transform_check_flat(r->src, &r->to.cat, err));
    RETURN_IF(run_place(r, err));
    return run_make_plan(r, err);
}

static fsdpck_status try_conversion(fsdpck_verify *v, const char *format, uint64_t world_size,
                                    fsdpck_error *what)
{
    group *g = v->src->ctx->group;
    run r;
    fsdpck_error_init(what);
    run_init(&r, v->src->ctx, v->src, NULL);
    r.dst = "";
    r.sharded = world_size > 0;
    r.opt.format = format;
    r.opt.world_size = world_size;
    fsdpck_status st = group_settle(g, plan_conversion(&r, what), true, what);
    if (st == FSDPCK_OK)
        st = run_same_plan(&r, what);
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
    fsdpck_warning w;
    bool works = false;
    if (v->level < CHECK_COVERAGE || v->found.counts[FINDING_ERROR] > 0)
        return FSDPCK_OK;
    for (size_t i = 0; i < WAYS; i++) {
        results[i] = try_conversion(v, ways[i].format, ways[i].world_size, &stops[i]);
        works = works || results[i] == FSDPCK_OK;
    }
    for (size_t i = 0; i < WAYS && st == FSDPCK_OK; i++)
        if (results[i] != FSDPCK_OK)
            st = tell_stop(v, &stops[i], works, err);
    while (fsdpck_context_warning(ctx, v->first_warning, &w)) /* of options that were not given */
        v->first_warning++;
    return st;
}
