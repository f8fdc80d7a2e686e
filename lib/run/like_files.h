/* like_files.h: the files of the model folder of --like, or of that of --config, that make the output ready
 * for a server.
 *
 *     RETURN_IF(like_files_find(&side, &like, &target, &log, err));   // instead of sidecars_find
 *     RETURN_IF(like_files_of_config(&side, "hf/config.json", &target, &log, err));   // after it
 *     ... sidecars_add, sidecars_copy, sidecars_release ...
 *
 * Only files of known kinds are copied: config.json and generation_config.json, the tokenizer, the chat
 * template, processors, and the Python files that `auto_map` names, with those that they import from
 * the folder. config.json gets the dtype of the target. The folder is untrusted: limits and links are
 * those of sidecars.h.
 */
#ifndef FSDPCK_RUN_LIKE_FILES_H
#define FSDPCK_RUN_LIKE_FILES_H

#include "run/like_output.h"
#include "run/sidecars.h"

/* BADINPUT (MAP-CONFIG), LIMIT. A file that is copied in general but cannot be is SIDE-UNREAD. */
fsdpck_status like_files_find(sidecars *s, const like_output *l, const catalogue *to,
                              const logger *log, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds `path` as config.json, unless `s` has one, or it has no model_type. If `path` is named config.json and
 * `s` has no files to be copied, the other files of its folder are added too. */
fsdpck_status like_files_of_config(sidecars *s, const char *path, const catalogue *to,
                                   const logger *log, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the names of the files that like_files_find copies, without config.json. */
fsdpck_status like_files_names(const like_output *l, strtab *names,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
