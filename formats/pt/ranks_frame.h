/* ranks_frame.h: the merged containers of all ranks' states, built in catalogue.like. */
#ifndef FSDPCK_FORMATS_PT_RANKS_FRAME_H
#define FSDPCK_FORMATS_PT_RANKS_FRAME_H

#include "formats/pt/ranks_internal.h"

/* What one rank has at a place. */
typedef enum ranks_shape {
    SHAPE_OTHER, /* a leaf that is no empty container */
    SHAPE_EMPTY_DICT,
    SHAPE_EMPTY_LIST,
    SHAPE_EMPTY_TUPLE,
    SHAPE_DICT,
    SHAPE_LIST
} ranks_shape;

typedef struct ranks_container {
    value owner;      /* in the catalogue's pool: DICT, LIST or the call of a dict's class */
    value items;      /* DICT or LIST */
    bool has_modules; /* ranks_frame.modules contains those of its _metadata */
} ranks_container;

/* A key of a merged dict, or an index of a list. */
typedef struct ranks_slot {
    value key;          /* in the catalogue's pool */
    size_t at;          /* its position in the container */
    uint32_t container; /* that is its value, in ranks_frame.containers; only with a shape of one */
    uint32_t file, rank; /* where the key was found first */
    uint8_t shape;       /* ranks_shape */
} ranks_slot;

/* ranks_frame_keys.c */
/* The slot of a key of p->scratch.pool in a container; *fresh: it was added, without a position.
 * KEY-NEST for another key that is equal in Python, or that has the same text. */
fsdpck_status ranks_frame_slot(ranks_parse *p, uint32_t container, value items, value key,
                               uint32_t *slot, bool *fresh, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* KEY-NEST for an empty container and one of another kind, unless each rank keeps its own. */
fsdpck_status ranks_frame_refuse_shape(const ranks_parse *p, const ranks_slot *known,
                                       ranks_shape found, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_classes.c */
/* pt_flat.on_dict; ctx is a ranks_parse. BADINPUT: RANK-DIFFER, if differing objects are refused. */
fsdpck_status ranks_note_dict(void *ctx, const char *name, size_t nbytes, value v,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void ranks_report_classes(const ranks_state *s);

#endif
