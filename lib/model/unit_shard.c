#include "model/unit.h"

bool unit_shard_param_next(const unit_list *l, const unit *u, uint32_t rank, uint32_t *next,
                           unit_shard_param *out)
{
    while (*next < u->nparams) {
        const uint32_t k = (*next)++;
        const unit_param_range piece = unit_param_range_of(l, u, k, rank);
        if (!piece.in_shard)
            continue;
        const unit_param *p = unit_param_at(l, u, k);
        *out = (unit_shard_param){
            .param = p,
            .contiguous = !p->permuted,
            .first = (int64_t)piece.begin,
            .last = (int64_t)piece.end - 1,
        };
        if (p->permuted)
            unit_param_strides(l, p, out->strides);
        else
            box_row_major_strides(unit_param_shape(l, p), p->ndim, out->strides);
        return true;
    }
    return false;
}
