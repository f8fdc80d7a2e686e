#include "run/average_distances.h"

#include <stdlib.h>
#include <string.h>

static fsdpck_status take_distances(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                    fsdpck_error *err)
{
    fsdpck_checkpoint *c = ctx;
    const size_t inputs = c->average_rule.count;
    (void)rank;
    if (nbytes != c->averaged.count * inputs * sizeof(double))
        return FAIL(err, INTERNAL, NONE, "ranks averaged different tensors");
    for (size_t i = 0; i < c->averaged.count; i++)
        for (size_t k = 0; k < inputs; k++) {
            double distance;
            memcpy(&distance, bytes + (i * inputs + k) * sizeof distance, sizeof distance);
            averager_add_distance(c->average, *VEC_AT(&c->averaged, const uint32_t, i), k,
                                  distance);
        }
    return FSDPCK_OK;
}

static fsdpck_status share_nbytes(averager *v, group *g, fsdpck_error *err)
{
    const uint64_t own = averager_further_nbytes(v);
    uint64_t all = own;
    RETURN_IF(group_sum(g, FSDPCK_OK, GROUP_STOPS, &all, 1, err));
    averager_add_further_nbytes(v, all - own);
    return FSDPCK_OK;
}

fsdpck_status average_distances_share(fsdpck_checkpoint *c, group *g, fsdpck_error *err)
{
    if (c->average == NULL || g == NULL)
        return FSDPCK_OK;
    RETURN_IF(share_nbytes(c->average, g, err));
    const size_t inputs = c->average_rule.count;
    const uint64_t nbytes = c->averaged.count * inputs * sizeof(double);
    double *all = malloc(nbytes > 0 ? nbytes : 1);
    for (size_t i = 0; all != NULL && i < c->averaged.count; i++)
        for (size_t k = 0; k < inputs; k++)
            all[i * inputs + k] =
                averager_distance(c->average, *VEC_AT(&c->averaged, const uint32_t, i), k);
    const fsdpck_status st =
        group_all_gather(g, all == NULL ? error_set_nomem(err, nbytes) : FSDPCK_OK, GROUP_STOPS,
                         all, nbytes, take_distances, c, err);
    free(all);
    return st;
}
