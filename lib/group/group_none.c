/* A build without MPI. */
#include "group/group_link.h"

fsdpck_status group_link_open(group_watch *watch, group_link **out, fsdpck_error *err)
{
    (void)watch;
    *out = NULL;
    return FAIL_WITH(
        err, UNSUPPORTED, NONE, ("several ranks were started, but this build has no MPI"),
        (next, "run fsdpck without a launcher, or build it with -DFSDPCK_WITH_MPI=ON"));
}

unsigned group_link_rank(const group_link *l)
{
    (void)l;
    return 0;
}

unsigned group_link_size(const group_link *l)
{
    (void)l;
    return 1;
}

fsdpck_status group_link_do(group_link *l, const link_call *call, fsdpck_error *err)
{
    (void)l;
    (void)call;
    return FAIL(err, INTERNAL, NONE, "a link was used in a build without MPI");
}

fsdpck_status group_link_read(group_link *l, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err)
{
    (void)l;
    (void)owner;
    (void)what;
    (void)dst;
    return FAIL(err, INTERNAL, NONE, "a link was used in a build without MPI");
}

void group_link_serve(group_link *l, group_serve_fn fn, void *ctx)
{
    (void)l;
    (void)fn;
    (void)ctx;
}

void group_link_report_failed(group_link *l)
{
    (void)l;
}

bool group_link_is_broken(group_link *l, int *lost)
{
    (void)l;
    *lost = -1;
    return false;
}

void group_link_free(group_link *l)
{
    (void)l;
}

void group_link_abort(group_link *l, int status)
{
    (void)l;
    (void)status;
}

const char *group_link_name(void)
{
    return "self";
}

const char *group_link_description(void)
{
    return "one process";
}
