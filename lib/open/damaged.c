#include "open/damaged.h"

static fsdpck_status fail(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    if (err != NULL)
        *err = c->damage;
    return c->damage.status;
}

static fsdpck_status refuse_location(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    (void)chunk;
    (void)where;
    return fail(ctx, err);
}

static fsdpck_status refuse_header(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    (void)chunk;
    return fail(ctx, err);
}

static fsdpck_status refuse_check(void *ctx, fsdpck_error *err)
{
    return fail(ctx, err);
}

void damaged_refuse_reads(fsdpck_checkpoint *c)
{
    c->src = (source){
        .ctx = c,
        .cat = &c->cat,
        .root = c->path,
        .root_is_file = !c->probe.is_folder,
        .locate = refuse_location,
        .check_empty = refuse_header,
        .check_unchanged = refuse_check,
    };
}
