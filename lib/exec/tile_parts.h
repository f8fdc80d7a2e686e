/* tile_parts.h: parts of a tile, found once and looked through as often as it takes.
 *
 *     tile_parts_find(p, plan, &range);
 *     for (tile_parts_begin(&walk, p); (part = tile_parts_next(&walk)) != NULL;)
 *         ... *part, valid until the next call ...
 *
 * The list has room for TILE_PARTS; those after it are found again each time.
 */
#ifndef FSDPCK_EXEC_TILE_PARTS_H
#define FSDPCK_EXEC_TILE_PARTS_H

#include "plan/segment.h"

#define TILE_PARTS 4096u
#define TILE_CRCS  512u

/* Raw CRC-64 of the bytes of a part. */
typedef struct tile_crc {
    uint64_t begin; /* of the part */
    uint64_t raw;
} tile_crc;

typedef struct tile_parts {
    range_part *list; /* TILE_PARTS */
    size_t count;
    bool more;       /* than are in the list */
    range_walk rest; /* where the list ends */
    /* Of some parts, in their order; known from filling the tile, or from its checksums. */
    tile_crc crcs[TILE_CRCS];
    unsigned crc_count;
} tile_parts;

typedef struct tile_walk {
    const tile_parts *parts;
    size_t at;
    range_walk rest;
    range_part part;
} tile_walk;

void tile_parts_find(tile_parts *p, const plan *of, const output_range *range);
void tile_parts_begin(tile_walk *w, const tile_parts *p);
/* NULL after the last one. */
const range_part *tile_parts_next(tile_walk *w);

#endif
