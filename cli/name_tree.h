/* name_tree.h: the modules of a checkpoint. Names are split at their dots; each module has the totals of its
 * tensors. Index modules such as the layers of a model, which differ in their number only, can be grouped.
 */
#ifndef FSDPCK_CLI_NAME_TREE_H
#define FSDPCK_CLI_NAME_TREE_H

#include "cmd.h"

#define NAME_TREE_DTYPES 64u

/* Order of tensors in a list, and of the parts of a module. */
typedef enum name_order {
    NAME_ORDER_NAME,  /* by the parts of names; numbers by their value */
    NAME_ORDER_SIZE,  /* largest first */
    NAME_ORDER_STORED /* as the checkpoint lists them */
} name_order;

typedef enum name_kind { NAME_MODULE, NAME_TENSOR, NAME_OBJECT } name_kind;

/* Most modules above a leaf: dots after that do not separate parts. */
#define NAME_TREE_DEPTH 64u

/* Nodes are in preorder, sorted by name: those below node i are i + 1 to end - 1. Node 0 is the root. */
typedef struct name_node {
    const char *name; /* the part of this node; not terminated */
    size_t name_nbytes;
    size_t prefix_nbytes; /* of a module: of the whole name with its last dot */
    size_t parent, end;
    uint64_t first; /* lowest index of a tensor; objects follow the tensors */
    uint64_t tensors, nbytes, objects;
    uint64_t dtypes; /* bits of name_tree.dtypes */
    uint64_t hash;   /* of everything below and of its own type, without its own name */
    name_kind kind;
    unsigned depth; /* modules above */
} name_node;

typedef struct name_tree {
    const fsdpck_checkpoint *ckpt;
    name_node *nodes;
    size_t count, capacity;
    const char *dtypes[NAME_TREE_DTYPES];
    size_t dtype_count;
} name_tree;

/* False if memory runs out; name_tree_release in any case. */
bool name_tree_build(name_tree *tree, const fsdpck_checkpoint *ckpt);
void name_tree_release(name_tree *tree);

/* Parts of a module that differ in their number only; or a single part. */
typedef struct name_group {
    size_t node;  /* the first member; the others are equal to it except for the number */
    size_t begin; /* of its members in name_groups.members, by number */
    size_t count;
    uint64_t nbytes; /* of all members */
} name_group;

typedef struct name_groups {
    name_group *groups;
    size_t count;
    size_t *members; /* nodes */
} name_groups;

/* The parts of module `node`. False if memory runs out; name_groups_release in any case. */
bool name_groups_make(const name_tree *tree, size_t node, name_order order, name_groups *out);
void name_groups_release(name_groups *g);

/* The name of a group, as "attn" or "{0..3,7}": ranges as in the shell, {FIRST..LAST..STEP}. Escaped; free(). NULL
 * if memory runs out. */
char *name_group_label(const name_tree *tree, const name_groups *g, const name_group *group);

/* Indices of all tensors in this order; free(). NULL if memory runs out. */
uint64_t *name_order_tensors(const fsdpck_checkpoint *ckpt, name_order order);

/* Compares two names by their parts between dots, numbers by their value. */
int name_compare(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes);
/* Whether a part of a name is a number as range() counts: no leading zero, at most 18 digits. */
bool name_is_index(const char *name, size_t nbytes);

#endif
