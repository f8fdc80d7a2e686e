/* Objects that a reader does not load may contain tensors. All are loaded before the selection, so
 * that each tensor is selected or counted as omitted. */
#include <inttypes.h>

#include "base/text.h"
#include "open/checkpoint.h"

/* Whether a run can continue without the object, whose contents are unknown. */
static bool concerns_object(fsdpck_status st)
{
    return st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT;
}

fsdpck_status checkpoint_load_inner(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const size_t had = catalogue_tensor_count(&c->cat);
    uint64_t unread = 0;
    uint32_t first = 0;
    fsdpck_error first_why = FSDPCK_ERROR_INIT;
    if (c->inner_loaded)
        return FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        if (catalogue_object(&c->cat, i)->loaded)
            continue;
        RETURN_IF(cancel_check(&c->ctx->cancel, err));
        const fsdpck_status st = checkpoint_load_object(c, i, &why);
        if (st != FSDPCK_OK && !concerns_object(st)) {
            *err = why;
            return st;
        }
        if (st != FSDPCK_OK && unread++ == 0) {
            first = i;
            first_why = why;
        }
    }
    c->inner_loaded = true;
    if (unread > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_OBJECT_UNREAD, "",
                 "%" PRIu64
                 " object%s cannot be read, and tensors inside are not counted; first: '%s' in '%s'",
                 unread, text_plural(unread),
                 catalogue_name(&c->cat, catalogue_object(&c->cat, first)->name),
                 first_why.path[0] != '\0' ? first_why.path : c->path);
    if (catalogue_tensor_count(&c->cat) == had)
        return FSDPCK_OK;
    checkpoint_parts_release(&c->parts);
    return checkpoint_parts_find(&c->cat, &c->parts, err);
}
