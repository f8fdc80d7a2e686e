#include "layout/placement_text.h"

#include <stdbool.h>
#include <string.h>

#include "state/box.h"

static void skip_spaces(const char **at)
{
    *at += strspn(*at, " \t\n");
}

static bool take(const char **at, const char *word)
{
    skip_spaces(at);
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool take_number(const char **at, uint64_t most, uint64_t *number)
{
    skip_spaces(at);
    const char *begin = *at;
    *number = 0;
    for (; **at >= '0' && **at <= '9' && *number <= most; ++*at)
        *number = *number * 10 + (uint64_t)(**at - '0');
    return *at > begin && *number <= most;
}

/* "(0" or "(dim=0" */
static bool take_dim(const char **at, placement *p)
{
    uint64_t dim;
    if (!take(at, "("))
        return false;
    (void)take(at, "dim=");
    if (!take_number(at, NDIM_MAX - 1, &dim))
        return false;
    p->dim = (uint8_t)dim;
    return true;
}

static bool take_placement(const char **at, placement *p)
{
    uint64_t factor;
    *p = (placement){.kind = PLACEMENT_REPLICATE};
    if (take(at, "Replicate()"))
        return true;
    if (take(at, "_StridedShard") || take(at, "_S")) {
        p->kind = PLACEMENT_STRIDED_SHARD;
        if (!take_dim(at, p) || !take(at, ","))
            return false;
        if (!take(at, "split_factor="))
            (void)take(at, "sf=");
        if (!take_number(at, UINT32_MAX, &factor) || factor == 0)
            return false;
        p->split_factor = (uint32_t)factor;
        return take(at, ")");
    }
    if (take(at, "Shard") || take(at, "S")) {
        p->kind = PLACEMENT_SHARD;
        return take_dim(at, p) && take(at, ")");
    }
    return take(at, "R");
}

static fsdpck_status refuse(const char *at, const char *expected, fsdpck_error *err)
{
    return FAIL_WITH(
        err, USAGE, NONE, ("invalid placements"), (expected, "%s", expected),
        (found, *at == '\0' ? "the end%s" : "'%.40s'", at),
        (next, "write them as torch does: [Replicate(), Shard(0), _StridedShard(0, 2)]"));
}

fsdpck_status placements_parse(const char *text, unsigned mesh_ndim, placement *p,
                               fsdpck_error *err)
{
    const char *at = text;
    memset(p, 0, MESH_NDIM_MAX * sizeof *p);
    const char *close = take(&at, "[") ? "]" : take(&at, "(") ? ")" : "";
    for (unsigned i = 0; i < mesh_ndim; i++) {
        if (i > 0 && !take(&at, ","))
            return refuse(at, "one placement per mesh dim, separated by commas", err);
        const char *begin = at;
        if (!take_placement(&at, &p[i]))
            return refuse(begin, "Replicate(), Shard(dim) or _StridedShard(dim, split_factor)",
                          err);
    }
    if (*close == ')')
        (void)take(&at, ","); /* a tuple of one */
    if (!take(&at, close))
        return refuse(at, "the end of the list", err);
    skip_spaces(&at);
    return *at == '\0' ? FSDPCK_OK : refuse(at, "as many placements as the mesh has dims", err);
}
