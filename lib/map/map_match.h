/* map_match.h: the tensors of a checkpoint, by the rules of a map that take them.
 *
 * An instance is one use of a rule: its sources with the same captures, apart from the capture that
 * `stack` removes. Its tensors are in the order of the rule's sources, and for each source in the
 * order of the stacked capture, which counts from 0 without a gap.
 */
#ifndef FSDPCK_MAP_MAP_MATCH_H
#define FSDPCK_MAP_MAP_MATCH_H

#include "map/map_adapter.h"
#include "map/map_internal.h"

/* A tensor that a rule takes. */
typedef struct map_taken {
    uint32_t input; /* index of the tensor in the list of inputs */
    uint32_t rule;
    uint32_t source; /* which of the rule's sources */
    uint32_t any;    /* id of the text of '*' */
    map_captures captures;
} map_taken;

typedef struct map_instance {
    uint32_t rule;
    uint32_t order;        /* its first input */
    uint32_t first, count; /* in matches.taken */
    uint32_t stacked;      /* tensors for each source; 1 without stack */
} map_instance;

typedef struct map_matches {
    vec taken;     /* map_taken */
    vec instances; /* map_instance, in the order of their first tensors */
    vec dropped;   /* uint32_t: inputs */
    vec lost;      /* uint32_t: those of them that `lose` takes */
    strtab any;
} map_matches;

/* BADINPUT: MAP-UNTAKEN, MAP-TAKEN-TWICE, MAP-SOURCE, EXPORT-CONFIG. */
fsdpck_status map_match(const tensor_map *m, const map_input *inputs, size_t count,
                        map_matches *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void map_matches_release(map_matches *x);
/* map_stack.c: stacks over one list of modules have the same length, and that of config.json for experts.
 * BADINPUT: MAP-SOURCE, EXPORT-CONFIG. */
fsdpck_status map_check_stacks(const tensor_map *m, const map_input *inputs, const map_matches *x,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of an inverted map: BADINPUT (MAP-TAKEN-TWICE) if the map that it inverts does not give the name, which
 * `rule` made, to the same rule. */
fsdpck_status map_check_return(const tensor_map *m, const map_rule *rule, const char *name,
                               size_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
