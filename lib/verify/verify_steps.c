/* The step in the name of the folder, in files of the trainer and in objects. Steps of the Trainer of transformers: in trainer_state.json, optimizer.pt and scheduler.pt. Steps of
 * DeepSpeed: those of the training, those that loss scaling skipped, and those of the optimizer. */
#include <inttypes.h>

#include "open/step_evidence.h"
#include "verify/state_steps.h"
#include "verify/verify_internal.h"

/* Trainers that name folders otherwise may count from 0, or not by the number that they store: a note. */
static void check_name(fsdpck_verify *v)
{
    int64_t recorded, named;
    const char *recorded_in;
    bool of_trainer;
    fsdpck_error what;
    if (!checkpoint_step_of_name(v->src, &recorded, &named, &recorded_in, &of_trainer) ||
        recorded == named)
        return;
    FAIL_WITH(&what, BADINPUT, STEP_NAME,
              ("'%s'%s records another step than the name of the folder", recorded_in,
               of_trainer ? "" : " in the checkpoint"),
              (path, v->src->path), (expected, "step %" PRId64, named),
              (found, "step %" PRId64, recorded));
    if (of_trainer)
        findings_report(&v->found, &what);
    else
        findings_report_as(&v->found, FINDING_NOTE, &what);
}

static void check_state(fsdpck_verify *v)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (step_evidence_differs(v->src, &what))
        findings_report(&v->found, &what);
    if (state_pair_is_lost(v->src, &what))
        findings_report(&v->found, &what);
    for (size_t i = 0; state_kind_differs(v->src, &i, &what) != NULL;)
        findings_report(&v->found, &what);
}

void verify_steps(fsdpck_verify *v)
{
    fsdpck_checkpoint *c = v->src;
    if (c->remote_files == NULL && c->ctx->group == NULL) {
        check_name(v);
        check_state(v);
    }
    deepspeed_steps s;
    fsdpck_error what;
    /* At the level above, the check of all numbers compares them. */
    if ((v->level == CHECK_COVERAGE || v->level == CHECK_CHECKSUM) && !verify_is_partial(v) &&
        step_evidence_is_mixed(c, &what))
        findings_report_as(&v->found, FINDING_WARNING, &what);
    /* Files of other hosts are read only while all ranks serve them. */
    if (v->level < CHECK_CHECKSUM || c->remote_files != NULL || c->ctx->group != NULL ||
        verify_is_partial(v))
        return;
    checkpoint_deepspeed_steps(c, &s);
    const int64_t skipped = s.skipped > 0 ? s.skipped : 0;
    if (s.global < 0 || s.optimizer < 0 || skipped > s.global ||
        s.global - skipped == s.optimizer ||
        (s.skipped < 0 && s.optimizer < s.global)) /* an unknown number was skipped */
        return;
    FAIL_WITH(&what, BADINPUT, ZERO_STEP, ("the optimizer is at another step than the training"),
              (path, c->path),
              (expected, "step %" PRId64 ", of global_steps %" PRId64 " and skipped_steps %" PRId64,
               s.global - skipped, s.global, skipped),
              (found, "step %" PRId64 " in the optimizer's state", s.optimizer),
              (next, "check that model states and optimizer states are from one save"));
    findings_report(&v->found, &what);
}
