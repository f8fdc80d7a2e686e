/* Files of a trainer's state beside the weights, such as 'optimizer.pt': no conversion reads them, a resume does. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "verify/verify_internal.h"

/* By the names that transformers, accelerate and their like give to what torch.save writes. */
static bool is_state(const char *name)
{
    static const char *const globs[] = {"optimizer*.pt",  "optimizer*.bin",   "optimizer*.pth",
                                        "scheduler*.pt",  "scheduler*.bin",   "scaler*.pt",
                                        "rng_state*.pth", "training_args.bin"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

static bool is_read(const catalogue *c, const char *entry)
{
    for (size_t i = 0; i < catalogue_file_count(c); i++)
        if (strcmp(catalogue_name(c, catalogue_file(c, (uint32_t)i)->path), entry) == 0)
            return true;
    return false;
}

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
    const logger log = ctx->log;
    fsdpck_checkpoint *c = NULL;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    path_kind kind;
    if (path_probe(&v->src->probe.dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind != PATH_FILE)
        return FSDPCK_OK;
    char *path = folder_path_join(v->src->path, entry);
    if (path == NULL)
        return error_set_nomem(err, strlen(entry));
    ctx->log = (logger){0};
    const fsdpck_status st = checkpoint_open(ctx, path, NULL, NULL, NULL, &c, &why);
    fsdpck_close(c);
    ctx->log = log;
    if (st == FSDPCK_BADINPUT)
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
        if (is_state(in->entries[i]) && !is_read(read, in->entries[i]))
            RETURN_IF(check_file_beside(v, ctx, in->entries[i], err));
    return FSDPCK_OK;
}
