#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "transform.h"

#ifndef FSDPCK_VERSION
#define FSDPCK_VERSION "0.1.0"
#endif

const char *fsdpck_version(void)
{
    return FSDPCK_VERSION;
}

static const char *builtin_named(size_t index, const char *name, const char *text,
                                 const char **description)
{
    if (index > 0)
        return NULL;
    if (description != NULL)
        *description = text;
    return name;
}

const char *fsdpck_builtin(const char *kind, size_t index, const char **description)
{
    if (strcmp(kind, "reader") == 0) {
        for (size_t i = 0; format_readers[i] != NULL; i++) {
            if (i == index) {
                if (description != NULL)
                    *description = format_readers[i]->description;
                return format_readers[i]->name;
            }
        }
    } else if (strcmp(kind, "writer") == 0) {
        for (size_t i = 0; format_writers[i] != NULL; i++) {
            if (i == index) {
                if (description != NULL)
                    *description = format_writers[i]->description;
                return format_writers[i]->name;
            }
        }
    } else if (strcmp(kind, "engine") == 0) {
        return builtin_named(index, "threads", "processor threads, direct I/O", description);
    } else if (strcmp(kind, "group") == 0) {
        return builtin_named(index, "self", "one process", description);
    }
    return NULL;
}

static void forward_log(void *ctx, log_level level, const char *text)
{
    const fsdpck_context *c = ctx;
    if (c->user_fn != NULL)
        c->user_fn(c->user_arg, (fsdpck_log_level)level, text);
}

fsdpck_context *fsdpck_context_new(void)
{
    fsdpck_context *ctx = calloc(1, sizeof *ctx);
    if (ctx != NULL)
        ctx->log = (logger){forward_log, ctx};
    return ctx;
}

void fsdpck_context_free(fsdpck_context *ctx)
{
    free(ctx);
}

void fsdpck_context_set_log(fsdpck_context *ctx, fsdpck_log_fn fn, void *arg)
{
    ctx->user_fn = fn;
    ctx->user_arg = arg;
}

void fsdpck_context_cancel(fsdpck_context *ctx)
{
    atomic_store(&ctx->cancel.set, 1);
}

void fsdpck_context_progress(const fsdpck_context *ctx, const char **phase, uint64_t *done_nbytes,
                             uint64_t *total_nbytes)
{
    const char *p = atomic_load(&ctx->progress.phase);
    if (phase != NULL)
        *phase = p == NULL ? "" : p;
    if (done_nbytes != NULL)
        *done_nbytes = atomic_load(&ctx->progress.done_bytes);
    if (total_nbytes != NULL)
        *total_nbytes = atomic_load(&ctx->progress.total_bytes);
}

unsigned transform_threads(unsigned asked)
{
    return asked > 0 ? asked : platform_cpu_count();
}

char *fsdpck_escape(char *dst, size_t capacity_nbytes, const char *text, size_t nbytes)
{
    return escape_text(dst, capacity_nbytes, text, nbytes);
}

const char *fsdpck_part_name(fsdpck_part part)
{
    static const char *const names[] = {"model", "optimizer", "other", "all"};
    return (unsigned)part < 4 ? names[part] : "?";
}
