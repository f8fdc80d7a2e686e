/* description_match.h: whether a model description and a checkpoint speak of the same model.
 *
 *     agree a;
 *     RETURN_IF(description_match_init(&a, &m, &units, err));
 *     description_is_local(&a, name, nbytes)             // needs no checkpoint
 *     RETURN_IF(description_match_set(&a, &cat, part, err));  // which of its tensors are the model's
 *     RETURN_IF(description_match_ties(&a, &ties, err));
 *     RETURN_IF(description_match_set(&a, &view, part, err)); // another catalogue, from here on
 *     RETURN_IF(description_match_check(&a, &notes, err));
 *     description_match_release(&a);                           // before m and units
 *
 * Names of a checkpoint are taken without what wrappers put into them, without an outer key, and
 * without the '.rank3' of a tensor of one rank. The outer key is that of the first tensor of the
 * model part that has a name of the description; a path says it, or, where there is none, as few
 * leading parts of the name as it takes.
 */
#ifndef FSDPCK_STATEDICT_DESCRIPTION_MATCH_H
#define FSDPCK_STATEDICT_DESCRIPTION_MATCH_H

#include "model/model.h"
#include "state/catalogue.h"

typedef struct agree {
    const model *m;
    const unit_list *units;
    uint8_t *scopes;  /* module_scope of each module */
    uint8_t *ignored; /* of each parameter */
    const catalogue *cat;
    const uint8_t *part; /* of each tensor: 0: of the model */
    strtab keys;         /* names of the model's tensors */
    vec tensors;         /* uint32_t: the tensor of each key, the first of several ranks' */
    uint32_t sample;     /* a tensor that could be the model's, CAT_NONE: there is none */
    bool has_flat;       /* there are flat parameters, not yet taken apart */
    bool drops;          /* for the caller to set: what differs between ranks was left out */
    bool known;          /* some tensor has a name of the description */
} agree;

/* Two names of one parameter or buffer, of which the first is there. */
typedef struct description_tie {
    uint32_t first;  /* tensor of the catalogue */
    uint32_t twin;   /* likewise, CAT_NONE: it is not there */
    const char *fqn; /* of the twin; borrowed from the description */
    size_t fqn_nbytes;
    const char *first_fqn; /* likewise */
    size_t first_fqn_nbytes;
} description_tie;

/* What is no error. */
typedef struct description_notes {
    uint64_t casts;      /* tensors whose floating dtype is not the model's */
    uint32_t first_cast; /* a tensor of the catalogue */
    uint8_t wanted;      /* the model's dtype for it */
    /* Parameters below a module whose names an outer one overrides, that are found neither by the
     * walk's name nor by the other. */
    uint64_t unfound;
    const char *first_unfound; /* borrowed from the description */
} description_notes;

/* m and units are borrowed, as below cat and part. */
fsdpck_status description_match_init(agree *a, const model *m, const unit_list *units,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
void description_match_release(agree *a);

/* Whether each rank has its own tensor of this name, which may stand behind outer keys, be a twin's
 * or, with 'state.' before and another part behind, an optimizer's. */
bool description_is_local(const agree *a, const char *name, size_t nbytes);
/* Names that are the same parameter's, this one left out, k from 0; NULL after the last. */
const char *description_alias(const agree *a, const char *fqn, size_t nbytes, unsigned k,
                              size_t *alias_nbytes);

fsdpck_status description_match_set(agree *a, const catalogue *cat, const uint8_t *part,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The tensor of this name, CAT_NONE. */
uint32_t description_match_find(const agree *a, const char *fqn, size_t nbytes);
/* Of a parameter or buffer of `module`, by the name that it has in state or by that of the walk. */
uint32_t description_match_find_in(const agree *a, uint32_t module, const char *fqn, size_t nbytes);

/* description_tie into `ties`, those of one tensor after each other. Two names that FSDP1 without
 * use_orig_params flattened twice, in two units, are none, as training lets them part; nor are
 * those that each rank has of its own. BADINPUT (TIE-DIFFERS) where two of another shape or dtype
 * are there. */
fsdpck_status description_match_ties(const agree *a, vec *ties,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* BADINPUT (MODEL-MISMATCH) with the first difference: a parameter or persistent buffer that the
 * checkpoint lacks (but for what FSDP ignores and, with a->drops, all that is not cut), one of another shape or, not both being floating,
 * of another dtype, a tensor that the model lacks. Nothing is compared where no tensor can be the
 * model's (optimizer files alone). A list of units says nothing of other tensors. */
fsdpck_status description_match_check(const agree *a, description_notes *notes,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For messages: "float32 [3, 4]", without a dtype where d is DTYPE_NONE. */
void description_print_shape(dtype d, unsigned ndim, const uint64_t *shape, char *text,
                             size_t capacity);
void description_print_tensor(const catalogue *c, uint32_t tensor, char *text, size_t capacity);

#endif
