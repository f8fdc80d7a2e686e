#include "state/filter.h"

fsdpck_status pack_add(target_pack *p, uint64_t cell_nbytes, uint64_t span_nbytes, uint64_t nbytes,
                       fsdpck_error *err)
{
    pack_grid *g = vec_push(&p->grids, err);
    if (g == NULL)
        return FSDPCK_LIMIT;
    *g = (pack_grid){p->cell_count, cell_nbytes, span_nbytes};
    if (nbytes == 0)
        return FSDPCK_OK;
    p->cell_count += nbytes / span_nbytes * ((span_nbytes + cell_nbytes - 1) / cell_nbytes);
    if (cell_nbytes > p->cell_nbytes_max)
        p->cell_nbytes_max = cell_nbytes;
    return FSDPCK_OK;
}

void pack_get_cell(const target_pack *p, uint64_t index, pack_cell *cell)
{
    /* The last grid that begins no later: empty ones begin where the next does. */
    size_t low = 0, high = p->grids.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&p->grids, const pack_grid, middle)->first_cell <= index)
            low = middle;
        else
            high = middle;
    }
    const pack_grid *g = VEC_AT(&p->grids, const pack_grid, low);
    const uint64_t number = index - g->first_cell;
    const uint64_t each = (g->span_nbytes + g->cell_nbytes - 1) / g->cell_nbytes;
    const uint64_t in_span = number % each * g->cell_nbytes;
    const uint64_t left = g->span_nbytes - in_span;
    *cell = (pack_cell){
        .tensor = (uint32_t)low,
        .number = number,
        .at = number / each * g->span_nbytes + in_span,
        .nbytes = left < g->cell_nbytes ? left : g->cell_nbytes,
    };
}

void pack_release(target_pack *p)
{
    vec_release(&p->grids);
    vec_release(&p->places);
    *p = (target_pack){0};
}
