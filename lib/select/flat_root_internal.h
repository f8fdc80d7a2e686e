/* flat_root_internal.h: shared by flat_root.c and flat_root_numbers.c. */
#ifndef FSDPCK_SELECT_FLAT_ROOT_INTERNAL_H
#define FSDPCK_SELECT_FLAT_ROOT_INTERNAL_H

#include "select/select_internal.h"

#define FLAT_ROOT_NO_NUMBER UINT32_MAX

typedef struct flat_root {
    select_state *a;
    value_pool *pool;   /* the target's */
    value key;          /* of the optimizer in the checkpoint, or none */
    value groups;       /* list of dicts, as the source has them */
    value states;       /* dict: FQN to dict of entries that are no tensors */
    value made_groups;  /* list of dicts, by number */
    uint32_t *numbers;  /* of each parameter of the units */
    uint32_t *group_of; /* of each unit without use_orig_params, FLAT_ROOT_NO_NUMBER */
    strtab others;      /* parameters of no unit; ids count them as `other_numbers` does */
    vec other_numbers;  /* uint32_t */
    uint32_t next;
    vec entries;    /* entry */
    vec rank_dicts; /* value: the `state` of each rank, or one for all */
    bool per_rank;
} flat_root;

/* Location of the number of a name. *param: index in the units, or CAT_NONE. */
fsdpck_status flat_root_find_slot(flat_root *s, const char *name, size_t nbytes, uint32_t *param,
                                  uint32_t **slot, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A name in the lists and keys of the source, as names of tensors are compared: without wrappers. */
fsdpck_status flat_root_clean_name(const flat_root *s, value name, text_buf *out,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a group of the source, with numbers for its parameters, to made_groups. */
fsdpck_status flat_root_number_group(flat_root *s, uint32_t group,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
