#include "state/filter.h"

fsdpck_status filter_add_tensor(target_filter *p, uint64_t cell_nbytes, uint64_t span_nbytes,
                                uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(vec_add(&p->grids, &(filter_grid){p->cell_count, cell_nbytes, span_nbytes}, err));
    if (nbytes == 0)
        return FSDPCK_OK;
    p->cell_count += nbytes / span_nbytes * ((span_nbytes + cell_nbytes - 1) / cell_nbytes);
    if (cell_nbytes > p->cell_nbytes_max)
        p->cell_nbytes_max = cell_nbytes;
    return FSDPCK_OK;
}

void filter_get_cell(const target_filter *p, uint64_t index, filter_cell *cell)
{
    /* The last grid that does not begin later: empty ones begin together with the next. */
    size_t low = 0, high = p->grids.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&p->grids, const filter_grid, middle)->first_cell <= index)
            low = middle;
        else
            high = middle;
    }
    const filter_grid *g = VEC_AT(&p->grids, const filter_grid, low);
    const uint64_t number = index - g->first_cell;
    const uint64_t each = (g->span_nbytes + g->cell_nbytes - 1) / g->cell_nbytes;
    const uint64_t in_span = number % each * g->cell_nbytes;
    const uint64_t left = g->span_nbytes - in_span;
    *cell = (filter_cell){
        .tensor = (uint32_t)low,
        .number = number,
        .at = number / each * g->span_nbytes + in_span,
        .nbytes = left < g->cell_nbytes ? left : g->cell_nbytes,
    };
}

void filter_release(target_filter *p)
{
    VEC_RELEASE_ALL(&p->grids, &p->places);
    *p = (target_filter){0};
}
