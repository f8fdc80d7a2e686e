/* state_list.h: the files of a trainer's state in a folder and in its folders of such files, by their names:
 *
 *     strtab names;
 *     strtab_init(&names, NULL);
 *     RETURN_IF(state_list_read(in, &names, err));   // "optimizer.pt", "extra_state/rank_0.pt"
 *     strtab_release(&names);
 */
#ifndef FSDPCK_OPEN_STATE_LIST_H
#define FSDPCK_OPEN_STATE_LIST_H

#include "open/checkpoint.h"

/* What torch.save or pickle.dump wrote, below the folder `in`. */
fsdpck_status state_list_read(const probe_input *in, strtab *names,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether state_list_read lists the files of the folder `name` inside `in`, and the folder has no other weights. */
bool state_list_has_folder(const probe_input *in, const char *name);

/* Folder number `i` whose files it lists; NULL after the last. *of_each_process: its files are; otherwise of the ranks of
 * one dim of the mesh. */
const char *state_list_folder(const probe_input *in, size_t i, bool *of_each_process);

#endif
