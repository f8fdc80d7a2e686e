/* All tensors that an error is about, for callers: its message has space for the names of a few. */
#include <stdlib.h>
#include <string.h>

#include "fsdpck_verify.h"
#include "open/checkpoint.h"

/* The tensors of one error. */
typedef struct named_tensors {
    fsdpck_finding_id finding;
    char *path, *first; /* path and tensor of the error */
    text_buf names;     /* escaped, each with its NUL */
    struct named_tensors *next;
} named_tensors;

static bool is_about(const named_tensors *t, const fsdpck_error *what)
{
    return t->finding == what->finding && strcmp(t->path, what->path) == 0 &&
           strcmp(t->first, what->tensor) == 0;
}

static void release(named_tensors *t)
{
    free(t->path);
    free(t->first);
    text_release(&t->names);
    free(t);
}

void named_tensors_drop(fsdpck_context *ctx, const char *path)
{
    fsdpck_error about = FSDPCK_ERROR_INIT;
    error_path(&about, path); /* as long as that of the error */
    pthread_mutex_lock(&ctx->warnings_lock);
    for (named_tensors **at = &ctx->named; *at != NULL;) {
        named_tensors *t = *at;
        if (path != NULL && strcmp(t->path, about.path) != 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        release(t);
    }
    pthread_mutex_unlock(&ctx->warnings_lock);
}

/* Keeps the first CONTEXT_MISSING_MAX names. */
static void cut(text_buf *names)
{
    size_t at = 0;
    for (size_t i = 0; i < CONTEXT_MISSING_MAX && at < names->nbytes; i++)
        at += strlen(names->text + at) + 1;
    names->nbytes = at;
}

void named_tensors_keep(fsdpck_context *ctx, const fsdpck_error *what, text_buf *names)
{
    named_tensors *t = names->failed || names->nbytes == 0 ? NULL : calloc(1, sizeof *t);
    if (t == NULL)
        return;
    *t = (named_tensors){what->finding, strdup(what->path), strdup(what->tensor), *names, NULL};
    *names = (text_buf){0};
    if (t->path == NULL || t->first == NULL) {
        release(t);
        return;
    }
    cut(&t->names);
    pthread_mutex_lock(&ctx->warnings_lock);
    t->next = ctx->named;
    ctx->named = t;
    pthread_mutex_unlock(&ctx->warnings_lock);
}

const char *fsdpck_context_named_tensor(fsdpck_context *ctx, const fsdpck_error *what,
                                        size_t *cursor)
{
    const char *name = NULL;
    pthread_mutex_lock(&ctx->warnings_lock);
    const named_tensors *t = ctx->named;
    while (t != NULL && !is_about(t, what))
        t = t->next;
    if (t != NULL && *cursor < t->names.nbytes) {
        name = t->names.text + *cursor;
        *cursor += strlen(name) + 1;
    }
    pthread_mutex_unlock(&ctx->warnings_lock);
    return name;
}
