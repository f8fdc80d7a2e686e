/* Missing files of a checkpoint, for callers: an error has space for the names of a few. */
#include <stdlib.h>
#include <string.h>

#include "open/checkpoint.h"

static bool grow(fsdpck_context *ctx)
{
    const size_t capacity = ctx->missing_capacity == 0 ? 16 : 2 * ctx->missing_capacity;
    if (ctx->missing_count < ctx->missing_capacity)
        return true;
    if (ctx->missing_count >= CONTEXT_MISSING_MAX)
        return false;
    missing_file *list = realloc(ctx->missing, capacity * sizeof *list);
    if (list == NULL)
        return false;
    ctx->missing = list;
    ctx->missing_capacity = capacity;
    return true;
}

static void release(missing_file *f)
{
    free(f->folder);
    free(f->name);
}

void missing_files_keep(fsdpck_context *ctx, const log_line *line)
{
    pthread_mutex_lock(&ctx->warnings_lock);
    if (grow(ctx)) {
        missing_file *f = &ctx->missing[ctx->missing_count];
        *f = (missing_file){strdup(line->folder), strdup(line->missing)};
        if (f->folder != NULL && f->name != NULL)
            ctx->missing_count++;
        else
            release(f);
    }
    pthread_mutex_unlock(&ctx->warnings_lock);
}

void missing_files_drop(fsdpck_context *ctx, const char *parent)
{
    size_t kept = 0;
    pthread_mutex_lock(&ctx->warnings_lock);
    for (size_t i = 0; i < ctx->missing_count; i++) {
        if (parent == NULL || strcmp(ctx->missing[i].folder, parent) == 0)
            release(&ctx->missing[i]);
        else
            ctx->missing[kept++] = ctx->missing[i];
    }
    ctx->missing_count = kept;
    if (parent == NULL) {
        free(ctx->missing);
        ctx->missing = NULL;
        ctx->missing_capacity = 0;
    }
    pthread_mutex_unlock(&ctx->warnings_lock);
    named_tensors_drop(ctx, parent);
}

const char *fsdpck_context_missing_file(fsdpck_context *ctx, const fsdpck_error *what,
                                        size_t *cursor)
{
    const char *name = NULL;
    fsdpck_error parent;
    if (what->finding != FSDPCK_FINDING_FILE_MISSING)
        return NULL;
    pthread_mutex_lock(&ctx->warnings_lock);
    for (; *cursor < ctx->missing_count && name == NULL; (*cursor)++) {
        const missing_file *f = &ctx->missing[*cursor];
        fsdpck_error_init(&parent);
        error_path(&parent, f->folder); /* as long as that of `what` */
        if (strcmp(parent.path, what->path) == 0)
            name = f->name;
    }
    pthread_mutex_unlock(&ctx->warnings_lock);
    return name;
}
