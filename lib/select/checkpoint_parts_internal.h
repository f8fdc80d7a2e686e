/* checkpoint_parts_internal.h: shared by checkpoint_parts.c, which decides, and
 * checkpoint_parts_rule.c, which describes the rule. */
#ifndef FSDPCK_SELECT_CHECKPOINT_PARTS_INTERNAL_H
#define FSDPCK_SELECT_CHECKPOINT_PARTS_INTERNAL_H

#include "select/checkpoint_parts.h"
#include "select/optimizer_roots.h"

typedef struct parts_context {
    const catalogue *c;
    checkpoint_parts *parts;
    optimizer_roots roots;
    strtab with_params; /* outer keys with floating tensors of one dim or more */
    bool more;          /* the checkpoint has more than a bare model */
} parts_context;

/* The outer key of a path: its first element, or the first two where the first is `app`. */
typedef struct outer_key {
    char text[64]; /* "" if it is no str, or too long for a known key */
    unsigned depth;
    bool has_more; /* the path goes on below it */
    bool is_word;  /* a flat name of one word */
} outer_key;

/* outer_key.c */
void outer_key_of(const catalogue *c, value path, uint32_t name, outer_key *key);
/* Whether the name begins with the key and a dot. */
bool outer_key_name_begins(const catalogue *c, uint32_t name, const char *key);

/* Fills parts.rule, once every tensor and object has its part. */
fsdpck_status checkpoint_parts_describe(parts_context *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
