/* Files of a trainer's state beside the weights, such as 'optimizer.pt': no conversion reads them, a resume does. */
#include <stdlib.h>
#include <string.h>

#include "verify/trainer_state.h"
#include "verify/verify_internal.h"

static void tell(fsdpck_verify *v, const char *path, const fsdpck_error *why)
{
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, SIDE_UNREAD,
              ("file of the trainer's state beside the weights cannot be read"), (path, path),
              (found, "%s%s%s%s", why->message, why->finding == FSDPCK_FINDING_NONE ? "" : " [",
               why->finding == FSDPCK_FINDING_NONE ? "" : fsdpck_finding_name(why->finding),
               why->finding == FSDPCK_FINDING_NONE ? "" : "]"),
              (next, "copy the file again: a run that resumes from this folder needs it"));
    findings_report_as(&v->found, FINDING_WARNING, &what);
}

static fsdpck_status check_file_beside(fsdpck_verify *v, fsdpck_context *ctx, const char *entry,
                                       fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    const fsdpck_status st = trainer_state_check(ctx, &v->src->probe, entry, false, &why);
    char *path = st == FSDPCK_BADINPUT ? folder_path_join(v->src->path, entry) : NULL;
    if (path != NULL)
        tell(v, path, &why);
    free(path);
    if (st == FSDPCK_CANCELLED && err != NULL)
        *err = why;
    return st == FSDPCK_CANCELLED ? st : FSDPCK_OK;
}

fsdpck_status verify_unread_state(fsdpck_verify *v, fsdpck_context *ctx, fsdpck_error *err)
{
    const probe_input *in = &v->src->probe;
    const catalogue *read = v->src->adapter == NULL ? &v->src->cat : &v->src->read;
    if (!in->is_folder || ctx->group != NULL || v->src->remote_files != NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < in->entry_count; i++)
        if (trainer_state_has_name(in->entries[i]) && !trainer_state_is_read(read, in->entries[i]))
            RETURN_IF(check_file_beside(v, ctx, in->entries[i], err));
    return FSDPCK_OK;
}
