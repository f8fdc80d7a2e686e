#include "transform_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "report.h"
#include "transform_report.h"

/* Longest TP plan: real ones have a few lines for each kind of layer. */
#define TP_PLAN_NBYTES_MAX (16u << 20)

static fsdpck_status plan_failure(fsdpck_error *err, fsdpck_status status, const char *path,
                                  const char *message)
{
    err->status = status;
    err->sys_errno = status == FSDPCK_IO ? errno : 0;
    fsdpck_escape(err->path, sizeof err->path, path, strlen(path));
    if (status == FSDPCK_IO)
        snprintf(err->message, sizeof err->message, "%s: %s", message, strerror(errno));
    else
        snprintf(err->message, sizeof err->message, "%s", message);
    return status;
}

/* *text is NULL on failure, else malloc's. */
static fsdpck_status read_plan(const char *path, char **text, fsdpck_error *err)
{
    *text = NULL;
    if (path[0] == '\0')
        return plan_failure(err, FSDPCK_USAGE, path, "--tp-plan names no file");
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return plan_failure(err, FSDPCK_IO, path, "opening the TP plan failed");
    fsdpck_status st = FSDPCK_OK;
    char *buffer = malloc(TP_PLAN_NBYTES_MAX + 1);
    const size_t nbytes = buffer == NULL ? 0 : fread(buffer, 1, TP_PLAN_NBYTES_MAX + 1, file);
    if (buffer == NULL)
        st = plan_failure(err, FSDPCK_LIMIT, path, "no memory for the TP plan");
    else if (ferror(file))
        st = plan_failure(err, FSDPCK_IO, path, "reading the TP plan failed");
    else if (nbytes > TP_PLAN_NBYTES_MAX)
        st = plan_failure(err, FSDPCK_LIMIT, path, "TP plan is longer than 16 MiB");
    else if (memchr(buffer, '\0', nbytes) != NULL)
        st = plan_failure(err, FSDPCK_USAGE, path, "TP plan is not text: it holds a zero byte");
    fclose(file);
    if (st != FSDPCK_OK) {
        free(buffer);
        return st;
    }
    buffer[nbytes] = '\0';
    *text = buffer;
    return FSDPCK_OK;
}

/* Of OTHER only the cuts matter, so what differs between its ranks does not. */
static fsdpck_status open_like(const cli *c, const transform_request *r, fsdpck_checkpoint **like,
                               fsdpck_error *err)
{
    fsdpck_open_options o = r->open;
    o.format = NULL;
    o.source_ranks = 0;
    o.rank_pattern = NULL;
    o.model_path = NULL;
    o.per_rank = FSDPCK_PER_RANK_FIRST;
    return fsdpck_open(c->ctx, r->like_path, &o, like, err);
}

fsdpck_status transform_inputs_open(const cli *c, const transform_request *r, transform_inputs *in,
                                    fsdpck_error *err)
{
    *in = (transform_inputs){.options = r->transform};
    fsdpck_status st = FSDPCK_OK;
    if (r->tp_plan_path != NULL)
        st = read_plan(r->tp_plan_path, &in->tp_plan, err);
    if (st == FSDPCK_OK)
        st = fsdpck_open(c->ctx, r->src, &r->open, &in->src, err);
    if (st == FSDPCK_OK)
        fsdpck_get_info(in->src, &in->info);
    if (st == FSDPCK_OK && r->like_path != NULL)
        st = open_like(c, r, &in->like, err);
    in->options.tp_plan = in->tp_plan;
    in->options.tp_plan_path = r->tp_plan_path;
    in->options.like = in->like;
    return st;
}

void transform_inputs_release(transform_inputs *in)
{
    fsdpck_close(in->like);
    fsdpck_close(in->src);
    free(in->tp_plan);
    *in = (transform_inputs){0};
}

int transform_run(cli *c, const transform_request *r, transform_call call)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_report *report = NULL;
    transform_inputs in;
    progress_view *view = progress_start(c, (progress_mode)r->progress);
    fsdpck_status st = transform_inputs_open(c, r, &in, &err);
    if (st == FSDPCK_OK)
        st = call(c->ctx, in.src, r->dst, &in.options, &report, &err);
    progress_stop(view);
    int code = 0;
    if (st != FSDPCK_OK)
        code = report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    else if (c->json)
        code = transform_print_json(c, r, &in.info, report);
    else if (!c->quiet)
        transform_print_text(c, r, &in.info, report);
    fsdpck_report_free(report);
    transform_inputs_release(&in);
    return code;
}
