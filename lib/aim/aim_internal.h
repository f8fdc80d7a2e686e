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
    bool has_ties;    /* a later pick is tied to this one */
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

/* Fills tied_to and has_ties of the picks, and the result's ties. */
fsdpck_status aim_find_ties(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes to->root. */
fsdpck_status aim_build_root(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
