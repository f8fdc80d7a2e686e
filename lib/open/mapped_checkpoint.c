/* mapped_checkpoint.c: a checkpoint under the names and layouts that a tensor map gives its model part. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/similar.h"
#include "io/file.h"
#include "io/pipe_read.h"
#include "map/map_choose.h"
#include "open/checkpoint.h"
#include "open/model_config.h"
#include "open/recorded_numbers.h"

/* Real maps and configurations have some KB. */
#define MAP_FILE_NBYTES_MAX ((uint64_t)16 << 20)

/* --- the map --- */

static bool is_path(const char *text)
{
    return strchr(text, '/') != NULL || text_ends_with(text, strlen(text), ".map");
}

/* The built-in map with the most similar name; NULL: none. */
static const char *similar_map(const char *name)
{
    const char *best = NULL;
    size_t least = similar_limit(name);
    for (const map_entry *e = map_entries; e->name != NULL; e++) {
        const size_t distance = similar_distance(name, e->name);
        if (distance < least) {
            least = distance;
            best = e->name;
        }
    }
    return best;
}

static fsdpck_status fail_no_map(const char *name, fsdpck_error *err)
{
    const char *similar = similar_map(name);
    if (similar != NULL)
        return FAIL_WITH(err, USAGE, NONE, ("unknown map '%s'", name),
                         (expected, "the name of a built-in map, or a file"),
                         (next, "did you mean '%s'? List the maps with: fsdpck maps", similar));
    return FAIL_WITH(err, USAGE, NONE, ("unknown map '%s'", name),
                     (expected, "the name of a built-in map, or a file"),
                     (next, "list the maps with: fsdpck maps; or give a file whose name "
                            "contains '/' or ends in '.map'"));
}

static fsdpck_status read_map_file(fsdpck_checkpoint *c, const char *path, tensor_map **m,
                                   fsdpck_error *err)
{
    /* The way back of a proof has the same map. */
    const fsdpck_checkpoint *of = c;
    while (of != NULL && (of->map_text == NULL || strcmp(of->map_name, path) != 0))
        of = of->base;
    fsdpck_status st = FSDPCK_OK;
    if (of == NULL && pipe_is_at(path) && group_size(c->ctx->group) > 1)
        return FAIL_WITH(err, USAGE, NONE, ("a map cannot be a pipe if several processes read it"),
                         (path, path), (next, "write the map into a file"));
    if (of == NULL) {
        st = (pipe_is_at(path)
                  ? pipe_read_whole(path, MAP_FILE_NBYTES_MAX, &c->map_text, &c->map_nbytes, err)
                  : file_read_whole(NULL, path, MAP_FILE_NBYTES_MAX, &c->map_text, &c->map_nbytes,
                                    err));
        of = c;
    }
    if (st == FSDPCK_OK)
        st = map_read(of->map_text, of->map_nbytes, &c->metadata, m, err);
    if (st != FSDPCK_OK)
        error_path(err, path);
    return st;
}

void checkpoint_map_release(fsdpck_checkpoint *c)
{
    map_free(c->map);
    map_free(c->map_forward);
    free(c->map_name);
    free(c->map_config);
    free(c->map_text);
    text_release(&c->map_variables);
}

static fsdpck_status read_config(tensor_map *m, const char *path, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    fsdpck_status st = file_read_whole(NULL, path, MAP_FILE_NBYTES_MAX, &text, &nbytes, err);
    if (st == FSDPCK_OK)
        st = map_read_config(m, text, nbytes, err);
    free(text);
    if (st != FSDPCK_OK)
        error_path(err, path);
    return st;
}

/* config.json of a model folder. */
static fsdpck_status read_config_of(tensor_map *m, const fsdpck_checkpoint *of, fsdpck_error *err)
{
    model_config config;
    fsdpck_status st = model_config_read(&of->probe.dir, &config, err);
    if (st == FSDPCK_OK && config.text != NULL) {
        st = map_read_config(m, config.text, config.nbytes, err);
        if (st != FSDPCK_OK)
            error_path(err, of->path);
    }
    model_config_release(&config);
    return st;
}

/* A map with the values of its variables. */
static fsdpck_status read_one_map(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                  tensor_map **m, fsdpck_error *err)
{
    /* The model folder: the one that the output will equal, or the source of an import. */
    const fsdpck_checkpoint *of = o->map_import ? c->base : o->like;
    const map_entry *e = map_find(o->map);
    if (e == NULL && !is_path(o->map))
        return fail_no_map(o->map, err);
    RETURN_IF(e != NULL ? map_read(e->text, e->nbytes, &c->metadata, m, err)
                        : read_map_file(c, o->map, m, err));
    for (size_t i = 0; i < o->map_set_count; i++)
        RETURN_IF(map_set_variable(*m, o->map_set[i], err));
    if (o->map_config != NULL)
        return read_config(*m, o->map_config, err);
    if (of == NULL || !of->probe.is_folder)
        return FSDPCK_OK;
    RETURN_IF(read_config_of(*m, of, err));
    const fsdpck_status st = map_check_set(*m, err);
    if (st != FSDPCK_OK)
        error_path(err, of->path);
    return st;
}

static fsdpck_status invert_map(fsdpck_checkpoint *c, const char *name, fsdpck_error *err)
{
    const fsdpck_status st = map_invert(c->map, c->map_forward, err);
    if (st != FSDPCK_OK)
        error_path(err, name);
    return st;
}

static fsdpck_status read_map(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                              fsdpck_error *unread, fsdpck_error *err)
{
    RETURN_IF(read_one_map(c, o, &c->map, err));
    if (!o->map_import)
        RETURN_IF(recorded_numbers_apply(c, o, unread, err));
    if (o->map_import) {
        RETURN_IF(read_one_map(c, o, &c->map_forward, err));
        RETURN_IF(invert_map(c, o->map, err));
    }
    for (size_t i = 0; i < map_variable_count(c->map); i++) {
        bool is_set;
        uint64_t number;
        const char *name = map_variable(c->map, i, &is_set, &number);
        if (is_set)
            text_printf(&c->map_variables, "%s%s=%" PRIu64,
                        c->map_variables.nbytes == 0 ? "" : ", ", name, number);
    }
    return text_check(&c->map_variables, err);
}

/* --- the tensors --- */

fsdpck_status map_inputs_list(fsdpck_checkpoint *base, map_inputs *l, fsdpck_error *err)
{
    text_buf name = {0};
    *l = (map_inputs){.ids = VEC_OF(uint32_t, &base->metadata),
                      .inputs = VEC_OF(map_input, &base->metadata)};
    strtab_init(&l->names, &base->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < base->parts.tensor_count && st == FSDPCK_OK; i++) {
        const cat_tensor *t = catalogue_tensor(&base->cat, i);
        const bool inside = (t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED);
        uint32_t id;
        if (base->parts.tensor_part[i] != PART_MODEL || inside)
            continue;
        name.nbytes = 0;
        checkpoint_parts_append_name(&base->parts, PART_MODEL, true, true,
                                     catalogue_name(&base->cat, t->name),
                                     catalogue_name_nbytes(&base->cat, t->name), &name);
        text_append(&name, "", 0);
        st = text_check(&name, err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&l->names, name.text, name.nbytes, &id, err);
        if (st == FSDPCK_OK)
            st = vec_add(&l->ids, &id, err);
        if (st == FSDPCK_OK)
            st = vec_add(&l->inputs, &(map_input){.tensor = i}, err);
    }
    text_release(&name);
    for (size_t i = 0; i < l->inputs.count && st == FSDPCK_OK; i++) {
        map_input *in = VEC_AT(&l->inputs, map_input, i);
        const uint32_t id = *VEC_AT(&l->ids, const uint32_t, i);
        in->name = strtab_text(&l->names, id);
        in->nbytes = strtab_nbytes(&l->names, id);
    }
    return st;
}

void map_inputs_release(map_inputs *l)
{
    strtab_release(&l->names);
    vec_release(&l->ids);
    vec_release(&l->inputs);
}

/* Ties by the model description, where both tensors keep their layouts. */
static fsdpck_status keep_ties(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; i < c->base->ties.count; i++) {
        const tied_pair *t = VEC_AT(&c->base->ties, const tied_pair, i);
        const tied_pair made = {map_adapter_renamed(c->mapper, t->first),
                                map_adapter_renamed(c->mapper, t->alias)};
        if (made.first != CAT_NONE && made.alias != CAT_NONE)
            RETURN_IF(vec_add(&c->ties, &made, err));
    }
    return FSDPCK_OK;
}

/* The trainer's model has the tensor, and would not load. */
static void warn_untied(const fsdpck_checkpoint *c)
{
    const char *names = map_adapter_untied(c->mapper);
    if (names[0] != '\0')
        log_warn(
            &c->ctx->log, FSDPCK_FINDING_MAP_SOURCE,
            "check that the folder is complete; if the model ties its embeddings, give --config "
            "with a config.json that contains \"tie_word_embeddings\": true",
            "no tensor becomes %s, and config.json does not tie the embeddings", names);
}

bool checkpoint_check_model(const fsdpck_checkpoint *c, fsdpck_error *what)
{
    return map_check_model(c->map, c->map_name, what);
}

/* A second map, of an import, has the same model type. */
static void warn_model(const fsdpck_checkpoint *c)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (c->base->map == NULL && !checkpoint_check_model(c, &what))
        log_warn(&c->ctx->log, what.finding, what.next, "%s", what.message);
}

/* Without them, what `refuse` lists is not known. */
static void warn_unread(const fsdpck_checkpoint *c, const fsdpck_error *unread)
{
    log_warn(
        &c->ctx->log, unread->finding, unread->next,
        "arguments of the training cannot be read, and are not compared with the map: '%s': %s",
        unread->path, unread->message);
}

/* --- config.json of another model --- */

static fsdpck_status fail_size(const char *key, const char *tensor, const char *counted,
                               uint64_t expected, uint64_t found, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, EXPORT_CONFIG, ("'%s' of config.json contradicts the tensors", key),
        (tensor, tensor), (expected, "%" PRIu64 ", the number of %s", expected, counted),
        (found, "%" PRIu64, found), (next, "give the config.json of this model with --config"));
}

/* The number in "model.layers.N.", plus 1; 0 for other names. */
static uint64_t layers_with(const char *name, size_t nbytes)
{
    static const char prefix[] = "model.layers.";
    size_t at = strlen(prefix);
    uint64_t number = 0;
    if (nbytes <= at || memcmp(name, prefix, at) != 0)
        return 0;
    for (; at < nbytes && at < strlen(prefix) + 9 && name[at] >= '0' && name[at] <= '9'; at++)
        number = 10 * number + (uint64_t)(name[at] - '0');
    return at > strlen(prefix) && at < nbytes && name[at] == '.' ? number + 1 : 0;
}

/* Layers that predict further tokens may follow those of num_hidden_layers. at_most: other models have
 * no further layers. */
static fsdpck_status check_layers(const fsdpck_checkpoint *c, const catalogue *hf, uint64_t stated,
                                  bool at_most, fsdpck_error *err)
{
    uint64_t layers = 0;
    const char *last = "";
    for (uint32_t i = 0; i < catalogue_tensor_count(hf); i++) {
        const uint32_t name = catalogue_tensor(hf, i)->name;
        const uint64_t with =
            layers_with(catalogue_name(hf, name), catalogue_name_nbytes(hf, name));
        if (with > layers) {
            layers = with;
            last = catalogue_name(hf, name);
        }
    }
    if (stated == 0 || layers == 0 || layers == stated ||
        (layers > stated && (!at_most || map_counts_layers(c->map))))
        return FSDPCK_OK;
    if (layers > stated)
        return fail_size("num_hidden_layers", last, "layers", layers, stated, err);
    return FAIL_WITH(err, BADINPUT, EXPORT_CONFIG,
                     ("'num_hidden_layers' of config.json contradicts the tensors"), (tensor, last),
                     (expected, "%" PRIu64 ", the number of layers", layers),
                     (found, "%" PRIu64, stated),
                     (next, "check that the checkpoint is complete, or give the config.json of "
                            "this model with --config"));
}

/* A vocabulary may have got further words; its size is no cause of wrong tensors. */
static void warn_vocabulary(const fsdpck_checkpoint *c, uint64_t stated, uint64_t rows)
{
    if (stated != 0 && stated != rows)
        log_warn(&c->ctx->log, FSDPCK_FINDING_EXPORT_CONFIG,
                 "check that config.json belongs to this model; a model made from it cannot load "
                 "the tensors",
                 "'vocab_size' of config.json is %" PRIu64 ", but the embedding has %" PRIu64
                 " rows",
                 stated, rows);
}

/* The rows of the output layer of a language model are the words of its vocabulary. Trainers may name that of a
 * classifier as they name the former; in transformers it is score.weight. */
static fsdpck_status check_head(const fsdpck_checkpoint *c, uint32_t embedding, fsdpck_error *err)
{
    static const char head[] = "lm_head.weight";
    const uint32_t i = catalogue_find(&c->cat, head, strlen(head));
    if (i == CAT_NONE || catalogue_tensor(&c->cat, i)->ndim != 2)
        return FSDPCK_OK;
    const uint64_t rows = catalogue_shape(&c->cat, i)[0],
                   words = catalogue_shape(&c->cat, embedding)[0];
    if (rows == words || rows == map_sizes(c->map).vocab_size)
        return FSDPCK_OK;
    const uint32_t line = map_adapter_line(c->mapper, i);
    return FAIL_WITH(
        err, BADINPUT, MAP_SHAPE,
        ("'%s' would have other rows than the embedding, as in classifiers", head), (tensor, head),
        (expected, "%" PRIu64 " rows", words),
        (found, "%" PRIu64 " rows, made by line %" PRIu32 " of map '%s'", rows, line, c->map_name),
        (next, "for a classifier, write 'score.weight' for '%s' in a copy of the map", head));
}

static fsdpck_status check_sizes(const fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                 fsdpck_error *err)
{
    static const char embedding[] = "model.embed_tokens.weight";
    const catalogue *hf = o->map_import ? &c->base->cat : &c->cat;
    const map_config_sizes sizes = map_sizes(c->map);
    const uint32_t i = catalogue_find(hf, embedding, strlen(embedding));
    if (!o->map_import && i != CAT_NONE && catalogue_tensor(hf, i)->ndim == 2)
        RETURN_IF(check_head(c, i, err));
    /* Folders may contain layers that predict further tokens, whatever the map. */
    if (!map_uses_config(c->map) || i == CAT_NONE || catalogue_tensor(hf, i)->ndim != 2)
        return check_layers(c, hf, sizes.num_hidden_layers, false, err);
    const uint64_t *shape = catalogue_shape(hf, i);
    if (sizes.hidden_size != 0 && sizes.hidden_size != shape[1])
        return fail_size("hidden_size", embedding, "columns of the embedding", shape[1],
                         sizes.hidden_size, err);
    if (o->map_config != NULL)
        warn_vocabulary(c, sizes.vocab_size, shape[0]);
    return check_layers(c, hf, sizes.num_hidden_layers, o->map_config != NULL, err);
}

/* The built-in maps that fit the names, after another one, which does not, failed. */
static void advise_map(const fsdpck_checkpoint *c, const map_inputs *l, fsdpck_error *err)
{
    const map_entry *given = map_find(c->map_name);
    text_buf maps = {0};
    if (err == NULL || c->map_forward != NULL || given == NULL ||
        (err->finding != FSDPCK_FINDING_MAP_UNTAKEN && err->finding != FSDPCK_FINDING_MAP_SOURCE))
        return;
    const map_entry alone[] = {*given, {0}};
    const map_input *inputs = l->inputs.items;
    fsdpck_status st = map_print_fitting(alone, "", inputs, l->inputs.count, NULL, &maps, NULL);
    if (st == FSDPCK_OK && maps.nbytes == 0)
        st = map_print_fitting(map_entries, "", inputs, l->inputs.count, NULL, &maps, NULL);
    else
        maps.nbytes = 0;
    if (st == FSDPCK_OK && maps.nbytes > 0)
        snprintf(err->next, sizeof err->next,
                 "built-in maps that fit the names: %s; give one with --map, or --like BASE, "
                 "which chooses by the model type",
                 maps.text);
    text_release(&maps);
}

static fsdpck_status apply(fsdpck_checkpoint *c, const fsdpck_open_options *o, fsdpck_error *err)
{
    fsdpck_checkpoint *base = c->base;
    fsdpck_error unread = FSDPCK_ERROR_INIT;
    map_inputs l;
    RETURN_IF(read_map(c, o, &unread, err));
    warn_model(c);
    RETURN_IF(checkpoint_load_inner(base, err));
    RETURN_IF(checkpoint_check_flat(base, &base->cat, err));
    fsdpck_status st = map_inputs_list(base, &l, err);
    if (st == FSDPCK_OK)
        st = map_adapter_new(c->map, &base->cat, &base->src, l.inputs.items, l.inputs.count,
                             &c->cat, &c->mapper, err);
    if (st == FSDPCK_OK)
        st = map_check_head_tensors(c->map, o->map_import ? &base->cat : &c->cat, &base->cat,
                                    l.inputs.items, l.inputs.count, err);
    if (st != FSDPCK_OK)
        advise_map(c, &l, err);
    map_inputs_release(&l);
    if (st == FSDPCK_OK)
        st = check_sizes(c, o, err);
    if (st != FSDPCK_OK && unread.status != FSDPCK_OK && err != NULL &&
        err->finding == FSDPCK_FINDING_MAP_VARIABLE) {
        *err = unread;
        return unread.status;
    }
    if (st != FSDPCK_OK) {
        error_path(err, base->path);
        return st;
    }
    if (unread.status != FSDPCK_OK)
        warn_unread(c, &unread);
    c->src = *map_adapter_source(c->mapper);
    warn_untied(c);
    RETURN_IF(derived_checkpoint_skip_others(c, err));
    RETURN_IF(keep_ties(c, err));
    RETURN_IF(checkpoint_parts_all_model(&c->cat, &c->parts, err));
    /* No mesh is inferred: the pieces of a map are no shards. */
    c->sharded_otherwise = base->sharded_otherwise;
    return FSDPCK_OK;
}

fsdpck_status checkpoint_map(fsdpck_checkpoint *base, const fsdpck_open_options *options,
                             fsdpck_checkpoint **out, fsdpck_error *err)
{
    RETURN_IF(derived_checkpoint_new(base, out, err));
    fsdpck_checkpoint *c = *out;
    c->map_name = strdup(options->map);
    if (c->map_name == NULL)
        return error_set_nomem(err, strlen(options->map));
    if (options->map_config != NULL && (c->map_config = strdup(options->map_config)) == NULL)
        return error_set_nomem(err, strlen(options->map_config));
    return apply(c, options, err);
}

const char *fsdpck_builtin_map(size_t index, const char **text)
{
    const map_entry *e = map_entries;
    while (e->name != NULL && index-- > 0)
        e++;
    if (e->name != NULL && text != NULL)
        *text = e->text;
    return e->name;
}
