/* The step in the name of the folder. Steps of the Trainer of transformers: in trainer_state.json and in optimizer.pt. Steps of
 * DeepSpeed: those of the training, those that loss scaling skipped, and those of the optimizer. */
#include <inttypes.h>
#include <string.h>

#include "verify/verify_internal.h"

static void check_name(fsdpck_verify *v)
{
    int64_t recorded, named;
    const char *recorded_in;
    fsdpck_error what;
    if (!checkpoint_step_of_name(v->src, &recorded, &named, &recorded_in) || recorded == named)
        return;
    FAIL_WITH(&what, BADINPUT, STEP_NAME,
              ("'%s' records another step than the name of the folder", recorded_in),
              (path, v->src->path), (expected, "step %" PRId64, named),
              (found, "step %" PRId64, recorded));
    findings_report(&v->found, &what);
}

/* Steps of an optimizer whose file is beside trainer_state.json. With a scaler of gradients, the optimizer skips steps whose
 * gradients overflow, and the training counts them. */
static void check_state(fsdpck_verify *v)
{
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    int64_t training = -1, optimizer = -1;
    bool has_scaler = false;
    char name[256] = "";
    fsdpck_error what;
    for (size_t i = 0; fsdpck_get_state_file(v->src, i, &f); i++) {
        has_scaler = has_scaler || f.kind == FSDPCK_STATE_SCALER;
        if (f.kind == FSDPCK_STATE_PROGRESS)
            training = f.step;
        if (f.kind == FSDPCK_STATE_OPTIMIZER && f.step > optimizer && strlen(f.name) < sizeof name) {
            optimizer = f.step;
            memcpy(name, f.name, strlen(f.name) + 1);
        }
    }
    if (training < 0 || optimizer < 0 || training == optimizer ||
        (has_scaler && optimizer < training))
        return;
    FAIL_WITH(&what, BADINPUT, STEP_STATE,
              ("'%s' and trainer_state.json record different steps", name), (path, v->src->path),
              (expected, "step %" PRId64 ", of trainer_state.json", training),
              (found, "step %" PRId64 " in '%s'", optimizer, name));
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
