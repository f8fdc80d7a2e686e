#include "open/checkpoint.h"
#include "statedict/shard_metadata.h"

/* The checkpoint was opened without information on flat parameters. It is read again with the list
 * of tensors that are shards. The first time, the reader reported what the files have. */
static fsdpck_status reopen(fsdpck_checkpoint *c, const open_request *request,
                            per_rank_policy per_rank, fsdpck_error *err)
{
    open_request again = *request;
    const per_rank_rule rule = {.policy = per_rank, .unflattens = true, .units = &c->units};
    again.keep_flat_shards = true;
    again.log = (logger){0};
    again.found = NULL;
    again.copies = per_rank_copies(&rule);
    c->format->close(c->self);
    c->self = NULL;
    catalogue_release(&c->cat);
    catalogue_init(&c->cat, &c->metadata);
    RETURN_IF(c->format->open(&again, &c->read, &c->self, err));
    c->format->source(c->self, &c->read, &c->read_src);
    return FSDPCK_OK;
}

fsdpck_status shard_adapter_apply(fsdpck_checkpoint *c, const open_request *request,
                                  per_rank_policy per_rank, bool assume_order, fsdpck_error *err)
{
    const int64_t ranks = c->cat.origin.world_size;
    const flat_adapter_options options = {
        .ranks = per_rank, .assume_order = assume_order, .from_metadata = true};

    if (!shard_metadata_is(&c->cat))
        return FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (!catalogue_object(&c->cat, i)->loaded)
            RETURN_IF(c->format->load_object(c->self, &c->cat, i, err));
    fsdpck_status st =
        shard_metadata_units(&c->cat, ranks < 1 ? 1 : (uint32_t)ranks, &c->units, err);
    if (st == FSDPCK_OK)
        st = reopen(c, request, per_rank, err);
    if (st == FSDPCK_OK)
        st = flat_adapter_new(&c->read, &c->read_src, &c->units, &options, &c->cat, &c->adapter,
                              err);
    if (st != FSDPCK_OK) {
        error_path(err, c->path);
        return st;
    }
    c->src = *flat_adapter_source(c->adapter);
    log_write(&c->ctx->log, LOG_NOTE,
              "flat parameters: %u, unflattened by the checkpoint's shard_metadata",
              (unsigned)unit_count(&c->units));
    checkpoint_log_dropped(c);
    return FSDPCK_OK;
}
