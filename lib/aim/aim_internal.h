/* aim_internal.h: what the files of this folder share while one target is made. */
#ifndef FSDPCK_AIM_INTERNAL_H
#define FSDPCK_AIM_INTERNAL_H

#include "aim/aim.h"

/* A source tensor that goes into the target. */
typedef struct aim_pick {
    uint32_t source;
    uint32_t name;    /* in aim_state.names: its final name */
    uint32_t target;  /* CAT_NONE: dropped as a tie */
    uint32_t tied_to; /* index of the earlier pick that views the same bytes, or CAT_NONE */
} aim_pick;

typedef struct aim_state {
    catalogue *from;
    const aim_parts *parts;
    const aim_request *request;
    target *to;
    aim_result *result;
    aim_rules rules;
    strtab names;
    vec picks;            /* aim_pick, in the order of the source */
    vec objects;          /* uint32_t: picked objects */
    uint64_t *tensor_map; /* source tensor -> target tensor, UINT64_MAX where it is not taken */
} aim_state;

/* Where a source tensor that views a shared storage lies; its one chunk is located. */
fsdpck_status aim_locate(const aim_state *a, uint32_t source, place *where,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills tied_to of the picks, and the result's ties. */
fsdpck_status aim_find_ties(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills to->views: storages whose every view is taken, uncast, stay shared. */
fsdpck_status aim_keep_views(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes to->root. */
fsdpck_status aim_build_root(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
