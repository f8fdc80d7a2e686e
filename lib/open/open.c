#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "base/struct_copy.h"
#include "group/remote_folder.h"
#include "open/adapter_files.h"
#include "open/checkpoint.h"
#include "open/damaged.h"
#include "open/foreign_folders.h"
#include "open/later_steps.h"
#include "open/open_fail.h"
#include "open/open_once.h"
#include "open/optimizer_copies.h"
#include "open/pointer_file.h"
#include "open/rank_models.h"
#include "open/state_files.h"
#include "open/state_shapes.h"
#include "open/stated_files.h"
#include "open/symlink_file.h"
#include "open/weights_beside.h"
#include "statedict/shard_metadata.h"

char *escaped_copy(const char *text)
{
    const size_t nbytes = strlen(text);
    const size_t capacity = 4 * nbytes + 1;
    char *copy = malloc(capacity);
    return copy == NULL ? NULL : escape_text(copy, capacity, text, nbytes);
}

static void note_found(const fsdpck_checkpoint *c, const search_result *found)
{
    const logger *log = &c->ctx->log;
    if (found->is_limited)
        log_warn(log, FSDPCK_FINDING_SEARCH_LIMIT, "if it is not the one you mean, give its path",
                 "'%s' may contain further checkpoints: the search for them ended after %u folders "
                 "and files",
                 c->probe.path, SEARCH_ENTRIES_MAX);
    if (found->foreign != NULL)
        log_write(log, LOG_NOTE, "ignoring '%s', a checkpoint %s, which fsdpck does not read",
                  found->foreign_path, found->foreign->title);
    log_write(log, LOG_NOTE, "reading the %s checkpoint %sinside: '%s'",
              found->is_limited ? "first" : "only", found->is_limited ? "found " : "",
              found->paths[0]);
    if (!found->is_limited)
        later_steps_warn(&c->probe, found->paths[0], log);
}

/* Continues with the only checkpoint inside the folder. */
static fsdpck_status enter_found(fsdpck_checkpoint *c, const char *near_miss,
                                 const fsdpck_open_options *o, fsdpck_error *err)
{
    const char *path = c->probe.path;
    const bool viewed = c->remote_files != NULL;
    search_result found;
    RETURN_IF(viewed ? open_search_ranks(c, &found, err) : search_folders(path, &found, err));
    fsdpck_status st = search_check_parts(&found, err);
    if (st == FSDPCK_OK && found.count == 0)
        st = found.is_limited ? open_fail_limited(path, err)
                              : open_fail_no_checkpoint(&c->probe, path, near_miss, err);
    else if (st == FSDPCK_OK && found.count > 1)
        st = search_has_state_only(&found) ? search_fail_state_only(&found, path, err)
                                           : open_fail_several(&found, path, err);
    if (st == FSDPCK_OK && found.unread)
        log_warn(&c->ctx->log, FSDPCK_FINDING_SIDE_UNREAD,
                 "make it readable: it may be another checkpoint, or a part of this one",
                 "'%s' cannot be read: %s", found.why.path, found.why.message);
    if (st == FSDPCK_OK) {
        note_found(c, &found);
        probe_release(&c->probe);
        remote_folder_free(c->remote_files);
        c->remote_files = NULL;
        st = viewed ? open_probe_ranks(c, FSDPCK_OK, found.paths[0], o, err)
                    : probe_gather(found.paths[0], &c->probe, err);
    }
    search_result_release(&found);
    return st;
}

static fsdpck_status choose_reader(fsdpck_checkpoint *c, const char *path,
                                   const fsdpck_open_options *o, fsdpck_error *err)
{
    const char *const format = o->format;
    RETURN_IF(open_probe_linked(c, path, o, err));
    path = c->probe.path;
    /* Only rank files have such a pattern, and names that it is needed for tell no reader. */
    if (format == NULL && o->rank_pattern != NULL) {
        c->format = format_reader_of_pattern;
        return open_agree_format(c, o, err);
    }
    if (format != NULL) {
        c->format = format_reader_named(format);
        if (c->format != NULL)
            return open_agree_format(c, o, err);
        return open_fail_format(format, err);
    }
    const char *near_miss = NULL;
    c->format = probe_readers(&c->probe, &near_miss);
    RETURN_IF(open_agree_format(c, o, err));
    if (c->format != NULL)
        return FSDPCK_OK;
    if (!c->probe.is_folder)
        return open_fail_no_checkpoint(&c->probe, path, near_miss, err);
    RETURN_IF(foreign_folder_check(&c->probe, err));
    c->entered_from = strdup(path);
    if (c->entered_from == NULL)
        return error_set_nomem(err, strlen(path));
    RETURN_IF(enter_found(c, near_miss, o, err));
    c->entered = true;
    c->format = probe_readers(&c->probe, &near_miss);
    pointer_file_warn(c);
    RETURN_IF(open_agree_format(c, o, err));
    if (c->format == NULL)
        return FAIL(err, CHANGED, NONE, "folder changed while it was read");
    return FSDPCK_OK;
}

static fsdpck_status print_mesh(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const mesh *m = catalogue_largest_mesh(&c->cat);
    if (m == NULL)
        return FSDPCK_OK;
    text_buf text = {0};
    mesh_print(m, &text);
    c->mesh = text.text;
    return text_check(&text, err);
}

/* Tensors of the description, which must match the model. */
static fsdpck_status check_described(fsdpck_checkpoint *c, described_model *d,
                                     per_rank_policy per_rank, bool assume_order, fsdpck_error *err)
{
    RETURN_IF(model_adapter_apply(c, d, per_rank, assume_order, err));
    RETURN_IF(checkpoint_parts_find(&c->cat, &c->parts, err));
    return model_adapter_check(c, d, err);
}

static const char *twin(const void *match, const char *name, size_t nbytes, unsigned k,
                        size_t *alias_nbytes)
{
    return match == NULL ? NULL : description_alias(match, name, nbytes, k, alias_nbytes);
}

static fsdpck_status infer_mesh(fsdpck_checkpoint *c, catalogue *cat, const fsdpck_open_options *o,
                                fsdpck_error *err)
{
    RETURN_IF(select_infer_specs(cat, thread_count(o->threads), &c->ctx->cancel,
                                 &c->sharded_otherwise, err));
    return print_mesh(c, err);
}

/* Without what needs bytes of objects or tensors. */
static fsdpck_status describe_damaged(fsdpck_checkpoint *c, catalogue *cat,
                                      const fsdpck_open_options *o, fsdpck_error *err)
{
    if (catalogue_tensor_count(cat) + catalogue_object_count(cat) == 0)
        return c->damage.status;
    RETURN_IF(checkpoint_parts_find(cat, &c->parts, err));
    damaged_refuse_reads(c);
    return infer_mesh(c, cat, o, err);
}

/* Of the optimizer; and the mesh. m: the description; NULL: none. */
static fsdpck_status name_parameters(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                     const model *m, fsdpck_error *err)
{
    const bool assume_order = o->assume_order != 0;
    if (o->optim_keys != FSDPCK_OPTIM_KEYS_KEEP)
        RETURN_IF(checkpoint_rekey(c, (optim_keys)o->optim_keys, m, assume_order, err));
    else
        RETURN_IF(checkpoint_infer_params(c, m, assume_order, err));
    c->parts.assumes_order = assume_order;
    return infer_mesh(c, &c->cat, o, err);
}

static void warn_state(const fsdpck_checkpoint *c)
{
    state_shapes_warn(c);
    optimizer_copies_warn(c);
    rank_models_warn(c);
}

static fsdpck_status read_metadata(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                   described_model *d, fsdpck_error *err)
{
    const bool viewed = d->path != NULL, assume_order = o->assume_order != 0;
    catalogue *into = viewed ? &c->read : &c->cat;
    const description_match *match = viewed ? &d->match : NULL;
    const open_names names = {.ctx = match, .twin = twin, .states_units = shard_metadata_is};
    const per_rank_rule rule = {
        .policy = (per_rank_policy)o->per_rank, .unflattens = viewed, .match = match};
    const open_request request = {
        .path = c->path,
        .probe = &c->probe,
        .metadata = &c->metadata,
        .log = c->ctx->log,
        .cancel = &c->ctx->cancel,
        .nthreads = thread_count(o->threads),
        .expect_ranks = o->source_ranks,
        .no_follow = o->no_follow,
        .opaque_calls = o->opaque_calls,
        .rank_pattern = o->rank_pattern,
        .copies = per_rank_copies(&rule),
        .repair_strided = o->repair_strided,
        .assume_tp_first = o->assume_tp_first,
        .assume_lost_keys = o->assume_lost_keys != 0,
        .hdf5_fill = o->hdf5_fill != 0,
        .hdf5_separator = o->hdf5_separator,
        .keep_flat_shards = viewed,
        .names = &names,
        .found = c->found,
        .found_ctx = c->found_ctx,
        .damage = o->damaged && !viewed && c->ctx->group == NULL ? &c->damage : NULL,
    };
    const fsdpck_status st = open_once_read(c, &request, into, err);
    if (st != FSDPCK_OK) {
        error_path(err, c->path);
        return st;
    }
    if (open_request_is_damaged(&request))
        return describe_damaged(c, into, o, err);
    RETURN_IF(checkpoint_check_downloads(c, into, err));
    checkpoint_warn_other_weights(c, into, checkpoint_open);
    c->format->source(c->self, into, viewed ? &c->read_src : &c->src);
    if (viewed) {
        c->read_src.root = c->path;
        c->read_src.root_is_file = !c->probe.is_folder;
        RETURN_IF(check_described(c, d, rule.policy, assume_order, err));
    } else {
        RETURN_IF(shard_adapter_apply(c, &request, rule.policy, assume_order, err));
        checkpoint_note_flat(c);
        RETURN_IF(checkpoint_parts_find(&c->cat, &c->parts, err));
    }
    checkpoint_warn_placeholders(c);
    c->src.root = c->path;
    c->src.root_is_file = !c->probe.is_folder;
    if (!viewed && c->adapter == NULL)
        warn_state(c);
    return name_parameters(c, o, viewed ? &d->m : NULL, err);
}

/* What precedes the metadata. */
static fsdpck_status choose(fsdpck_checkpoint *c, const char *path, const fsdpck_open_options *o,
                            described_model *d, fsdpck_error *err)
{
    RETURN_IF(choose_reader(c, path, o, err));
    c->path = strdup(c->probe.path);
    if (c->path == NULL)
        return error_set_nomem(err, strlen(c->probe.path));
    RETURN_IF(checkpoint_check_partial(c->path, err));
    if (o->format == NULL && o->rank_pattern == NULL)
        RETURN_IF(checkpoint_check_model_parallel(c, err));
    if (o->model_path != NULL) {
        c->model_path = strdup(o->model_path);
        if (c->model_path == NULL)
            return error_set_nomem(err, strlen(o->model_path));
        RETURN_IF(described_model_read(c, o->model_path, d, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status open_inner(fsdpck_checkpoint *c, const char *path,
                                const fsdpck_open_options *o, fsdpck_error *err)
{
    described_model d = {0};
    progress_phase(&c->ctx->progress, "reading metadata", 0);
    fsdpck_status st = open_once_agree(c, choose(c, path, o, &d, err), err);
    if (st == FSDPCK_OK) {
        missing_files_drop(c->ctx, c->path);
        st = read_metadata(c, o, &d, err);
    }
    described_model_release(&d);
    if (c->damage.status != FSDPCK_OK)
        return st;
    if (st == FSDPCK_OK && o->format == NULL)
        st = checkpoint_check_megatron_rank(c, err);
    if (st == FSDPCK_OK && o->format == NULL && o->rank_pattern == NULL)
        st = stated_files_check(c, err);
    return st;
}

fsdpck_status open_options_take(fsdpck_open_options *o, const fsdpck_open_options *from,
                                fsdpck_error *err)
{
    *o = (fsdpck_open_options)FSDPCK_INIT(fsdpck_open_options);
    static const struct_choice rows[] = {
        {"fsdpck_open_options.per_rank", offsetof(fsdpck_open_options, per_rank),
         FSDPCK_PER_RANK_AUTO, FSDPCK_PER_RANK_ERROR},
        {"fsdpck_open_options.optim_keys", offsetof(fsdpck_open_options, optim_keys),
         FSDPCK_OPTIM_KEYS_KEEP, FSDPCK_OPTIM_KEYS_FLAT},
    };
    RETURN_IF(STRUCT_COPY_IN(o, from, fsdpck_open_options, err));
    return struct_check_choices(o, rows, sizeof rows / sizeof rows[0], err);
}

/* The map that was given, or the one that leads to the names of o->like. *mapped stays NULL if none is
 * needed. */
static fsdpck_status apply_map(fsdpck_checkpoint *c, fsdpck_open_options *o,
                               fsdpck_checkpoint **mapped, fsdpck_error *err)
{
    like_map chosen = {0};
    if (o->map_import && (o->map == NULL || o->like != NULL))
        return FAIL(err, USAGE, NONE, "map_import of the open options requires map, without like");
    if (o->map == NULL) {
        RETURN_IF(checkpoint_choose_map(c, o->like, &chosen, err));
        o->map = chosen.name;
    } else if (o->like != NULL) {
        RETURN_IF(checkpoint_check_like_map(c, o->like, o->map, err));
    }
    if (o->map == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = checkpoint_map(c, o, mapped, err);
    if (*mapped != NULL)
        memcpy((*mapped)->map_chosen_for, chosen.model_type, sizeof chosen.model_type);
    return st;
}

static fsdpck_status extract_adapter(fsdpck_checkpoint **c, const fsdpck_open_options *o,
                                     fsdpck_error *err)
{
    fsdpck_adapter_options a = FSDPCK_INIT(fsdpck_adapter_options);
    fsdpck_checkpoint *made = NULL;
    RETURN_IF(STRUCT_COPY_IN(&a, o->adapter, fsdpck_adapter_options, err));
    if (o->dequantize || o->map != NULL || o->map_import || o->merge != NULL)
        return FAIL(
            err, USAGE, NONE,
            "an adapter keeps its names and values: no map, merge or dequantization applies");
    const fsdpck_status st = checkpoint_extract_adapter(*c, &a, o->like, &made, err);
    *c = made != NULL ? made : *c;
    return st;
}

static void close_all(fsdpck_checkpoint **list, size_t count)
{
    for (size_t i = 0; list != NULL && i < count; i++)
        fsdpck_close(list[i]);
    free(list);
}

/* The adapters that are checkpoints of their own. */
static fsdpck_status open_adapters(fsdpck_context *ctx, const fsdpck_merge_options *m,
                                   const fsdpck_open_options *of, fsdpck_checkpoint **beside,
                                   fsdpck_error *err)
{
    fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);
    const char *name;
    o.threads = of->threads;
    o.no_follow = of->no_follow;
    for (size_t i = 0; i < m->adapter_count; i++) {
        if (merge_adapter_is_self(m->adapters[i], &name))
            continue;
        char *weights;
        RETURN_IF(adapter_files_choose(m->adapters[i], &weights, err));
        const fsdpck_status st =
            fsdpck_open(ctx, weights != NULL ? weights : m->adapters[i], &o, &beside[i], err);
        free(weights);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

static fsdpck_status merge_adapters(fsdpck_checkpoint **c, const fsdpck_open_options *o,
                                    fsdpck_error *err)
{
    fsdpck_adapter_options config = FSDPCK_INIT(fsdpck_adapter_options);
    fsdpck_merge_options m = FSDPCK_INIT(fsdpck_merge_options);
    fsdpck_checkpoint *made = NULL;
    RETURN_IF(STRUCT_COPY_IN(&m, o->merge, fsdpck_merge_options, err));
    if (m.config != NULL) {
        RETURN_IF(STRUCT_COPY_IN(&config, m.config, fsdpck_adapter_options, err));
        m.config = &config;
    }
    if (m.adapter_count == 0)
        return FSDPCK_OK;
    fsdpck_checkpoint **beside = calloc(m.adapter_count, sizeof *beside);
    fsdpck_status st = beside == NULL ? error_set_nomem(err, m.adapter_count * sizeof *beside)
                                      : open_adapters((*c)->ctx, &m, o, beside, err);
    if (st == FSDPCK_OK)
        st = checkpoint_merge(*c, &m, beside, &made, err);
    if (made == NULL)
        close_all(beside, m.adapter_count);
    *c = made != NULL ? made : *c;
    return st;
}

/* Replaces *c by checkpoints that are made of it. */
static fsdpck_status convert(fsdpck_checkpoint **c, fsdpck_open_options *o, fsdpck_error *err)
{
    fsdpck_checkpoint *made = NULL;
    if (o->adapter != NULL)
        return extract_adapter(c, o, err);
    if (o->dequantize) {
        const fsdpck_status st = checkpoint_dequantize(*c, &made, err);
        *c = made != NULL ? made : *c;
        RETURN_IF(st);
    }
    if (o->merge != NULL)
        RETURN_IF(merge_adapters(c, o, err));
    if (o->map == NULL && o->like == NULL && !o->map_import)
        return FSDPCK_OK;
    made = NULL;
    const fsdpck_status st = apply_map(*c, o, &made, err);
    *c = made != NULL ? made : *c;
    return st;
}

fsdpck_status fsdpck_open(fsdpck_context *ctx, const char *path, const fsdpck_open_options *options,
                          fsdpck_checkpoint **out, fsdpck_error *err)
{
    RETURN_IF(checkpoint_open_converted(ctx, path, options, out, err));
    checkpoint_warn_lost(*out, checkpoint_open);
    weights_beside_warn(*out, checkpoint_open);
    return FSDPCK_OK;
}

fsdpck_status checkpoint_open_converted(fsdpck_context *ctx, const char *path,
                                        const fsdpck_open_options *options, fsdpck_checkpoint **out,
                                        fsdpck_error *err)
{
    fsdpck_open_options o;
    *out = NULL;
    RETURN_IF(open_options_take(&o, options, err));
    RETURN_IF(checkpoint_open(ctx, path, &o, NULL, NULL, out, err));
    if (!o.dequantize && o.merge == NULL && o.map == NULL && o.like == NULL && !o.map_import &&
        o.adapter == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = group_agree(ctx->group, convert(out, &o, err), err);
    if (st != FSDPCK_OK) {
        fsdpck_close(*out);
        *out = NULL;
    }
    return st;
}

fsdpck_status checkpoint_open(fsdpck_context *ctx, const char *path,
                              const fsdpck_open_options *options, format_found_fn found,
                              void *found_ctx, fsdpck_checkpoint **out, fsdpck_error *err)
{
    fsdpck_open_options o;
    fsdpck_error own = FSDPCK_ERROR_INIT;
    err = err == NULL ? &own : err; /* readers keep it as damage */
    *out = NULL;
    RETURN_IF(open_options_take(&o, options, err));
    fsdpck_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->ctx = ctx;
    c->probe.dir = FOLDER_CLOSED;
    c->opaque_calls = o.opaque_calls != 0;
    c->found = found;
    c->found_ctx = found_ctx;
    const uint64_t limit = o.metadata_nbytes > 0 ? o.metadata_nbytes : platform_memory_bytes() / 2;
    budget_init(&c->metadata, limit, "metadata",
                o.metadata_nbytes > 0
                    ? "metadata_nbytes of the open options"
                    : "ulimit -v or the job's memory limit: metadata may use half of it");
    checkpoint_init_tables(c);
    /* A rank that fails still serves its files until all ranks have its status. */
    fsdpck_status st = group_agree_result(ctx->group, open_inner(c, path, &o, err), true, err);
    table_file_withdraw(&c->tables);
    progress_phase(&ctx->progress, NULL, 0);
    if (st != FSDPCK_OK) {
        if (c->damage.status != FSDPCK_OK)
            *err = c->damage;
        st = c->damage.status != FSDPCK_OK ? c->damage.status : st;
        fsdpck_close(c);
        return st;
    }
    *out = c;
    if (c->damage.status != FSDPCK_OK)
        *err = c->damage;
    return c->damage.status;
}
