/* fsdpck_training.h: what a checkpoint tells of the training that saved it.
 *
 *     fsdpck_step step = FSDPCK_INIT(fsdpck_step);
 *     for (size_t i = 0; fsdpck_get_step(src, i, &step); i++)
 *         printf("%lld, by %s\n", (long long)step.step, step.source);
 *
 *     fsdpck_state_file file = FSDPCK_INIT(fsdpck_state_file);
 *     for (size_t i = 0; fsdpck_get_state_file(src, i, &file); i++)
 *         puts(file.name);
 *
 * Texts belong to the checkpoint, until it is closed.
 */
#ifndef FSDPCK_TRAINING_H
#define FSDPCK_TRAINING_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fsdpck_checkpoint;

/* What a folder of Megatron-Core records of the run that saved it. Numbers are -1 and texts "" where
 * it does not. */
typedef struct fsdpck_megatron {
    size_t struct_nbytes;
    const char *checkpoint_version; /* "3.0" */
    const char *optimizer;          /* form of the optimizer's state, such as "fully_reshardable" */
    int64_t iteration;              /* number of the training step */
    int64_t world_size;             /* ranks that saved it */
    /* Ranks among which one kind of parallelism divides the work. */
    int64_t tensor_parallel, pipeline_parallel, expert_parallel, context_parallel;
    int is_unread; /* the record exists, but cannot be read */
} fsdpck_megatron;

/* Returns 0 if the checkpoint has no such record. Reads a file or an object the first time. */
FSDPCK_API int fsdpck_get_megatron(struct fsdpck_checkpoint *ckpt, fsdpck_megatron *megatron);

/* A training step that the checkpoint records. */
typedef struct fsdpck_step {
    size_t struct_nbytes;
    int64_t step;       /* not negative */
    const char *source; /* "object 'train_state.step'", "name of the folder", ... */
} fsdpck_step;

/* Record number `index` of the training step, the most reliable first: objects and tensors of the
 * trainer, trainer_state.json, the first step in the optimizer's state, the name of the folder (info.step).
 * They differ if a folder was renamed, or if the optimizer skipped or accumulated steps. Reads these
 * records at the first call; leaves out those that it cannot read. Returns 0 after the last. */
FSDPCK_API int fsdpck_get_step(struct fsdpck_checkpoint *ckpt, size_t index, fsdpck_step *step);

/* What a file of a trainer's state holds, by its content. */
typedef enum fsdpck_state_kind {
    FSDPCK_STATE_UNREAD,    /* of a kind that is not read, or damaged: fsdpck verify tells which */
    FSDPCK_STATE_OTHER,     /* none of the following */
    FSDPCK_STATE_OPTIMIZER, /* param_groups */
    FSDPCK_STATE_SCHEDULER, /* of the learning rate */
    FSDPCK_STATE_RNG,       /* states of random number generators */
    FSDPCK_STATE_SCALER,    /* of gradients, for float16 */
    FSDPCK_STATE_PROGRESS,  /* trainer_state.json */
    FSDPCK_STATE_ARGUMENTS  /* training_args.bin */
} fsdpck_state_kind;

/* A file of a trainer's state beside the weights, such as optimizer.pt: no conversion reads it. */
typedef struct fsdpck_state_file {
    size_t struct_nbytes;
    const char *path, *name;         /* `name`: below the step's folder */
    uint64_t nbytes;                 /* of the file */
    fsdpck_state_kind kind;          /* by its content, not its name */
    uint64_t tensors, tensor_nbytes; /* in it */
    int64_t step;                    /* that it records; -1: none */
} fsdpck_state_file;

/* File number `index`, in the order of the folder. Returns 0 after the last. Reads the metadata of each
 * file at its first call. */
FSDPCK_API int fsdpck_get_state_file(struct fsdpck_checkpoint *ckpt, size_t index,
                                     fsdpck_state_file *file);

#ifdef __cplusplus
}
#endif

#endif
