#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "base/struct_copy.h"
#include "exec/exec.h"
#include "open/checkpoint.h"
#include "open/open_record.h"

#define PEER_TIMEOUT_SECONDS 60u

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
        if (index == 1 && exec_gpu_name() != NULL)
            return builtin_named(0, exec_gpu_name(), exec_gpu_description(), description);
        return builtin_named(index, "threads", "processor threads, direct I/O", description);
    } else if (strcmp(kind, "group") == 0) {
        return builtin_named(index, group_built_name(), group_built_description(), description);
    }
    return NULL;
}

char *fsdpck_builtin_state(const char *name, char *dst, size_t capacity_nbytes)
{
    if (capacity_nbytes > 0)
        dst[0] = '\0';
    if (exec_gpu_name() != NULL && strcmp(name, exec_gpu_name()) == 0)
        exec_gpu_describe_state(dst, capacity_nbytes);
    const format_reader *reader = format_reader_named(name);
    if (reader != NULL && reader->library != NULL)
        snprintf(dst, capacity_nbytes, "%s", reader->library());
    return dst;
}

/* ---- warnings ---- */

static void free_warning(fsdpck_warning *w)
{
    free((void *)w->message);
    free((void *)w->next);
}

static bool copy_warning(fsdpck_warning *w, const log_line *line)
{
    *w = (fsdpck_warning){sizeof *w, line->finding, strdup(line->text), strdup(line->next)};
    if (w->message != NULL && w->next != NULL)
        return true;
    free_warning(w);
    return false;
}

/* The last entry reports warnings that were dropped without room or memory. */
static void keep_warning(fsdpck_context *c, const log_line *line)
{
    pthread_mutex_lock(&c->warnings_lock);
    if (c->warnings_count + 1 < CONTEXT_WARNINGS_MAX &&
        copy_warning(&c->warnings[c->warnings_count], line))
        c->warnings_count++;
    else
        c->warnings_more = true;
    pthread_mutex_unlock(&c->warnings_lock);
}

int fsdpck_context_warning(fsdpck_context *ctx, size_t index, fsdpck_warning *warning)
{
    const fsdpck_warning more = {sizeof more, FSDPCK_FINDING_LIMIT_WARNINGS,
                                 "more warnings occurred than are listed", ""};
    int found = 1;
    pthread_mutex_lock(&ctx->warnings_lock);
    if (index < ctx->warnings_count)
        struct_copy_out(warning, &ctx->warnings[index], sizeof ctx->warnings[index]);
    else if (index == ctx->warnings_count && ctx->warnings_more)
        struct_copy_out(warning, &more, sizeof more);
    else
        found = 0;
    pthread_mutex_unlock(&ctx->warnings_lock);
    return found;
}

static void forward_log(void *ctx, const log_line *line)
{
    fsdpck_context *c = ctx;
    if (line->level == LOG_WARNING)
        keep_warning(c, line);
    if (line->missing != NULL)
        missing_files_keep(c, line);
    if (c->record != NULL)
        open_record_line(c->record, line);
    if (c->user_fn != NULL)
        c->user_fn(c->user_arg, (fsdpck_log_level)line->level, line->text);
}

/* ---- the context ---- */

fsdpck_context *fsdpck_context_new(void)
{
    fsdpck_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL)
        return NULL;
    if (pthread_mutex_init(&ctx->warnings_lock, NULL) != 0) {
        free(ctx);
        return NULL;
    }
    ctx->log = (logger){forward_log, ctx};
    ctx->watch.cancel = &ctx->cancel;
    ctx->watch.progress = &ctx->progress;
    atomic_store(&ctx->watch.peer_timeout_seconds, PEER_TIMEOUT_SECONDS);
    return ctx;
}

void fsdpck_context_free(fsdpck_context *ctx)
{
    if (ctx == NULL)
        return;
    for (size_t i = 0; i < ctx->warnings_count; i++)
        free_warning(&ctx->warnings[i]);
    missing_files_drop(ctx, NULL);
    pthread_mutex_destroy(&ctx->warnings_lock);
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
        *done_nbytes =
            atomic_load(&ctx->progress.done_bytes) + atomic_load(&ctx->progress.peers_bytes);
    if (total_nbytes != NULL)
        *total_nbytes = atomic_load(&ctx->progress.total_bytes);
}

uint64_t fsdpck_context_kept(const fsdpck_context *ctx)
{
    return atomic_load(&ctx->progress.kept_bytes) + atomic_load(&ctx->progress.peers_kept_bytes);
}

/* ---- ranks ---- */

fsdpck_status fsdpck_context_join(fsdpck_context *ctx, fsdpck_error *err)
{
    const fsdpck_status st = group_join(&ctx->watch, &ctx->joined, err);
    ctx->group = ctx->joined;
    return st;
}

void fsdpck_context_detach(fsdpck_context *ctx)
{
    ctx->group = NULL;
}

unsigned fsdpck_context_rank(const fsdpck_context *ctx)
{
    return group_rank(ctx->joined);
}

unsigned fsdpck_context_world_size(const fsdpck_context *ctx)
{
    return group_size(ctx->joined);
}

int fsdpck_context_lost_peer(const fsdpck_context *ctx)
{
    return group_is_broken(ctx->joined);
}

void fsdpck_context_set_peer_timeout(fsdpck_context *ctx, unsigned seconds)
{
    atomic_store(&ctx->watch.peer_timeout_seconds, seconds);
}

fsdpck_status fsdpck_context_agree(fsdpck_context *ctx, fsdpck_status status, fsdpck_error *err)
{
    return group_agree(ctx->group, status, err);
}

fsdpck_status fsdpck_context_broadcast(fsdpck_context *ctx, void *bytes, size_t nbytes,
                                       fsdpck_error *err)
{
    return group_broadcast(ctx->group, 0, bytes, nbytes, err);
}

void fsdpck_context_leave(fsdpck_context *ctx, fsdpck_status status)
{
    ctx->group = NULL;
    group_leave(&ctx->joined, status);
}

unsigned thread_count(unsigned asked)
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
