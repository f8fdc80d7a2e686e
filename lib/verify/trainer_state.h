/* trainer_state.h: files of a trainer's state beside the weights, such as 'optimizer.pt'. No
 * conversion reads them, a resume does. */
#ifndef FSDPCK_VERIFY_TRAINER_STATE_H
#define FSDPCK_VERIFY_TRAINER_STATE_H

#include "open/checkpoint.h"
#include "open/state_files.h"

/* Opens the entry of a folder, which has such a name. ends_only: a zip with its end record is not
 * opened. OK also if it is not a file, or of a kind that is not read, such as a pickle of
 * pickle.dump with its end; otherwise the error of checkpoint_open. */
fsdpck_status trainer_state_check(fsdpck_context *ctx, const probe_input *in, const char *entry,
                                  bool ends_only, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* All such files of the folder, and the model's JSON files, except those in `read` (NULL: none), but with
 * LIGHTNING_STATE. The first that is damaged is BADINPUT (SIDE-UNREAD). Also IO and CANCELLED. */
fsdpck_status trainer_state_check_folder(fsdpck_context *ctx, const probe_input *in,
                                         const catalogue *read, bool ends_only,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds the names of such files, of the model's JSON files, and of others that are empty or were truncated, except
 * those in `read`. */
fsdpck_status trainer_state_names(const probe_input *in, const catalogue *read, strtab *names,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* RANK-NAME if files of ranks, or of the state and the weights, were exchanged or copied over one another. Weights may be copies of
 * weights. */
fsdpck_status trainer_state_warn_exchanged(const probe_input *in, const catalogue *read,
                                           const strtab *names, const logger *log,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Why the entry of such a name, or of a tokenizer, is not the file that it names: a link to nothing, an empty folder, a
 * pointer of git-lfs. NULL: it may be. */
const char *trainer_state_broken(const probe_input *in, const char *entry);

/* Whether the JSON file of the folder, or of one inside, belongs to the model. */
bool trainer_state_is_of_model(const char *entry);

/* Whether torch.save wrote the entry, under any name, and it can be opened. Not weights that have another form. */
bool trainer_state_is_saved(fsdpck_context *ctx, const probe_input *in, const char *entry);

#endif
