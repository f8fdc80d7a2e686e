/* dcp_planner_keys.h: planner_data of `.metadata`, which has the nested keys of each name. */
#ifndef FSDPCK_DCP_PLANNER_KEYS_H
#define FSDPCK_DCP_PLANNER_KEYS_H

#include "formats/dcp/dcp_catalogue.h"
#include "formats/format.h"

/* Nested keys, as a tuple of str and int; None for any other value of a planner. */
fsdpck_status dcp_planner_path(value_pool *pool, value given, value *path,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the keys give the name when joined with dots, as torch flattens a state dict. */
bool dcp_path_gives_name(const value_pool *pool, value path, const char *name, size_t nbytes);
/* Adds to b->unlisted the keys of one `.metadata` that none of its items has, and to b->keyless the
 * items without keys, if others have some. By FQN: seen, its items; paths, their keys or None. */
fsdpck_status dcp_note_unlisted(dcp_builder *b, const dcp_metadata *m, const uint8_t *seen,
                                const value *paths, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the last `.metadata`: DCP-KEY-LOST if none has an item of such a key; with assume_lost_keys,
 * and for items without keys, a warning. */
fsdpck_status dcp_check_unlisted(const dcp_builder *b, const open_request *req,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
