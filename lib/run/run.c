#include "run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "group/remote_folder.h"
#include "open/adapter_check.h"
#include "open/other_files.h"
#include "open/recorded_checksums.h"
#include "open/rekey_flat.h"
#include "run/average_distances.h"
#include "run/like_files.h"
#include "run/manifest_files.h"
#include "run/manifest_run.h"
#include "run/output_paths.h"
#include "run/output_replaced.h"
#include "run/run_report.h"
#include "run/stop_advice.h"
#include "run/trainer_keys.h"

#define MAX_SHARD_DEFAULT UINT64_C(50000000000)
/* The longest name that a file system gives, and a zero. */
#define PARTIAL_NAME_NBYTES 256

void run_release(run *r)
{
    exec_free(r->exec);
    exec_close_gpu(r->gpu);
    plan_free(r->plan);
    local_output_release(&r->local, r->ctx->group);
    resume_release(&r->resume);
    output_release(&r->out);
    strtab_release(&r->replaced);
    vec_release(&r->replaced_stamps);
    target_release(&r->to);
    select_result_release(&r->selected);
    like_output_release(&r->like);
    vec_release(&r->like_ties);
    sidecars_release(&r->side);
    optim_state_map_release(&r->optim_state_map);
    layout_release(&r->layout);
    unit_list_release(&r->units);
}

void run_init(run *r, fsdpck_context *ctx, fsdpck_checkpoint *src, const run_options *options)
{
    *r = (run){.ctx = ctx, .src = src};
    r->only = src->average == NULL ? NULL : &src->average_only;
    if (options != NULL)
        r->opt = *options;
    else
        run_options_init(&r->opt);
    strtab_init(&r->replaced, NULL);
    r->replaced_stamps = VEC_OF(path_stamp, NULL);
    target_init(&r->to, &src->metadata);
    r->like_ties = VEC_OF(tied_pair, &src->metadata);
    layout_init(&r->layout, &src->metadata);
    unit_list_init(&r->units, &src->metadata);
}

/* ---- the target ---- */

static fsdpck_status load_object(void *ctx, uint32_t object, fsdpck_error *err)
{
    fsdpck_checkpoint *c = ctx;
    const fsdpck_status st = checkpoint_load_object(c, object, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(&c->cat, catalogue_object(&c->cat, object)->name));
    return st;
}

/* An average has no storages, but names that share one in all inputs share one again. */
static select_tied choose_tied(const run *r)
{
    const bool links =
        r->src->average != NULL && r->writer->takes == STATE_NESTED && !r->writer->flat;
    return r->opt.select.tied == FSDPCK_TIED_KEEP && links ? SELECT_TIED_LINK
                                                           : (select_tied)r->opt.select.tied;
}

static void report_selection(const run *r)
{
    if (r->selected.unordered)
        log_warn(&r->ctx->log, FSDPCK_FINDING_OPTIM_ORDER,
                 "describe the modules in --model FILE, which defines the order of "
                 "model.parameters(): scripts/describe_model.py",
                 "optimizer state was numbered in the order in which the checkpoint lists the "
                 "parameter names; torch sometimes sorts these names alphabetically");
    if (r->selected.not_in_like > 0)
        log_write(&r->ctx->log, LOG_NOTE,
                  "tensors missing from '%s': %" PRIu64 "; they are sharded as without --like",
                  r->opt.sharding.like->path, r->selected.not_in_like);
}

/* Flat parameters are made of named ones: of flat names alone the keys are inferred meanwhile, that of
 * the model unless the user renames. */
static fsdpck_status build_target(run *r, const select_request *request, fsdpck_error *err)
{
    fsdpck_checkpoint *src = r->src;
    const bool renamed = r->opt.select.rename_count > 0 || r->opt.select.strip_prefix_count > 0;
    rekey_paths inferred = {0};
    if (request->sharding != NULL && request->sharding->units != NULL)
        RETURN_IF(rekey_flat_enter(src, !renamed, &inferred, err));
    const fsdpck_status st =
        select_build_target(&src->cat, &src->parts, request, &r->to, &r->selected, err);
    const fsdpck_status left = rekey_flat_leave(src, &inferred, st == FSDPCK_OK ? err : NULL);
    return st == FSDPCK_OK ? left : st;
}

fsdpck_status run_select(run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    const bool flat = r->writer->takes == STATE_NAMES_ONLY;
    const bool mapped = r->src->map != NULL;
    RETURN_IF(other_files_warn_adapters(r->src, err));
    if (mapped && (o->select.part == (int)PART_OPTIMIZER || o->select.part == (int)PART_OTHER))
        return FAIL(err, USAGE, NONE, "a tensor map applies to the model part only");
    select_request request = {
        .src = &r->src->src,
        .options = {o->select.keys, o->select.keys_count, o->select.exclude,
                    o->select.exclude_count, o->select.strip_prefix, o->select.strip_prefix_count,
                    o->select.rename, o->select.rename_count, o->select.dtype,
                    o->select.dtype_count, r->dtype_option},
        .key_beside = r->key_beside,
        .only = r->only,
        .part = mapped                     ? PART_MODEL
                : o->select.part >= 0      ? (checkpoint_part)o->select.part
                : flat && !r->writer->flat ? PART_MODEL
                                           : PART_ALL,
        .bare_optimizer = r->bare_optimizer,
        .names_objects = r->names_objects,
        .may_be_empty = r->may_be_empty,
        .attributes = r->attributes,
        .clean =
            o->select.clean_names == FSDPCK_ON || (o->select.clean_names == FSDPCK_AUTO && flat),
        .tied = choose_tied(r),
        .ties = r->src->ties.items,
        .tie_count = r->src->ties.count,
        .nested = r->writer->takes == STATE_NESTED,
        .flat_keys = r->writer->takes == STATE_FLAT_KEYS,
        .has_paths = r->writer->has_paths,
        .holds = r->writer->holds,
        .holds_object = r->writer->holds_object,
        .format = r->writer->name,
        .objects = (select_objects)o->select.objects,
        .load_object = load_object,
        .load_ctx = r->src,
        .sharding = r->sharded ? &r->sharding : NULL,
    };
    request.trainer_keys = trainer_keys_apply(r, request.part);
    if (r->only != NULL)
        request.options.keys_count = request.options.exclude_count = 0;
    request.like_ties = r->like_ties.items;
    request.like_tie_count = r->like_ties.count;
    like_output_select(&r->like, &request);
    r->opt.select.part = (int)request.part;
    if (o->select.objects == FSDPCK_OBJECTS_OPAQUE && !flat)
        log_warn(&r->ctx->log, FSDPCK_FINDING_PKL_CALL, "load the output with weights_only=True",
                 "unknown calls are written unchanged: torch.load(weights_only=False) of the "
                 "output may run them");
    RETURN_IF(checkpoint_load_inner(r->src, err));
    RETURN_IF(build_target(r, &request, err));
    report_selection(r);
    return r->sharded ? layout_check_used(&r->layout, err) : FSDPCK_OK;
}

fsdpck_status run_lay_out(run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    if (o->output.torch_minor ==
        0) /* the writer of the source's rank files must be able to load these */
        r->opt.output.torch_minor = r->src->cat.origin.dtensor_minor;
    const writer_options wo = {
        .max_shard_nbytes =
            o->output.max_shard_nbytes > 0 ? o->output.max_shard_nbytes : MAX_SHARD_DEFAULT,
        .align_nbytes = o->output.align_nbytes,
        .rank_pattern = o->output.rank_pattern,
        .device_type = o->output.device_type,
        .torch_minor = o->output.torch_minor,
        .lowest_rank = o->output.output_local != 0,
        .hdf5_groups = o->output.hdf5_groups != 0,
        .like = r->like.base == NULL ? NULL : &r->like.base->cat,
        .like_index = r->like.index,
        .weights_stem = run_weights_stem(r),
        .gzip_level = o->output.gzip_level,
    };
    return r->writer->layout(&r->to, &wo, err);
}

fsdpck_status run_make_plan(run *r, fsdpck_error *err)
{
    static const plan_replicas replicas[] = {
        [FSDPCK_REPLICAS_CRC] = REPLICAS_CRC,
        [FSDPCK_REPLICAS_COMPARE] = REPLICAS_COMPARE,
        [FSDPCK_REPLICAS_FIRST] = REPLICAS_FIRST,
    };
    const plan_options po = {.replicas = replicas[r->opt.select.replicas]};
    if (r->opt.output.read_back && !run_is_compressed(r))
        r->to.want_crc = true;
    return plan_new(&r->src->cat, &r->to, &po, &r->src->metadata, &r->plan, err);
}

/* A thread that reads another host's file waits for the network, so that a few more than processors keep it busy. */
static unsigned threads_of(const run *r)
{
    enum { REMOTE_THREADS = 8 };
    const unsigned n = thread_count(r->opt.work.threads);
    const bool waits = r->opt.work.threads == 0 && r->src->remote_files != NULL;
    return waits && n < REMOTE_THREADS ? REMOTE_THREADS : n;
}

fsdpck_status run_resolve(run *r, fsdpck_error *err)
{
    progress_phase(&r->ctx->progress, "locating", 0);
    const exec_request er = {
        .plan = r->plan,
        .source = &r->src->src,
        .target = &r->to,
        .nthreads = threads_of(r),
        .memory_nbytes = run_memory_nbytes(r),
        .direct = (int)r->opt.output.direct,
        .group = r->ctx->group,
        .source_folder = r->src->remote_files,
        /* The prediction for a group covers all files. */
        .is_own_file = r->opt.dry_run.mode && r->opt.dry_run.group_size > 0 ? NULL : r->local.own,
        .hosts = &r->local.hosts,
        .gpu = r->gpu,
        .gpu_required = r->opt.work.engine == FSDPCK_ENGINE_GPU,
        .differences = r->differences,
        .ignores_copies = r->ignores_copies,
        .cancel = &r->ctx->cancel,
        .progress = &r->ctx->progress,
        .log = &r->ctx->log,
        .metadata = &r->src->metadata,
    };
    RETURN_IF(exec_resolve(&er, &r->exec, err));
    return request_check_compressed(r, err);
}

/* ---- writing ---- */

/* The files of the target, in its order. */
static fsdpck_status add_files(run *r, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_file_count(&r->to.cat); i++)
        RETURN_IF(run_add_file(r, i, err));
    return FSDPCK_OK;
}

static fsdpck_status begin_output(run *r, fsdpck_error *err)
{
    RETURN_IF(resume_begin(r, err));
    RETURN_IF(output_guard_replaced(r, err));
    RETURN_IF(add_files(r, err));
    return sidecars_add(&r->side, &r->out, err);
}

/* *writes: whether this rank can access the output. On hosts without the output, ranks only read
 * for the others. */
static fsdpck_status join_output(run *r, const char *partial_name, bool *writes, fsdpck_error *err)
{
    const unsigned flags = r->opt.output.no_sync ? OUTPUT_NO_SYNC : 0u;
    const group *g = r->ctx->group;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    fsdpck_status st =
        output_join(&r->out, r->dst, run_output_kind(r), flags, partial_name, &local);
    r->out.log = r->ctx->log;
    if (st == FSDPCK_OK)
        st = add_files(r, &local);
    if (st == FSDPCK_OK)
        st = resume_join(r, &local);
    *writes = st == FSDPCK_OK;
    if (!*writes && local.sys_errno == ENOENT &&
        strcmp(group_host(g, group_rank(g)), group_host(g, 0)) != 0) {
        output_release(&r->out);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = local;
    return st;
}

static fsdpck_status write_deferred(void *ctx, const deferred_bytes *late, fsdpck_error *err)
{
    run *r = ctx;
    target_add_file_crc(&r->to, late->file, late->offset_bytes, late->bytes, late->nbytes);
    return output_write_at(&r->out, late->file, late->offset_bytes, late->bytes, late->nbytes, err);
}

/* Both or none: withdraws the published output if the other cannot be published. */
static fsdpck_status commit_both(output *out, output *beside, fsdpck_error *err)
{
    RETURN_IF(output_finish(beside, err));
    RETURN_IF(output_finish(out, err));
    RETURN_IF(output_publish_both(out, beside, err));
    return output_remove_replaced_both(out, beside, err);
}

/* The manifest is the last file before the commit; one beside the output is committed with it. */
static fsdpck_status finish_output(run *r, fsdpck_error *err)
{
    text_buf text;
    output beside = {0};
    const bool has_beside = r->opt.output.manifest_path != NULL;
    fsdpck_status st = manifest_run_make(r, &text, err);
    if (st == FSDPCK_OK)
        st = manifest_run_write(r, &text, err);
    if (st == FSDPCK_OK && has_beside)
        st = run_stage_manifest(r, &text, &beside, err);
    if (st == FSDPCK_OK)
        st = cancel_check(&r->ctx->cancel, err);
    if (st == FSDPCK_OK)
        st = request_check_still_empty(r, err);
    if (st == FSDPCK_OK) {
        progress_phase(&r->ctx->progress, "making durable", 0);
        st = has_beside ? commit_both(&r->out, &beside, err) : output_commit(&r->out, err);
    }
    output_release(&beside);
    text_release(&text);
    return st;
}

/* Rank 0 begins the output and sends its temporary name to the others. */
static fsdpck_status write_in_group(run *r, fsdpck_status st, fsdpck_error *err)
{
    group *g = r->ctx->group;
    char name[PARTIAL_NAME_NBYTES] = "";
    if (group_rank(g) == 0 && st == FSDPCK_OK) {
        st = begin_output(r, err);
        if (st == FSDPCK_OK)
            strncpy(name, r->out.partial_name, sizeof name - 1);
    }
    RETURN_IF(group_agree_broadcast(g, st, GROUP_STOPS, 0, name, sizeof name, err));
    bool writes = true;
    if (group_rank(g) != 0)
        st = join_output(r, name, &writes, err);
    st = resume_report_joined(r, st, err);
    return exec_assign_work(r->exec, writes, st, err);
}

/* Rank 0 does the steps that need all totals, and gives the final name. */
static fsdpck_status complete_output(run *r, fsdpck_error *err)
{
    if (r->writer->seal != NULL)
        RETURN_IF(r->writer->seal(&r->to, write_deferred, r, err));
    RETURN_IF(sidecars_copy(&r->side, &r->out, &r->ctx->cancel, err));
    if (r->opt.output.read_back)
        RETURN_IF(run_read_back(r, err));
    return finish_output(r, err);
}

static fsdpck_status write_own_items(run *r, fsdpck_status st, fsdpck_error *err)
{
    group *g = r->ctx->group;
    plan_totals totals;
    RETURN_IF(r->local.on ? exec_assign_work(r->exec, true, local_output_begin(r, st, err), err)
                          : write_in_group(r, st, err));
    plan_get_totals(r->plan, &totals);
    progress_phase(&r->ctx->progress, "writing", totals.target_bytes + totals.constant_bytes);
    RETURN_IF(exec_run(r->exec, &r->out, err));
    if (r->local.on)
        return local_output_complete(r, err);
    return group_agree(g, group_rank(g) == 0 ? complete_output(r, err) : FSDPCK_OK, err);
}

static fsdpck_status write_output(run *r, fsdpck_status st, fsdpck_error *err)
{
    manifest_run_request_checksums(r);
    st = write_own_items(r, st, err);
    if (st != FSDPCK_OK && !resume_keeps(r, st))
        output_abandon(&r->out);
    return st;
}

/* All steps before the first write. */
static fsdpck_status prepare(run *r, fsdpck_error *err)
{
    RETURN_IF(run_check_engine(r, err));
    RETURN_IF(request_choose_writer(r, err));
    RETURN_IF(like_output_open(&r->like, &r->opt, err));
    RETURN_IF(run_find_sidecars(r, err));
    if (r->sharded)
        RETURN_IF(reshard_choose_layout(r, err));
    RETURN_IF(run_select(r, err));
    RETURN_IF(trainer_file_add(r, err));
    RETURN_IF(run_edit_config(r, err));
    if (r->writer->of_model && !r->sharded && r->src->map_config != NULL &&
        r->src->map_forward == NULL && r->like.base == NULL)
        RETURN_IF(
            like_files_of_config(&r->side, r->src->map_config, &r->to.cat, &r->ctx->log, err));
    if (r->like.base != NULL) {
        RETURN_IF(like_output_check(&r->like, &r->to, r->src, err));
        RETURN_IF(like_files_find(&r->side, &r->like, &r->to.cat, &r->ctx->log, err));
    }
    RETURN_IF(run_warn_modules(r, err));
    RETURN_IF(manifest_files_check_run(r, err));
    /* Errors of the request are reported before an existing output. */
    RETURN_IF(request_check_output(r, err));
    if (r->opt.output.sha256 && !r->writer->is_folder && r->opt.output.manifest_path == NULL)
        return FAIL(err, USAGE, NONE,
                    "--sha256 requires --manifest FILE if the output is a single file");
    if (r->opt.output.manifest_path != NULL && group_rank(r->ctx->group) == 0) {
        RETURN_IF(output_check_manifest(r, err));
        RETURN_IF(output_check_manifest_file(r->opt.output.manifest_path, r->opt.output.force,
                                             &r->replaced_manifest, err));
    }
    RETURN_IF(checkpoint_check_flat(r->src, &r->to.cat, err));
    if (r->opt.select.part != (int)PART_OPTIMIZER) {
        RETURN_IF(checkpoint_check_lost(r->src, true, err));
        RETURN_IF(checkpoint_check_sizes(r->src, err));
        RETURN_IF(adapter_warn(r->src, err));
    }
    RETURN_IF(checkpoint_check_buckets(r->src, &r->to.cat,
                                       r->opt.select.part == (int)PART_OPTIMIZER, err));
    run_advise_attributes(r);
    run_advise_tied(r);
    run_advise_optimizer(r);
    RETURN_IF(run_advise_map(r, err));
    if (r->sharded)
        RETURN_IF(run_advise(r, err));
    RETURN_IF(run_lay_out(r, err));
    run_advise_metadata(r);
    RETURN_IF(local_output_assign(r, err));
    return run_make_plan(r, err);
}

fsdpck_status run_agree_on_plan(const run *r, fsdpck_status st, group_failure how,
                                fsdpck_error *err)
{
    const bool asks = r->ctx->group != NULL && st == FSDPCK_OK;
    return group_check_same(r->ctx->group, st, how, asks ? plan_hash(r->plan) : 0, "plans", err);
}

static fsdpck_status run_all(run *r, const run_checks *checks, fsdpck_report **report,
                             fsdpck_error *err)
{
    if (checks->before != NULL)
        RETURN_IF(checks->before(r, err));
    RETURN_IF(run_agree_on_plan(r, prepare(r, err), GROUP_STOPS, err));
    RETURN_IF(checks->planned(r, err));
    fsdpck_status st = run_resolve(r, err);
    if (st == FSDPCK_OK)
        st = run_warn_same_files(r, err);
    st = resume_find(r, st, err);
    r->has_checksums = checkpoint_has_checksums(r->src);
    /* A forged source may request excessive space: errors of the source are reported first. */
    if (st == FSDPCK_OK)
        st = request_check_space(r, err);
    RETURN_IF(r->opt.dry_run.mode ? group_agree(r->ctx->group, st, err) : write_output(r, st, err));
    run_warn_overflow(r);
    RETURN_IF(average_distances_share(r->src, r->ctx->group, err));
    if (report == NULL)
        return FSDPCK_OK;
    const report_input in = {
        .src = r->src,
        .dst = r->dst,
        .opt = &r->opt,
        .writer = r->writer,
        .selected = &r->selected,
        .side = &r->side,
        .to = &r->to,
        .layout = r->sharded ? &r->layout : NULL,
        .optim_state_map = &r->optim_state_map,
        .plan = r->plan,
        .exec = r->exec,
        .local = &r->local,
        .resume = &r->resume,
        .has_checksums = r->has_checksums,
    };
    return report_make(&in, report, err);
}

fsdpck_status run_transform(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                            const run_options *options, bool sharded, const run_checks *checks,
                            fsdpck_report **report, fsdpck_error *err)
{
    run r;
    if (report != NULL)
        *report = NULL;
    run_init(&r, ctx, src, options);
    r.dst = dst;
    r.sharded = sharded;
    const fsdpck_status st = run_all(&r, checks, report, err);
    resume_end(&r, st);
    stop_advise(&r, st, err);
    progress_phase(&ctx->progress, NULL, 0);
    run_release(&r);
    return st;
}
