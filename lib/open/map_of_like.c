/* map_of_like.c: the tensor maps for the names of a checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "map/map_choose.h"
#include "open/checkpoint.h"
#include "open/model_config.h"
#include "open/model_type.h"

#define NAMES_SHOWN 3u

/* How many names of the folder are in the checkpoint. */
static size_t count_equal(const map_inputs *l, const fsdpck_checkpoint *like)
{
    size_t equal = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&like->cat); i++) {
        const uint32_t name = catalogue_tensor(&like->cat, i)->name;
        equal += strtab_find(&l->names, catalogue_name(&like->cat, name),
                             catalogue_name_nbytes(&like->cat, name)) != STRTAB_NONE;
    }
    return equal;
}

/* are_new: the names that the folder of --like lacks, else all. */
static void put_names(const map_inputs *l, const fsdpck_checkpoint *like, bool are_new,
                      text_buf *names)
{
    unsigned shown = 0;
    for (size_t i = 0; i < l->inputs.count && shown < NAMES_SHOWN; i++) {
        const map_input *in = VEC_AT(&l->inputs, const map_input, i);
        if (are_new && catalogue_find(&like->cat, in->name, in->nbytes) != CAT_NONE)
            continue;
        text_printf(names, ", '%s'", in->name);
        shown++;
    }
}

static fsdpck_status refuse_none(const map_inputs *l, const fsdpck_checkpoint *like,
                                 const model_config *config, fsdpck_error *err)
{
    text_buf maps = {0}, names = {0};
    fsdpck_status st =
        map_print_purposes(map_entries, config->model_type, sizeof err->expected - 1, &maps, err);
    if (st == FSDPCK_OK && maps.nbytes == 0) {
        text_puts(&maps, "a model type of a built-in map; fsdpck maps NAME prints them");
        st = text_check(&maps, err);
    }
    put_names(l, like, true, &names);
    if (names.nbytes == 0)
        put_names(l, like, false, &names);
    if (st == FSDPCK_OK)
        st = text_check(&names, err);
    if (st == FSDPCK_OK && config->model_type[0] == '\0')
        st = FAIL_WITH(err, UNSUPPORTED, EXPORT_MAP,
                       ("no tensor map can be chosen: the folder of --like has no config.json with "
                        "a model_type"),
                       (path, like->path), (expected, "%s", maps.text),
                       (next, "give --map NAME|FILE; fsdpck-map(5) describes maps"));
    else if (st == FSDPCK_OK)
        st = FAIL_WITH(
            err, UNSUPPORTED, EXPORT_MAP,
            ("no tensor map converts the source's names to model type '%s'", config->model_type),
            (path, like->path), (expected, "%s", maps.text),
            (found, "model type '%s'%s", config->model_type, names.text == NULL ? "" : names.text),
            (next,
             "%sgive --map NAME|FILE; fsdpck maps NAME prints a map, fsdpck-map(5) describes them",
             config->is_quantized && !like->unquantized
                 ? "the folder of --like is quantized: if the source is not, give "
                   "--dequantize; "
                   "otherwise, "
                 : ""));
    text_release(&maps);
    text_release(&names);
    return st;
}

static fsdpck_status choose(const map_inputs *l, const fsdpck_checkpoint *of,
                            const fsdpck_checkpoint *like, size_t equal, like_map *chosen,
                            fsdpck_error *err)
{
    map_choice c;
    model_config config;
    fsdpck_status st = model_config_read(&like->probe.dir, &config, err);
    if (st == FSDPCK_OK)
        st = map_choose(map_entries, config.model_type, l->inputs.items, l->inputs.count, NULL, &c,
                        err);
    if (st == FSDPCK_OK && c.equal != NULL) {
        st = FAIL_WITH(err, USAGE, EXPORT_MAP,
                       ("tensor maps '%s' and '%s' fit equally", c.fits->name, c.equal->name),
                       (path, like->path), (found, "model type '%s'", config.model_type),
                       (next, "choose one of them with --map"));
    } else if (st == FSDPCK_OK && c.fits != NULL) {
        chosen->name = c.fits->name;
        memcpy(chosen->model_type, config.model_type, sizeof chosen->model_type);
    } else if (st == FSDPCK_OK && 2 * equal < catalogue_tensor_count(&like->cat)) {
        /* With more names, the comparison of the output with the folder names the others. */
        st = refuse_none(l, like, &config, err);
        model_type_name_other(of, like, err);
    }
    model_config_release(&config);
    return st;
}

fsdpck_status checkpoint_check_like(const fsdpck_checkpoint *like, fsdpck_error *err)
{
    if (like->probe.is_folder && like->format->of_model)
        return checkpoint_check_lost(like, false, err);
    return FAIL_WITH(err, UNSUPPORTED, NONE,
                     ("--like requires a Hugging Face folder of safetensors files"),
                     (path, like->path), (found, "format '%s'", like->format->name),
                     (next, "give the folder with config.json and the weights; if these are in "
                            "another format, convert them to safetensors first: fsdpck "
                            "consolidate BASE NEW/"));
}

fsdpck_status checkpoint_choose_map(fsdpck_checkpoint *c, const fsdpck_checkpoint *like,
                                    like_map *chosen, fsdpck_error *err)
{
    map_inputs l;
    *chosen = (like_map){0};
    RETURN_IF(checkpoint_check_like(like, err));
    RETURN_IF(checkpoint_load_inner(c, err));
    fsdpck_status st = map_inputs_list(c, &l, err);
    const size_t equal = st == FSDPCK_OK ? count_equal(&l, like) : 0;
    if (st == FSDPCK_OK && equal < catalogue_tensor_count(&like->cat))
        st = choose(&l, c, like, equal, chosen, err);
    map_inputs_release(&l);
    return st;
}

fsdpck_status checkpoint_check_like_map(fsdpck_checkpoint *c, const fsdpck_checkpoint *like,
                                        const char *map, fsdpck_error *err)
{
    const map_entry *given = map_find(map);
    map_choice choice = {0};
    model_config config;
    map_inputs l;
    bool is_for;
    RETURN_IF(checkpoint_check_like(like, err));
    if (given == NULL)
        return FSDPCK_OK;
    RETURN_IF(checkpoint_load_inner(c, err));
    fsdpck_status st = map_inputs_list(c, &l, err);
    config = (model_config){0};
    if (st == FSDPCK_OK)
        st = model_config_read(&like->probe.dir, &config, err);
    if (st == FSDPCK_OK)
        st = map_entry_is_for(given, config.model_type, &is_for, err);
    if (st == FSDPCK_OK && !is_for)
        st = map_choose(map_entries, config.model_type, l.inputs.items, l.inputs.count, NULL,
                        &choice, err);
    if (st == FSDPCK_OK && choice.fits != NULL)
        st = FAIL_WITH(
            err, USAGE, EXPORT_MAP,
            ("map '%s' is not for model type '%s' of the folder of --like", map, config.model_type),
            (path, like->path), (expected, "map '%s', which fits the names", choice.fits->name),
            (next, "give --map %s, or omit --map; a copy of the map in a file is applied as it is",
             choice.fits->name));
    model_config_release(&config);
    map_inputs_release(&l);
    return st;
}

enum { JOINED_TRIED_MAX = 64 };

/* Whether "NAME.gate_up_proj" [E, 2 I, H] and "NAME.down_proj" [E, H, I] are among the tensors. Other models have
 * the former as [E, H, 2 I]. */
static bool has_joined_experts(const map_inputs *l, const catalogue *cat)
{
    static const char joined[] = ".experts.gate_up_proj", down[] = "down_proj";
    unsigned tried = 0; /* each is compared with all names */
    for (size_t i = 0; i < l->inputs.count && tried < JOINED_TRIED_MAX; i++) {
        const map_input *in = VEC_AT(&l->inputs, const map_input, i);
        char name[512];
        if (!text_ends_with(in->name, in->nbytes, joined) || in->nbytes >= sizeof name)
            continue;
        tried++;
        const int stem = (int)(in->nbytes - strlen("gate_up_proj"));
        const int n = snprintf(name, sizeof name, "%.*s%s", stem, in->name, down);
        for (size_t k = 0; k < l->inputs.count; k++) {
            const map_input *other = VEC_AT(&l->inputs, const map_input, k);
            if (other->nbytes != (size_t)n || memcmp(other->name, name, other->nbytes) != 0 ||
                catalogue_tensor(cat, in->tensor)->ndim != 3 ||
                catalogue_tensor(cat, other->tensor)->ndim != 3)
                continue;
            const uint64_t *a = catalogue_shape(cat, in->tensor),
                           *b = catalogue_shape(cat, other->tensor);
            return a[2] == b[1] && a[1] / 2 == b[2] && a[1] % 2 == 0;
        }
    }
    return false;
}

fsdpck_status checkpoint_print_maps(fsdpck_checkpoint *c, text_buf *out, bool *by_type,
                                    bool *joined, fsdpck_error *err)
{
    map_inputs l;
    char type[64];
    *by_type = *joined = false;
    if (c->map != NULL)
        return FSDPCK_OK;
    /* A config.json that cannot be read states no type. */
    if (model_type_read(c, type, NULL) != FSDPCK_OK)
        type[0] = '\0';
    *by_type = type[0] != '\0';
    fsdpck_status st = map_inputs_list(c, &l, err);
    if (st == FSDPCK_OK)
        st = map_print_fitting(map_entries, type, l.inputs.items, l.inputs.count, NULL, out, err);
    if (st == FSDPCK_OK && out->nbytes == 0 && !*by_type)
        *joined = has_joined_experts(&l, &c->cat);
    map_inputs_release(&l);
    return st;
}
