/* map_choose.h: the map for a model type and the names of a checkpoint, by the `for` line of each map.
 *
 *     map_choice c;
 *     RETURN_IF(map_choose(map_entries, "llama", inputs, count, &budget, &c, err));
 *     c.fits, c.equal
 *
 * A map fits if its line lists the model type and each of its names is that of an input. Of several,
 * the one that requires most names is chosen.
 */
#ifndef FSDPCK_MAP_MAP_CHOOSE_H
#define FSDPCK_MAP_MAP_CHOOSE_H

#include "map/map_adapter.h"
#include "map/map_table.h"

typedef struct map_choice {
    const map_entry *fits;  /* NULL: none */
    const map_entry *equal; /* a second one that requires as many names; NULL: none */
} map_choice;

fsdpck_status map_choose(const map_entry *entries, const char *model_type, const map_input *inputs,
                         size_t count, budget *owner, map_choice *choice,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the `for` line of a map lists the model type. */
fsdpck_status map_entry_is_for(const map_entry *e, const char *model_type, bool *is_for,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends "NAME, NAME": the maps whose `for` line lists names of the inputs alone, and the model type. With
 * the type "", unknown, maps with `keep` do not fit: most of their names are those of all models. */
fsdpck_status map_print_fitting(const map_entry *entries, const char *model_type,
                                const map_input *inputs, size_t count, budget *owner, text_buf *out,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends "NAME for PATTERN, PATTERN; NAME for ..." of all maps for the model type; if that has more than
 * `most` bytes, "one of NAME, NAME" instead. */
fsdpck_status map_print_purposes(const map_entry *entries, const char *model_type, size_t most,
                                 text_buf *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* False if config.json, which set the variables, names a model type that `m` is not for, and sets the
 * warning (MAP-MODEL), with the built-in maps for the type. `name` is that of the map. */
bool map_check_model(const tensor_map *m, const char *name, fsdpck_error *what);

#endif
