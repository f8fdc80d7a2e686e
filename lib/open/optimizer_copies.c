#include "open/optimizer_copies.h"

#include <inttypes.h>

#include "base/text.h"

/* Larger state may be each rank's own, such as shards of flat parameters. */
bool optimizer_copies_differ(const fsdpck_checkpoint *c, uint64_t tensor)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, (uint32_t)tensor);
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == PART_OPTIMIZER &&
           t->ndim == 0 && t->other_rank > 0;
}

void optimizer_copies_warn(const fsdpck_checkpoint *c)
{
    const cat_tensor *first = NULL;
    uint64_t count = 0;
    for (uint32_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (optimizer_copies_differ(c, i) && count++ == 0)
            first = catalogue_tensor(&c->cat, i);
    if (count > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_RANK_DIFFER,
                 "check that all files, also those of the model, are from one save; if they are, "
                 "give --per-rank keep, first or drop",
                 "optimizer state differs from that of the lowest rank: %" PRIu64
                 " tensor%s, first '%s' of rank %u",
                 count, text_plural(count), catalogue_name(&c->cat, first->name),
                 (unsigned)first->other_rank);
}
