/* map_of_like.c: the tensor map that leads from the names of a checkpoint to those of a model folder. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "map/map_choose.h"
#include "open/checkpoint.h"
#include "open/model_config.h"

#define NAMES_SHOWN 3u

/* Whether no map is needed: at least half of the folder's names are in the checkpoint. If not all are,
 * the comparison of the output with the folder names the others. */
static bool has_names_of(const map_inputs *l, const fsdpck_checkpoint *like)
{
    size_t equal = 0;
    for (size_t i = 0; i < l->inputs.count; i++) {
        const map_input *in = VEC_AT(&l->inputs, const map_input, i);
        equal += catalogue_find(&like->cat, in->name, in->nbytes) != CAT_NONE;
    }
    return 2 * equal >= catalogue_tensor_count(&like->cat);
}

static fsdpck_status refuse_none(const map_inputs *l, const fsdpck_checkpoint *like,
                                 const model_config *config, fsdpck_error *err)
{
    text_buf maps = {0}, names = {0};
    fsdpck_status st = map_print_purposes(map_entries, NULL, &maps, err);
    for (size_t i = 0; i < l->inputs.count && i < NAMES_SHOWN; i++)
        text_printf(&names, ", '%s'", VEC_AT(&l->inputs, const map_input, i)->name);
    if (st == FSDPCK_OK)
        st = text_check(&names, err);
    if (st == FSDPCK_OK && config->model_type[0] == '\0')
        st = FAIL_WITH(err, UNSUPPORTED, EXPORT_MAP,
                       ("no tensor map can be chosen: --like has no config.json with a model_type"),
                       (path, like->path), (expected, "%s", maps.text),
                       (next, "give --map NAME|FILE; fsdpck-map(5) describes maps"));
    else if (st == FSDPCK_OK)
        st = FAIL_WITH(
            err, UNSUPPORTED, EXPORT_MAP,
            ("no tensor map leads from these names to model type '%s'", config->model_type),
            (path, like->path), (expected, "%s", maps.text),
            (found, "model type '%s'%s", config->model_type, names.text == NULL ? "" : names.text),
            (next, "give --map NAME|FILE; fsdpck-map(5) describes maps"));
    text_release(&maps);
    text_release(&names);
    return st;
}

static fsdpck_status choose(const map_inputs *l, const fsdpck_checkpoint *like,
                            const model_config *config, like_map *chosen, fsdpck_error *err)
{
    map_choice c;
    RETURN_IF(map_choose(map_entries, config->model_type, l->inputs.items, l->inputs.count, NULL,
                         &c, err));
    if (c.fits == NULL)
        return refuse_none(l, like, config, err);
    if (c.equal != NULL)
        return FAIL_WITH(err, USAGE, EXPORT_MAP,
                         ("tensor maps '%s' and '%s' fit equally", c.fits->name, c.equal->name),
                         (path, like->path), (found, "model type '%s'", config->model_type),
                         (next, "choose one of them with --map"));
    chosen->name = c.fits->name;
    memcpy(chosen->model_type, config->model_type, sizeof chosen->model_type);
    return FSDPCK_OK;
}

fsdpck_status checkpoint_choose_map(fsdpck_checkpoint *c, const fsdpck_checkpoint *like,
                                    like_map *chosen, fsdpck_error *err)
{
    map_inputs l;
    model_config config = {0};
    *chosen = (like_map){0};
    RETURN_IF(checkpoint_load_inner(c, err));
    fsdpck_status st = map_inputs_list(c, &l, err);
    if (st == FSDPCK_OK && !has_names_of(&l, like)) {
        st = model_config_read(&like->probe.dir, &config, err);
        if (st == FSDPCK_OK)
            st = choose(&l, like, &config, chosen, err);
    }
    model_config_release(&config);
    map_inputs_release(&l);
    return st;
}
