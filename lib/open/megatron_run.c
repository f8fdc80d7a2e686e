/* What Megatron-Core recorded of the run that saved a checkpoint, for callers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "open/common_state.h"

static int64_t number_of(const value_pool *pool, value dict, const char *key)
{
    value v;
    int64_t i;
    return value_dict_find(pool, dict, key, &v) && value_kind_of(v) == VALUE_INT &&
                   value_as_i64(pool, v, &i) && i >= 0
               ? i
               : -1;
}

/* A dict, or an object with attributes. */
static bool find_members(value_pool *pool, value dict, const char *key, value *members)
{
    value found;
    if (!value_dict_find(pool, dict, key, &found))
        return false;
    const value_call *call = value_call_of(pool, found);
    if (call != NULL && call->has_state)
        found = call->state;
    return value_as_dict(pool, found, members);
}

static void take_text(const value_pool *pool, value dict, const char *key, char *to,
                      size_t capacity)
{
    value v;
    size_t nbytes;
    if (to[0] != '\0' || !value_dict_find(pool, dict, key, &v) || value_kind_of(v) != VALUE_STR)
        return;
    const char *text = value_text(pool, v, &nbytes);
    escape_text(to, capacity, text, nbytes);
}

/* Of newer releases in content_metadata, of older ones in each optimizer. */
static void take_sharding(megatron_run *r, value_pool *pool, value common)
{
    value inner, optimizer;
    if (find_members(pool, common, "content_metadata", &inner))
        take_text(pool, inner, "distrib_optim_sharding_type", r->sharding, sizeof r->sharding);
    if (!find_members(pool, common, "optimizer", &optimizer))
        return;
    take_text(pool, optimizer, "param_state_sharding_type", r->sharding, sizeof r->sharding);
    for (size_t i = 0; i < value_count(pool, optimizer); i++)
        if (value_as_dict(pool, value_item(pool, optimizer, i), &inner))
            take_text(pool, inner, "param_state_sharding_type", r->sharding, sizeof r->sharding);
}

static void take_run(void *ctx, value_pool *pool, value common)
{
    megatron_run *r = ctx;
    value dict, arguments, version;
    double number;
    if (!value_as_dict(pool, common, &dict))
        return;
    r->iteration = number_of(pool, dict, "iteration");
    if (value_dict_find(pool, dict, "checkpoint_version", &version) &&
        value_as_double(pool, version, &number) && number >= 0 && number < 1e6)
        snprintf(r->version, sizeof r->version, "%.1f", number);
    take_sharding(r, pool, dict);
    if (!find_members(pool, dict, "args", &arguments))
        return;
    r->world_size = number_of(pool, arguments, "world_size");
    r->tensor_parallel = number_of(pool, arguments, "tensor_model_parallel_size");
    r->pipeline_parallel = number_of(pool, arguments, "pipeline_model_parallel_size");
    r->expert_parallel = number_of(pool, arguments, "expert_model_parallel_size");
    r->context_parallel = number_of(pool, arguments, "context_parallel_size");
}

/* A damaged file is reported by verify. */
static const megatron_run *run_of(fsdpck_checkpoint *c)
{
    while (c->base != NULL)
        c = c->base;
    megatron_run *r = &c->megatron;
    if (r->known)
        return r;
    *r = (megatron_run){.known = true,
                        .iteration = -1,
                        .world_size = -1,
                        .tensor_parallel = -1,
                        .pipeline_parallel = -1,
                        .expert_parallel = -1,
                        .context_parallel = -1};
    if (c->format->id != FSDPCK_FORMAT_DCP ||
        common_state_read(c, take_run, r, &r->found, NULL) != FSDPCK_OK)
        r->is_unread = r->found;
    return r;
}

int64_t checkpoint_iteration(fsdpck_checkpoint *c)
{
    return run_of(c)->iteration;
}

fsdpck_status checkpoint_check_megatron_rank(fsdpck_checkpoint *c, fsdpck_error *err)
{
    value dict, arguments;
    if (!c->entered || strcmp(text_file_name(c->path), "model_optim_rng.pt") != 0 ||
        !value_as_dict(&c->cat.pool, c->cat.root, &dict) ||
        !find_members(&c->cat.pool, dict, "args", &arguments))
        return FSDPCK_OK;
    const int64_t tensor = number_of(&c->cat.pool, arguments, "tensor_model_parallel_size");
    const int64_t pipeline = number_of(&c->cat.pool, arguments, "pipeline_model_parallel_size");
    if (tensor <= 1 && pipeline <= 1)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, UNSUPPORTED, MEGATRON_FORMAT,
        ("file of one of several model-parallel ranks of Megatron-LM, which fsdpck does "
         "not merge"),
        (path, c->path), (expected, "format torch_dist"),
        (found, "tensor parallel %" PRId64 ", pipeline parallel %" PRId64, tensor < 1 ? 1 : tensor,
         pipeline < 1 ? 1 : pipeline),
        (next, "load it with Megatron-LM and save it with --ckpt-convert-format "
               "torch_dist"));
}

/* dp_reshardable has tensors, dp_zero_gather_scatter objects of this name, maybe after "chained_0.". */
static bool is_bucket(const catalogue *c, uint32_t name)
{
    return strstr(catalogue_name(c, name), "optimizer.distributed.dp_group_idx_") != NULL;
}

fsdpck_status checkpoint_check_buckets(const fsdpck_checkpoint *c, const catalogue *to,
                                       bool optimizer_only, fsdpck_error *err)
{
    static const char why[] =
        "optimizer state is in buckets of the data-parallel groups of Megatron-Core "
        "(dp_reshardable), and the order of the parameters in them is not recorded";
    uint32_t first = CAT_NONE;
    for (size_t i = catalogue_tensor_count(to); i-- > 0;)
        if (is_bucket(to, catalogue_tensor(to, i)->name))
            first = catalogue_tensor(to, i)->name;
    for (size_t i = 0; first == CAT_NONE && i < catalogue_object_count(to); i++)
        if (is_bucket(to, catalogue_object(to, i)->name))
            first = catalogue_object(to, i)->name;
    if (first == CAT_NONE)
        return FSDPCK_OK;
    if (optimizer_only)
        return FAIL_WITH(err, UNSUPPORTED, MEGATRON_BUCKETS, ("%s", why), (path, c->path),
                         (tensor, catalogue_name(to, first)),
                         (next, "save with --dist-ckpt-optim-fully-reshardable, or take the model "
                                "with --part model"));
    log_warn(&c->ctx->log, FSDPCK_FINDING_MEGATRON_BUCKETS,
             "take the model alone with --part model of consolidate or reshard, or save with "
             "--dist-ckpt-optim-fully-reshardable",
             "%s; it is copied as it is, for the same tensor and pipeline parallel sizes", why);
    return FSDPCK_OK;
}

int fsdpck_get_megatron(fsdpck_checkpoint *c, fsdpck_megatron *megatron)
{
    const megatron_run *r = run_of(c);
    const fsdpck_megatron all = {.struct_nbytes = sizeof all,
                                 .checkpoint_version = r->version,
                                 .optimizer = r->sharding,
                                 .iteration = r->iteration,
                                 .world_size = r->world_size,
                                 .tensor_parallel = r->tensor_parallel,
                                 .pipeline_parallel = r->pipeline_parallel,
                                 .expert_parallel = r->expert_parallel,
                                 .context_parallel = r->context_parallel,
                                 .is_unread = r->is_unread};
    if (!r->found)
        return 0;
    struct_copy_out(megatron, &all, sizeof all);
    return 1;
}
