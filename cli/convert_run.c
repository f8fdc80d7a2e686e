#include "convert_run.h"

#include <stdlib.h>

#include "average_inputs.h"
#include "average_print.h"
#include "convert_report.h"
#include "html_option.h"
#include "overwrite_check.h"
#include "progress_print.h"
#include "report.h"
#include "text_file.h"

/* Largest TP plan: real ones have a few lines for each kind of layer. */
#define TP_PLAN_NBYTES_MAX ((size_t)16 << 20)

/* Only the layout of OTHER is used, so objects that differ between its ranks do not matter. */
static fsdpck_status open_like(const cli *c, const command_request *r, fsdpck_checkpoint **like,
                               fsdpck_error *err)
{
    fsdpck_open_options o = r->open;
    o.format = NULL;
    o.source_ranks = 0;
    o.rank_pattern = NULL;
    o.model_path = NULL;
    o.map = NULL;
    o.dequantize = 0;
    o.merge = NULL;
    o.per_rank = FSDPCK_PER_RANK_FIRST;
    return fsdpck_open(c->ctx, r->given->like, &o, like, err);
}

/* The folder of --like BASE. It is read as it is, whatever the options say about SRC, except for
 * --dequantize. */
static fsdpck_status open_base(const cli *c, const command_request *r, convert_inputs *in,
                               fsdpck_error *err)
{
    fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);
    o.threads = r->open.threads;
    o.dequantize = r->open.dequantize;
    return fsdpck_open(c->ctx, r->given->base, &o, &in->base, err);
}

fsdpck_status convert_inputs_open(const cli *c, const command_request *r, convert_inputs *in,
                                  fsdpck_error *err)
{
    *in = (convert_inputs){.options = r->job, .info = FSDPCK_INIT(fsdpck_info)};
    fsdpck_status st = FSDPCK_OK;
    if (r->given->tp_plan != NULL)
        st = text_file_read(r->given->tp_plan, "TP plan", TP_PLAN_NBYTES_MAX, &in->tp_plan, NULL,
                            err);
    if (st == FSDPCK_OK && r->given->base != NULL)
        st = open_base(c, r, in, err);
    fsdpck_open_options o = r->open;
    o.like = in->base;
    if (st == FSDPCK_OK)
        st = r->sources != NULL ? average_inputs_open(c, r, in, err)
                                : fsdpck_open(c->ctx, r->src, &o, &in->src, err);
    if (st == FSDPCK_OK)
        fsdpck_get_info(in->src, &in->info);
    if (st == FSDPCK_OK && r->given->like != NULL)
        st = open_like(c, r, &in->like, err);
    in->options.sharding.tp_plan = in->tp_plan;
    in->options.sharding.tp_plan_path = r->given->tp_plan;
    in->options.sharding.like = in->like;
    in->options.base = r->open.adapter == NULL ? in->base : NULL; /* the base model of an adapter */
    return st;
}

void convert_inputs_release(convert_inputs *in)
{
    fsdpck_close(in->like);
    fsdpck_close(in->src);
    average_inputs_close(in);
    fsdpck_close(in->base);
    free(in->tp_plan);
    *in = (convert_inputs){0};
}

int convert_run(cli *c, const command_request *r, convert_api_fn call)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_report *report = NULL;
    convert_inputs in = {0};
    progress_display *view = progress_start(c, (progress_mode)r->given->progress);
    fsdpck_status st = overwrite_check(c, r, r->dst, &err);
    if (st == FSDPCK_OK)
        st = convert_inputs_open(c, r, &in, &err);
    if (st == FSDPCK_OK)
        st = call(c->ctx, in.src, r->dst, &in.options, &report, &err);
    progress_stop(view);
    if (in.src != NULL && c->json && r->sources == NULL)
        report_set_step(in.src, &in.info);
    int code = 0;
    if (st == FSDPCK_OK && html_option_wants_verdict(c))
        convert_print_result(c, r, &in.info, report);
    if (st != FSDPCK_OK && r->sources != NULL)
        code = average_report_failure(c, r, in.src, in.src == NULL ? NULL : &in.info, &err);
    else if (st != FSDPCK_OK)
        code = report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    else if (c->json)
        code = convert_print_json(c, r, in.src, &in.info, report);
    else if (!c->quiet)
        convert_print_text(c, r, in.src, &in.info, report);
    else
        convert_warn_left_out(c, report);
    fsdpck_report_free(report);
    convert_inputs_release(&in);
    return code;
}

fsdpck_status convert_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                              const job_options *job, fsdpck_report **report, fsdpck_error *err)
{
    const fsdpck_reshard_options options = {.struct_nbytes = sizeof options,
                                            .select = &job->select,
                                            .sharding = &job->sharding,
                                            .output = &job->output,
                                            .work = &job->work,
                                            .dry_run = &job->dry_run};
    return fsdpck_reshard(ctx, src, dst, &options, report, err);
}
