/* flat_order.h: the order of one param_group's parameters when rank files of FSDP1 number them.
 *
 *     flat_order o;
 *     flat_order_init(&o, a, pool, flat, group);
 *     RETURN_IF(flat_order_add_param(&o, fqn, nbytes, id, err));   // as the group lists them
 *     RETURN_IF(flat_order_sort(&o, param_names, err));            // o.items: as numbered
 *     flat_order_release(&o);
 *
 * Only the program that created the optimizer defines the order. It is that of 'optimizers' in the
 * model description, else that of `param_names`, else that of the list if it is the model's order.
 * A list in another order may be sorted by name: the order of the model if that is assumed, else
 * MODEL-NEEDED. If the order of the model is unknown: the list, and the result's `unordered`, unless
 * an order is assumed.
 */
#ifndef FSDPCK_SELECT_FLAT_ORDER_H
#define FSDPCK_SELECT_FLAT_ORDER_H

#include "select/select_internal.h"

typedef struct flat_order_item {
    uint32_t id;   /* the caller's: of a unit or of a parameter */
    uint32_t rank; /* in the order of the model, CAT_NONE */
    uint32_t at;   /* in the list */
    uint32_t name; /* of its first listed parameter, in `names` */
} flat_order_item;

typedef struct flat_order {
    select_state *a;
    const value_pool *pool; /* of param_names */
    bool flat;              /* items are flat parameters */
    uint32_t group, group_count;
    const char *key; /* of the optimizer in the checkpoint, or NULL */
    size_t key_nbytes;
    strtab names;  /* of parameters */
    strtab labels; /* of items, ids count them: FQN or PREFIX._flat_param */
    vec items;     /* flat_order_item */
    /* Of flat parameters: the original names are in the order of the model so far. */
    bool is_plain;
    uint32_t last; /* the rank of the last original name */
} flat_order;

void flat_order_init(flat_order *o, select_state *a, const value_pool *pool, bool flat,
                     uint32_t group);
void flat_order_release(flat_order *o);
/* Adds a parameter, unless it is in the list already. fqn: clean. */
fsdpck_status flat_order_add_param(flat_order *o, const char *fqn, size_t nbytes, uint32_t id,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the flat parameter of a parameter, likewise. */
fsdpck_status flat_order_add_unit(flat_order *o, uint32_t unit_index, uint32_t param,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* given: the group's `param_names`, or none. BADINPUT: MODEL-NEEDED; MODEL-OPTIM if the description
 * lists other parameters. */
fsdpck_status flat_order_sort(flat_order *o, value given, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
