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
    uint32_t param;   /* of the units: the parameter that it is, or CAT_NONE */
    bool is_twin;     /* another name for a parameter of the units: has no place of its own */
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
    uint16_t inner_rank;  /* the one rank whose object is walked, UINT16_MAX: every rank's */
    uint64_t *tensor_map; /* source tensor -> target tensor, UINT64_MAX where it is not taken */
} aim_state;

/* Deepest path that is rebuilt; torch's own flattening recurses and so stays far below. */
#define AIM_PATH_ELEMENTS 64u

/* A path as values of the target's pool. */
typedef struct aim_path {
    value elements[AIM_PATH_ELEMENTS];
    size_t count;
} aim_path;

/* The path as the source has it, wrapper parts cleaned where that is asked for. */
fsdpck_status aim_copy_path(aim_state *a, value path, uint32_t name, bool is_model, aim_path *p,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Fits the path to the final name: outer elements that the name still begins with are kept, what
 * remains of the name is the last key. */
fsdpck_status aim_fit_path(aim_state *a, const char *name, size_t nbytes, aim_path *p,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Gives target tensor `index`, made from source tensor `from`, its spec and its chunks. `pick` is
 * NULL for a tensor inside an object: replicated. */
fsdpck_status aim_cut(aim_state *a, const aim_pick *pick, uint32_t from, uint32_t index,
                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Finds what parameters of cut->units the picks are, which must all be there; other names of them
 * become twins. BADINPUT (MODEL-MISMATCH). After aim_find_ties. */
fsdpck_status aim_flatten_find(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Chunks of the ranks' pieces; target tensor `index` is pick->param. */
fsdpck_status aim_flatten_cut(aim_state *a, const aim_pick *pick, uint32_t index,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A flat parameter has one dtype: UNSUPPORTED. After all tensors are added. */
fsdpck_status aim_flatten_check(const aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* What the report says of a tie: "tied = first". */
fsdpck_status aim_note_tie(aim_state *a, const aim_pick *first, const aim_pick *tied,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Paths of the target's tensors, and its objects. */
fsdpck_status aim_build_keyed(aim_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

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
