#include "open/open_quietly.h"

fsdpck_status open_quietly(checkpoint_open_fn open, fsdpck_context *ctx, const char *path,
                           fsdpck_checkpoint **out, fsdpck_error *err)
{
    const logger log = ctx->log;
    fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);
    o.opaque_calls = 1;
    ctx->log = (logger){0};
    const fsdpck_status st = open(ctx, path, &o, NULL, NULL, out, err);
    ctx->log = log;
    return st;
}
