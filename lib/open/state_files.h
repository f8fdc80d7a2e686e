/* state_files.h: files that a trainer writes beside the weights, such as optimizer.pt and trainer_state.json. */
#ifndef FSDPCK_OPEN_STATE_FILES_H
#define FSDPCK_OPEN_STATE_FILES_H

#include "open/checkpoint.h"

/* search_state.c: by the names that transformers, accelerate and their like give to what torch.save
 * writes beside the weights. */
bool trainer_state_has_name(const char *name);
bool trainer_state_is_file(const char *path);
/* The same of a checkpoint that is only a state, if nothing is beside it: extra_state/ of VeOmni, train/ of OLMo-core,
 * lr_scheduler/ of slime, dataloader/ and rng/ of NeMo Automodel. */
bool trainer_state_is_alone(const char *path);
void trainer_state_release(fsdpck_checkpoint *c);
/* state_files.c: lists in c->state_files, once, such files beside the weights that are not read as the checkpoint, and
 * TRAINER_STATE_JSON. */
fsdpck_status trainer_state_list(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether this file of `in`, the folder of the checkpoint or the one above, is read as the checkpoint. */
bool state_file_is_read(const fsdpck_checkpoint *c, const probe_input *in, const char *entry);
/* Opens such a file, without a message. */
fsdpck_status state_file_open(fsdpck_checkpoint *of, const found_state_file *f,
                              fsdpck_checkpoint **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* How often a scheduler of the learning rate made a step; -1: unknown, or one of ReduceLROnPlateau, which
 * counts evaluations. */
int64_t checkpoint_scheduler_step(fsdpck_checkpoint *c);
/* step_numbers.c: the object or tensor of this name, if it is one whole number; -1: none. */
int64_t checkpoint_number(fsdpck_checkpoint *c, const char *key);
/* trainer_state.json, which transformers writes last. */
#define TRAINER_STATE_JSON        "trainer_state.json"
#define TRAINER_STATE_JSON_NBYTES ((uint64_t)64 << 20)
typedef struct trainer_progress {
    int64_t step;      /* -1: unknown */
    double epoch;      /* as 1.5; -1: unknown */
    bool has_episodes; /* of trl's PPO: several steps of the optimizer for each of the training */
} trainer_progress;
/* step_manifest.c: of this file in the folder; false: unreadable. */
bool trainer_state_read_progress(const probe_input *in, trainer_progress *p);
/* step_records.c: of "checkpoint-5" (*named) around the folder of the checkpoint, such as "global_step5" of DeepSpeed. */
bool trainer_state_read_around(const fsdpck_checkpoint *c, trainer_progress *p, int64_t *named);
/* In a DCP folder of Lightning: the values that are not tensors. */
#define LIGHTNING_STATE "meta.pt"
/* side_json.c: whether it is that file, or another whose content is a JSON object. */
bool trainer_state_is_json(const char *name);
/* The same of a file of the model, which a loader of the weights reads: config.json, tokenizer.json. */
bool model_json_has_name(const char *name);
/* search_state.c: whether it is a file of a tokenizer that is not JSON, such as merges.txt; why a loader cannot read it, NULL if nothing is
 * known. */
bool tokenizer_file_has_name(const char *name);
const char *tokenizer_file_damage(const folder *dir, const char *name);
/* side_json.c: whether an object or list ends, without its numbers. */
bool json_text_has_end(const char *text, size_t nbytes);
/* Reads such an entry of the folder. *text: to be freed. BADINPUT if it is empty, was truncated or
 * overwritten in part, has a list in place of settings, or is another file of these, exchanged or copied. */
fsdpck_status trainer_state_read_json(const probe_input *in, const char *name, char **text,
                                      size_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
