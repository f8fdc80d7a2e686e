/* description_match.h: compares a model description with a checkpoint.
 *
 *     description_match a;
 *     RETURN_IF(description_match_init(&a, &m, &units, err));
 *     description_is_local(&a, name, nbytes)             // needs no checkpoint
 *     RETURN_IF(description_match_set(&a, &cat, part, err));  // selects the model's tensors
 *     RETURN_IF(description_match_ties(&a, &ties, err));
 *     RETURN_IF(description_match_set(&a, &view, part, err)); // another catalogue, from here on
 *     RETURN_IF(description_match_check(&a, &notes, err));
 *     description_match_release(&a);                           // before m and units
 *
 * Names of a checkpoint are compared without wrapper parts, without an outer key, and without the
 * '.rank3' of a tensor of one rank. The outer key is that of the first tensor of the model part
 * whose name is in the description. A path determines it; without a path it is the fewest leading
 * parts of the name that give a known name.
 */
#ifndef FSDPCK_STATEDICT_DESCRIPTION_MATCH_H
#define FSDPCK_STATEDICT_DESCRIPTION_MATCH_H

#include "model/model.h"
#include "state/catalogue.h"

typedef struct description_match {
    const model *m;
    const unit_list *units;
    uint8_t *scopes;  /* module_scope of each module */
    uint8_t *ignored; /* of each parameter */
    const catalogue *cat;
    const uint8_t *part; /* of each tensor: 0: of the model */
    strtab keys;         /* names of the model's tensors */
    vec tensors;         /* uint32_t: the tensor of each key, of the first of several ranks */
    uint32_t sample;     /* a tensor that could be the model's, CAT_NONE: none */
    bool has_flat;       /* the catalogue has flat parameters that are not yet unflattened */
    bool drops;          /* set by the caller: items that differ between ranks were omitted */
    bool known;          /* some tensor name is in the description */
} description_match;

/* Two names of one parameter or buffer; the first exists. */
typedef struct description_tie {
    uint32_t first;  /* tensor of the catalogue */
    uint32_t twin;   /* likewise, CAT_NONE: missing */
    const char *fqn; /* of the alias; borrowed from the description */
    size_t fqn_nbytes;
    const char *first_fqn; /* likewise */
    size_t first_fqn_nbytes;
} description_tie;

/* Differences that are not errors. */
typedef struct description_notes {
    uint64_t casts;      /* tensors whose floating dtype differs from the model's */
    uint32_t first_cast; /* a tensor of the catalogue */
    uint8_t wanted;      /* the model's dtype for it */
    /* Parameters below a module with overridden names that are found by neither name. */
    uint64_t unfound;
    const char *first_unfound; /* borrowed from the description */
} description_notes;

/* m and units are borrowed, and below also cat and part. */
fsdpck_status description_match_init(description_match *a, const model *m, const unit_list *units,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
void description_match_release(description_match *a);

/* Whether each rank has its own tensor of this name. The name may follow outer keys, be an alias
 * or, with 'state.' before it and another part after it, be an optimizer's. */
bool description_is_local(const description_match *a, const char *name, size_t nbytes);
/* The k-th other name of the same parameter, k from 0; NULL after the last. */
const char *description_alias(const description_match *a, const char *fqn, size_t nbytes,
                              unsigned k, size_t *alias_nbytes);

fsdpck_status description_match_set(description_match *a, const catalogue *cat, const uint8_t *part,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The tensor with this name, CAT_NONE. */
uint32_t description_match_find(const description_match *a, const char *fqn, size_t nbytes);
/* For a parameter or buffer of `module`, by its name in saved state or by module path. */
uint32_t description_match_find_in(const description_match *a, uint32_t module, const char *fqn,
                                   size_t nbytes);

/* Appends description_tie to `ties`, those of one tensor consecutively. Two names that FSDP1
 * without use_orig_params flattened twice, in two units, are not tied, because they diverge in
 * training; nor are tensors that each rank has of its own. BADINPUT (TIE-DIFFERS) if both exist
 * with different shape or dtype. */
fsdpck_status description_match_ties(const description_match *a, vec *ties,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* BADINPUT (MODEL-MISMATCH) with the first difference: a missing parameter or persistent buffer
 * (except those that FSDP ignores and, with a->drops, all that are not sharded), a different shape,
 * a different dtype unless both are floating, a tensor that the model lacks. Nothing is compared if
 * no tensor can be the model's (only optimizer files). A list of units does not describe other
 * tensors. */
fsdpck_status description_match_check(const description_match *a, description_notes *notes,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For messages: "float32 [3, 4]", without a dtype if d is DTYPE_NONE. */
void description_print_shape(dtype d, unsigned ndim, const uint64_t *shape, char *text,
                             size_t capacity);
void description_print_tensor(const catalogue *c, uint32_t tensor, char *text, size_t capacity);

#endif
