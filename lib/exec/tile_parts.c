#include "exec/tile_parts.h"

void tile_parts_find(tile_parts *p, const plan *of, const output_range *range)
{
    p->count = 0;
    p->crc_count = 0;
    range_walk_begin(&p->rest, of, range);
    while (p->count < TILE_PARTS && range_walk_next(&p->rest, &p->list[p->count]))
        p->count++;
    p->more = p->count == TILE_PARTS;
}

void tile_parts_begin(tile_walk *w, const tile_parts *p)
{
    w->parts = p;
    w->at = 0;
    if (p->more)
        w->rest = p->rest;
}

const range_part *tile_parts_next(tile_walk *w)
{
    const tile_parts *p = w->parts;
    if (w->at < p->count)
        return &p->list[w->at++];
    return p->more && range_walk_next(&w->rest, &w->part) ? &w->part : NULL;
}
