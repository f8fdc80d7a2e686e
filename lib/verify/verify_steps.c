/* The step in the name of the folder, and those that step_evidence.h compares. */
#include "open/step_evidence.h"
#include "open/step_records.h"
#include "verify/state_steps.h"
#include "verify/verify_internal.h"

/* Trainers that name folders otherwise may count from 0, or not by the number that they store: a note. */
static bool check_name(fsdpck_verify *v)
{
    bool of_trainer;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (!step_evidence_of_name(v->src, &of_trainer, &what))
        return false;
    if (of_trainer)
        findings_report(&v->found, &what);
    else
        findings_report_as(&v->found, FINDING_NOTE, &what);
    return true;
}

/* is_named: that the name differs was reported. */
static void check_state(fsdpck_verify *v, bool is_named)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (step_records_differ(v->src, &what))
        findings_report_as(&v->found, FINDING_WARNING, &what);
    if (step_evidence_differs(v->src, &what))
        findings_report(&v->found, &what);
    else if (step_evidence_is_doubtful(v->src, &what) ||
             (!is_named && step_evidence_disagrees(v->src, &what)))
        findings_report_as(&v->found, FINDING_NOTE, &what);
    if (state_pair_is_lost(v->src, &what))
        findings_report(&v->found, &what);
    for (size_t i = 0; state_kind_differs(v->src, &i, &what) != NULL;)
        findings_report(&v->found, &what);
}

void verify_steps(fsdpck_verify *v)
{
    fsdpck_checkpoint *c = v->src;
    fsdpck_error what;
    if (c->remote_files == NULL && c->ctx->group == NULL)
        check_state(v, check_name(v));
    if (v->level < CHECK_COVERAGE || verify_is_partial(v))
        return;
    /* At the level above, the check of all numbers compares them. */
    if ((v->level == CHECK_COVERAGE || v->level == CHECK_CHECKSUM) &&
        step_evidence_is_mixed(c, &what))
        findings_report_as(&v->found, FINDING_WARNING, &what);
    if (step_evidence_is_copied(c, &what))
        findings_report_as(&v->found, FINDING_WARNING, &what);
    if (step_evidence_of_zero(c, &what))
        findings_report(&v->found, &what);
}
