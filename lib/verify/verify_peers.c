#include "verify/verify_peers.h"

#include "group/assignment.h"

static group *group_of(void *ctx)
{
    const fsdpck_checkpoint *src = ctx;
    return src->ctx->group;
}

static fsdpck_status agree_all(void *ctx, fsdpck_status st, fsdpck_error *err)
{
    return group_agree(group_of(ctx), st, err);
}

static fsdpck_status same_value(void *ctx, uint64_t number, const char *what, fsdpck_error *err)
{
    return group_check_same(group_of(ctx), FSDPCK_OK, GROUP_GOES_ON, number, what, err);
}

static fsdpck_status xor_words(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err)
{
    return group_xor(group_of(ctx), words, count, err);
}

static fsdpck_status or_words(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err)
{
    return group_or(group_of(ctx), words, count, err);
}

static fsdpck_status gather(void *ctx, fsdpck_status st, const void *bytes, uint64_t nbytes,
                            check_receive_fn take, void *arg, fsdpck_error *err)
{
    return group_all_gather(group_of(ctx), st, GROUP_STOPS, bytes, nbytes, take, arg, err);
}

/* Assigned to ranks that have the files; else neighbors stay together. */
static fsdpck_status assign_local_files(const fsdpck_checkpoint *src, const check_work *jobs,
                                        uint64_t count, uint8_t *mine, fsdpck_error *err)
{
    const group *g = src->ctx->group;
    const catalogue *cat = &src->cat;
    uint64_t total = 0, largest = 0;
    assignment d;
    for (uint64_t i = 0; i < count; i++) {
        total += jobs[i].nbytes;
        largest = jobs[i].nbytes > largest ? jobs[i].nbytes : largest;
    }
    const fsdpck_status st = assignment_init(&d, group_size(g), NULL, total, largest, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < count; i++) {
        const uint32_t path = catalogue_file(cat, jobs[i].file)->path;
        assignment_add_local_file(&d, src->remote_files, catalogue_name(cat, path), jobs[i].nbytes);
        mine[i] = assignment_next(&d, jobs[i].nbytes) == group_rank(g);
    }
    assignment_release(&d);
    return st;
}

static fsdpck_status assign_all(void *ctx, const check_work *jobs, uint64_t count, uint8_t *mine,
                                fsdpck_error *err)
{
    const fsdpck_checkpoint *src = ctx;
    uint64_t begin, end;
    if (src->remote_files != NULL)
        return assign_local_files(src, jobs, count, mine, err);
    group_range(src->ctx->group, count, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        mine[i] = 1;
    return FSDPCK_OK;
}

check_peers verify_peers(fsdpck_checkpoint *src)
{
    return (check_peers){
        .ctx = src,
        .rank = group_rank(src->ctx->group),
        .agree = agree_all,
        .same = same_value,
        .assignment = assign_all,
        .xor_words = xor_words,
        .or_words = or_words,
        .gather = gather,
    };
}
