#include "open/memory_checkpoint.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "base/struct_copy.h"
#include "open/memory_file.h"

/* More threads than this copy no faster from a GPU. */
#define SLOTS_MAX 16u

/* As a reader's own part of a checkpoint. */
typedef struct memory_reader_state {
    memory_file file;
    device_copy *copy;
    gpu *g; /* NULL: borrowed, or none */
} memory_reader_state;

static void close_memory(void *self)
{
    memory_reader_state *f = self;
    memory_file_release(&f->file);
    device_copy_free(f->copy);
    exec_close_gpu(f->g);
    free(f);
}

/* Not listed: no path leads to it. */
static const format_reader memory_reader = {
    .name = "memory",
    .description = "tensors in memory of the caller",
    .close = close_memory,
    .id = FSDPCK_FORMAT_MEMORY,
};

static fsdpck_status fill(memory_file *m, const fsdpck_memory_tensor *tensors, size_t count,
                          fsdpck_error *err)
{
    const char *at = (const char *)tensors; /* the caller's structs may be shorter or longer */
    for (size_t i = 0; i < count; i++) {
        const fsdpck_memory_tensor *given = (const fsdpck_memory_tensor *)at;
        fsdpck_memory_tensor t = FSDPCK_INIT(fsdpck_memory_tensor);
        RETURN_IF(STRUCT_COPY_IN(&t, given, fsdpck_memory_tensor, err));
        RETURN_IF(memory_file_add(m, &t, err));
        at += given->struct_nbytes;
    }
    return memory_file_seal(m, err);
}

static fsdpck_status open_inner(fsdpck_checkpoint *c, const fsdpck_memory_tensor *tensors,
                                size_t count, gpu *g, fsdpck_error *err)
{
    static const char path[] = "(memory)";
    memory_reader_state *f = c->self = calloc(1, sizeof *f);
    if (f == NULL)
        return error_set_nomem(err, sizeof *f);
    memory_file_init(&f->file, c->ctx, &c->cat);
    c->path = strdup(path);
    c->probe.path = strdup(path);
    if (c->path == NULL || c->probe.path == NULL)
        return error_set_nomem(err, sizeof path);
    c->probe.name = c->probe.path;
    if (c->ctx->group != NULL)
        return FAIL(err, USAGE, NONE,
                    "fsdpck_open_memory does not work in a group: detach the context first");
    RETURN_IF(fill(&f->file, tensors, count, err));
    c->src = memory_file_get(&f->file);
    c->src.root = c->path;
    c->src.root_is_file = true;
    strncpy(c->cat.origin.format, memory_reader.name, sizeof c->cat.origin.format - 1);
    RETURN_IF(checkpoint_parts_find(&c->cat, &c->parts, err));
    if (g == NULL)
        return FSDPCK_OK;
    const unsigned threads = thread_count(0);
    RETURN_IF(device_copy_new(g, threads < SLOTS_MAX ? threads : SLOTS_MAX, &f->copy, err));
    f->file.copy = f->copy;
    return FSDPCK_OK;
}

fsdpck_status open_memory_with_gpu(fsdpck_context *ctx, const fsdpck_memory_tensor *tensors,
                                   size_t count, const fsdpck_memory_options *options, gpu *g,
                                   fsdpck_checkpoint **out, fsdpck_error *err)
{
    fsdpck_memory_options given = FSDPCK_INIT(fsdpck_memory_options);
    static const struct_choice memory[] = {{"fsdpck_memory_options.memory",
                                            offsetof(fsdpck_memory_options, memory),
                                            FSDPCK_MEMORY_HOST, FSDPCK_MEMORY_GPU}};
    *out = NULL;
    RETURN_IF(STRUCT_COPY_IN(&given, options, fsdpck_memory_options, err));
    RETURN_IF(struct_check_choices(&given, memory, 1, err));
    fsdpck_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->ctx = ctx;
    c->format = &memory_reader;
    c->probe.dir = FOLDER_CLOSED;
    budget_init(&c->metadata, platform_memory_bytes() / 2, "metadata",
                "ulimit -v or the job's memory limit: metadata may use half of it");
    checkpoint_init_tables(c);
    const fsdpck_status st = open_inner(c, tensors, count, g, err);
    if (st != FSDPCK_OK)
        fsdpck_close(c);
    else
        *out = c;
    return st;
}

fsdpck_status fsdpck_open_memory(fsdpck_context *ctx, const fsdpck_memory_tensor *tensors,
                                 size_t count, const fsdpck_memory_options *options,
                                 fsdpck_checkpoint **out, fsdpck_error *err)
{
    fsdpck_memory_options given = FSDPCK_INIT(fsdpck_memory_options);
    gpu *g = NULL;
    *out = NULL;
    RETURN_IF(STRUCT_COPY_IN(&given, options, fsdpck_memory_options, err));
    if (given.memory == FSDPCK_MEMORY_GPU)
        RETURN_IF(exec_open_gpu_at(given.device, &g, err));
    const fsdpck_status st = open_memory_with_gpu(ctx, tensors, count, options, g, out, err);
    if (st == FSDPCK_OK)
        ((memory_reader_state *)(*out)->self)->g = g;
    else
        exec_close_gpu(g);
    return st;
}
