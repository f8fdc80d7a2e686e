/* units.h: shared by the files that implement fsdpck_model.h.
 *
 *     model_public.c   descriptions: opening, walking, finding; names; chunks and placements
 *     units_build.c    fsdpck_units_new: the units of FSDP1 and FSDP2 in one order; parameters in no unit
 *     units_totals.c     totals of the ranks
 *     units_public.c     borrowed views of units and parameters
 *     units_shards.c   the shard of a rank
 */
#ifndef FSDPCK_DESCRIBE_UNITS_H
#define FSDPCK_DESCRIBE_UNITS_H

#include "base/alloc.h"
#include "fsdpck_model.h"
#include "model/fsdp2.h"
#include "model/model.h"

struct fsdpck_model {
    budget metadata;
    model m;
    uint8_t *ignored; /* by first name: FSDP ignores the parameter */
    fsdpck_model_info info;
};

/* One unit, of either kind, in the order of traversal. */
typedef struct units_row {
    uint32_t module; /* MODEL_NONE if the description lists units */
    uint32_t index;  /* in units.flat or units.groups */
    bool fully_shard;
    bool is_root; /* outermost unit: FSDP1 does not reshard it after forward */
    uint32_t world_size;
    uint32_t first_shared, nshared; /* FSDP2: in units.shared */
} units_row;

/* FSDP2: an additional name of a unit's parameter. */
typedef struct units_shared {
    uint32_t name, same_as; /* indices in model.params */
} units_shared;

/* Bytes by rank of a group of one size: first as differences, then as totals. */
typedef struct units_group {
    uint64_t world_size;
    uint64_t *nbytes, *adam; /* world_size + 1 of each */
} units_group;

struct fsdpck_units {
    const fsdpck_model *of;
    budget *owner;
    unit_list flat;
    sharded_list groups;
    vec rows;       /* units_row */
    vec flat_names; /* uint32_t: by unit_param: name in the model, or MODEL_NONE */
    vec places;     /* uint32_t: by name: index in groups.params, or MODEL_NONE */
    vec in_unit;    /* uint8_t: by first name: whether a unit has the parameter */
    vec shared;     /* units_shared */
    vec totals;     /* units_group */
    uint64_t whole_grad_nbytes, whole_adam_nbytes; /* parameters in no unit */
    uint32_t main_group;                           /* model_main_group */
    fsdpck_units_info info;
};

/* A name as a wrapped model may have it, cleaned into `out`. */
fsdpck_status model_clean_name(const fsdpck_model *of, const char *name, size_t nbytes,
                               text_buf *out) FSDPCK_MUST_CHECK;

const units_row *units_row_at(const fsdpck_units *u, uint64_t unit);
uint32_t units_row_nparams(const fsdpck_units *u, const units_row *row);
const unit *units_flat_of(const fsdpck_units *u, const units_row *row);
/* FSDP2: index in model.params of parameter k, and the arguments that fsdp2.h requires for it. */
uint32_t units_group_param(const fsdpck_units *u, const units_row *row, uint32_t k);
fsdp2_spec units_spec(const fsdpck_units *u, const units_row *row, uint32_t param);

/* units_public.c */
void units_fill(const fsdpck_units *u, const units_row *row, fsdpck_unit *out);

/* Input j of a parameter's all-gather, and the number of inputs. */
fsdp2_input units_input_at(const fsdpck_units *u, const fsdp2_spec *s, uint32_t param, uint64_t j,
                           uint32_t *count);

/* units_totals.c: fills u->totals and u->info from the rows. LIMIT if bytes exceed 63 bits. */
fsdpck_status units_compute_totals(fsdpck_units *u, fsdpck_error *err) FSDPCK_MUST_CHECK;
void units_totals_release(fsdpck_units *u);

#endif
