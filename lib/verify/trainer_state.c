#include "verify/trainer_state.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool trainer_state_has_name(const char *name)
{
    static const char *const globs[] = {
        "optimizer*.pt", "optimizer*.bin", "optimizer*.pth", "scheduler*.pt",
        "scheduler*.bin", "scaler*.pt", "sampler*.bin", "rng_state*.pth",
        "random_states_*.pkl", "training_args.bin"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

bool trainer_state_is_file(const char *path)
{
    path_kind kind;
    return trainer_state_has_name(text_file_name(path)) &&
           path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

bool trainer_state_is_all(const search_result *found)
{
    for (size_t i = 0; i < found->count; i++)
        if (!trainer_state_is_file(found->paths[i]))
            return false;
    return found->count > 0;
}

bool trainer_state_is_read(const catalogue *c, const char *entry)
{
    for (size_t i = 0; i < catalogue_file_count(c); i++)
        if (strcmp(catalogue_name(c, catalogue_file(c, (uint32_t)i)->path), entry) == 0)
            return true;
    return false;
}

/* A zip that was cut off has no end record. Those of torch.save have no comment after it. */
static bool is_zip_with_end(const probe_input *in, const char *entry)
{
    enum { END_NBYTES = 22 };
    uint8_t head[4], end[4];
    file f = FILE_CLOSED;
    if (file_open_read(&f, &in->dir, entry, 0, NULL) != FSDPCK_OK)
        return false;
    const bool is_read =
        f.nbytes >= END_NBYTES && file_read_at(&f, 0, head, sizeof head, NULL) == FSDPCK_OK &&
        file_read_at(&f, f.nbytes - END_NBYTES, end, sizeof end, NULL) == FSDPCK_OK;
    file_abandon(&f);
    return is_read && memcmp(head, "PK\3\4", sizeof head) == 0 &&
           memcmp(end, "PK\5\6", sizeof end) == 0;
}

fsdpck_status trainer_state_check(fsdpck_context *ctx, const probe_input *in, const char *entry,
                                  bool ends_only, fsdpck_error *err)
{
    const logger log = ctx->log;
    fsdpck_checkpoint *c = NULL;
    path_kind kind;
    if (path_probe(&in->dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind != PATH_FILE)
        return FSDPCK_OK;
    if (ends_only && is_zip_with_end(in, entry))
        return FSDPCK_OK;
    char *path = folder_path_join(in->path, entry);
    if (path == NULL)
        return error_set_nomem(err, strlen(entry));
    ctx->log = (logger){0};
    const fsdpck_status st = checkpoint_open(ctx, path, NULL, NULL, NULL, &c, err);
    fsdpck_close(c);
    ctx->log = log;
    free(path);
    return st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT ? FSDPCK_OK : st;
}

static fsdpck_status fail_damaged(const probe_input *in, const char *entry, const fsdpck_error *why,
                                  fsdpck_error *err)
{
    (void)error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_SIDE_UNREAD,
                    "file of the trainer's state beside the weights cannot be read: %s",
                    why->message);
    error_path_in(err, in->path, entry);
    return FSDPCK_BADINPUT;
}

fsdpck_status trainer_state_check_folder(fsdpck_context *ctx, const probe_input *in,
                                         const catalogue *read, bool ends_only, fsdpck_error *err)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        fsdpck_error why = FSDPCK_ERROR_INIT;
        if (!trainer_state_has_name(entry) || (read != NULL && trainer_state_is_read(read, entry)))
            continue;
        const fsdpck_status st = trainer_state_check(ctx, in, entry, ends_only, &why);
        if (st == FSDPCK_BADINPUT)
            return fail_damaged(in, entry, &why, err);
        if (st != FSDPCK_OK && err != NULL)
            *err = why;
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}
