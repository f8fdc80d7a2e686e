/* check_steps.c: steps of the optimizer's parameters, as the values of all tensors are read. */
#include "check/check_internal.h"
#include "state/step_files.h"

static bool get_step(void *ctx, uint64_t tensor, double *step)
{
    const check *c = ctx;
    const scan_counts *s = &c->sums[tensor];
    if (s->nelems != 1 || s->nan + s->inf > 0)
        return false;
    *step = element_number((dtype)catalogue_tensor(c->r->cat, tensor)->dtype, s->first);
    return true;
}

void check_steps(check *c)
{
    step_files f;
    fsdpck_error what;
    const fsdpck_status st = step_files_judge(c->r->cat, get_step, c, c->r->metadata, &f, NULL);
    c->result->step_files = f.files;
    if (st != FSDPCK_OK || f.steps < 2)
        return;
    step_files_describe(c->r->cat, &f, &what);
    if (!f.is_mixture) {
        findings_report(c->found, &what);
        return;
    }
    const cat_tensor *t = catalogue_tensor(c->r->cat, f.odd.first);
    check_add_path(c, catalogue_chunk(c->r->cat, t->first_chunk)->file, &what);
    findings_report_as(c->found, FINDING_WARNING, &what);
}
