/* verify_internal.h: shared by the files that implement fsdpck_verify.
 *
 *     verify.c          opens the checkpoint and runs the levels
 *     verify_adapters.c      adapters of LoRA
 *     verify_steps.c         recorded steps that differ
 *     verify_unread_state.c  files of a trainer beside the weights
 *     verify_ties.c          an output projection that config.json ties to the embedding
 *     verify_megatron.c      metadata.json and integrity.json of Megatron-Core
 *     verify_like.c     a model folder that the checkpoint must equal in all but the values
 *     verify_near.c     its values against those of that folder; near_roles.c, near_result.c
 *     verify_convert.c  conditions that consolidate and reshard would refuse
 *     verify_result.c   results for the caller
 */
#ifndef FSDPCK_VERIFY_VERIFY_INTERNAL_H
#define FSDPCK_VERIFY_VERIFY_INTERNAL_H

#include "check/check.h"
#include "fsdpck_verify.h"
#include "open/checkpoint.h"
#include "run/map_proof.h"
#include "verify/expect_internal.h"

struct fsdpck_verify {
    fsdpck_checkpoint *src;   /* NULL: it could not be opened */
    const char *path;         /* during the check */
    struct verify_like *like; /* during the check; NULL without --like */
    fsdpck_verify_options options;
    check_level level;
    size_t first_warning; /* index in the context of this check's first warning */
    findings found;
    findings downgraded; /* errors during open that --set downgrades */
    check_result result;
    manifest_check *manifest; /* during the check; NULL without a manifest */
    check_file *files;        /* by file of the catalogue; NULL: no checksums wanted */
    manifest_check_result manifest_result;
    uint64_t deadline_ns;
    map_proof_result proved;
    struct near_roles *near;                 /* NULL without --like */
    uint64_t state_checked, state_unchecked; /* files of a trainer's state beside the weights */
    char state_first[128];                   /* the first that is unchecked, escaped */
    uint64_t nested_unchecked;               /* folders below with checkpoints of their own */
    char nested_first[128];
    char not_seen[1024];
};

bool verify_is_sample(const fsdpck_verify *v);
/* Whether bytes were skipped: a sample, or time ran out. */
bool verify_is_partial(const fsdpck_verify *v);

/* Reports warnings of the context since the last call as findings. */
void verify_add_warnings(fsdpck_verify *v, fsdpck_context *ctx);

/* At level checksum, unless partial: reports copies of a chunk that differ. */
fsdpck_status verify_copies(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Reports faults of adapters of LoRA. */
fsdpck_status verify_adapters(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A folder of PEFT against the weights of its base model (LORA-SHAPE). */
fsdpck_status verify_adapter_like(fsdpck_verify *v, fsdpck_checkpoint *base,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* MODULE-LOST: verify_modules.c. */
fsdpck_status verify_modules(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* TIE-DIFFERS without --like: verify_ties.c. Collective. */
fsdpck_status verify_ties(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ZERO-STEP. */
void verify_steps(fsdpck_verify *v);
/* Reports faults of what Megatron-Core writes beside the tensors. */
fsdpck_status verify_megatron(fsdpck_verify *v, fsdpck_context *ctx,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
typedef fsdpck_status (*verify_file_fn)(fsdpck_context *ctx, const char *path,
                                        const fsdpck_verify_options *options, fsdpck_verify **out,
                                        fsdpck_error *err);
/* Checks files of a trainer's state beside the weights at the same level, each by `verify_file`. */
fsdpck_status verify_unread_state(fsdpck_verify *v, fsdpck_context *ctx, verify_file_fn verify_file,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From level coverage on: reports what prevents a conversion with default options. May load objects
 * into the catalogue, so it must be last. */
fsdpck_status verify_conversions(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills v->not_seen: defects that the check cannot detect. */
void verify_set_not_seen(fsdpck_verify *v);

#endif
