#include "open/common_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"

#define COMMON_FILE "common.pt"
/* Of one shard; a list with the dict. */
#define COMMON_OBJECT "common_state/shard_0_1"

static fsdpck_status read_file(const fsdpck_checkpoint *of, const char *path, common_state_fn fn,
                               void *ctx, fsdpck_error *err)
{
    const format_reader *pt = format_reader_named("pt");
    budget metadata;
    catalogue cat;
    void *self = NULL;
    budget_init(&metadata, of->metadata.limit_bytes - of->metadata.used_bytes, of->metadata.what,
                of->metadata.option);
    catalogue_init(&cat, &metadata);
    const open_request request = {.path = path,
                                  .metadata = &metadata,
                                  .cancel = &of->ctx->cancel,
                                  .nthreads = 1,
                                  .opaque_calls = true};
    const fsdpck_status st = pt->open(&request, &cat, &self, err);
    if (st == FSDPCK_OK) {
        fn(ctx, &cat.pool, cat.root);
        pt->close(self);
    }
    catalogue_release(&cat);
    return st;
}

static fsdpck_status read_object(fsdpck_checkpoint *of, uint32_t object, common_state_fn fn,
                                 void *ctx, fsdpck_error *err)
{
    if (!catalogue_object(&of->cat, object)->loaded) {
        const fsdpck_status st = checkpoint_load_object(of, object, err);
        if (st != FSDPCK_OK) {
            error_path(err, of->path);
            return st;
        }
    }
    const value content = catalogue_object(&of->cat, object)->content;
    fn(ctx, &of->cat.pool, value_item(&of->cat.pool, content, 0));
    return FSDPCK_OK;
}

fsdpck_status common_state_read(fsdpck_checkpoint *of, common_state_fn fn, void *ctx, bool *found,
                                fsdpck_error *err)
{
    *found = false;
    if (!of->probe.is_folder)
        return FSDPCK_OK;
    if (probe_has_entry(&of->probe, COMMON_FILE)) {
        char *path = folder_path_join(of->path, COMMON_FILE);
        if (path == NULL)
            return error_set_nomem(err, strlen(of->path));
        *found = true;
        const fsdpck_status st = read_file(of, path, fn, ctx, err);
        free(path);
        return st;
    }
    for (uint32_t i = 0; i < catalogue_object_count(&of->cat); i++) {
        const uint32_t name = catalogue_object(&of->cat, i)->name;
        *found = text_is(catalogue_name(&of->cat, name), catalogue_name_nbytes(&of->cat, name),
                         COMMON_OBJECT);
        if (*found)
            return read_object(of, i, fn, ctx, err);
    }
    return FSDPCK_OK;
}
