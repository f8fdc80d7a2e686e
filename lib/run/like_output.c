#include "run/like_output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "open/checkpoint.h"
#include "open/model_embedding.h"
#include "open/model_type.h"
#include "state/scale_name.h"

static bool is_index(const char *name)
{
    return text_ends_with(name, strlen(name), ".safetensors.index.json");
}

/* Whether numbered files were read, and not the whole model in one file. */
static bool reads_numbered(const fsdpck_checkpoint *base)
{
    for (size_t i = 0; i < catalogue_file_count(&base->cat); i++)
        if (format_file_count(catalogue_name(&base->cat, catalogue_file(&base->cat, i)->path)) > 0)
            return true;
    return false;
}

/* Of a variant: 'model.safetensors.index.fp16.json'. */
static const char *find_index(const fsdpck_checkpoint *base)
{
    static const char usual[] = "model.safetensors.index.json";
    static const char of_variant[] = ".safetensors.index.";
    const probe_input *in = &base->probe;
    if (probe_has_entry(in, usual))
        return usual;
    for (size_t i = 0; i < in->entry_count; i++)
        if (is_index(in->entries[i]))
            return in->entries[i];
    for (size_t i = 0; reads_numbered(base) && i < in->entry_count; i++)
        if (strstr(in->entries[i], of_variant) != NULL &&
            text_ends_with(in->entries[i], strlen(in->entries[i]), ".json"))
            return in->entries[i];
    return NULL;
}

bool like_output_is_castable(dtype d)
{
    return d == DTYPE_FLOAT64 || d == DTYPE_FLOAT32 || d == DTYPE_FLOAT16 || d == DTYPE_BFLOAT16;
}

dtype like_output_usual(const catalogue *c)
{
    uint64_t nelems[DTYPE_COUNT] = {0};
    dtype usual = DTYPE_FLOAT32;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const dtype d = (dtype)catalogue_tensor(c, i)->dtype;
        if (!like_output_is_castable(d))
            continue;
        nelems[d] += catalogue_tensor_nelems(c, i);
        usual = nelems[d] > nelems[usual] ? d : usual;
    }
    return usual;
}

fsdpck_status like_output_open(like_output *l, const run_options *o, fsdpck_error *err)
{
    const fsdpck_checkpoint *base = o->like;
    *l = (like_output){0};
    if (base == NULL)
        return FSDPCK_OK;
    const char *option = o->output.max_shard_nbytes > 0            ? "--max-shard-size"
                         : o->select.tied != FSDPCK_TIED_KEEP      ? "--tied"
                         : o->select.part > (int)FSDPCK_PART_MODEL ? "--part"
                         : o->select.clean_names == FSDPCK_OFF     ? "--keep-names"
                                                                   : NULL;
    if (option != NULL)
        return FAIL_WITH(err, USAGE, NONE, ("%s and --like contradict each other", option),
                         (next, "omit one of them"));
    RETURN_IF(checkpoint_check_like(base, err));
    l->base = base;
    l->usual = like_output_usual(&base->cat);
    l->index = find_index(base);
    return model_config_read(&base->probe.dir, &l->config, err);
}

/* Tensors that save_pretrained of a model omits, because the model makes them: _keys_to_ignore_on_save of transformers.
 * Marian's positions are constants. */
static const char *const *made_by_model(const like_output *l, size_t *count)
{
    static const char *const marian[] = {"model.encoder.embed_positions.weight",
                                         "model.decoder.embed_positions.weight"};
    const bool is_marian = strcmp(l->config.model_type, "marian") == 0;
    *count = is_marian ? sizeof marian / sizeof *marian : 0;
    return marian;
}

static bool is_made_by_model(const like_output *l, const catalogue *c, size_t tensor)
{
    size_t count;
    const char *const *names = made_by_model(l, &count);
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    return text_is_one_of(catalogue_name(c, name), catalogue_name_nbytes(c, name), names, count);
}

void like_output_select(const like_output *l, select_request *request)
{
    if (l->base == NULL)
        return;
    request->like_made = made_by_model(l, &request->like_made_count);
    request->like_model = &l->base->cat;
    request->like_usual = l->usual;
    bool is_certain;
    request->like_embedding = model_embedding_find(&l->base->cat, &l->config, &is_certain);
    request->omits_tied_head = is_certain && l->config.ties != MODEL_TIES_NO;
}

void like_output_release(like_output *l)
{
    model_config_release(&l->config);
    *l = (like_output){0};
}

/* --- the comparison --- */

static void add_escaped(text_buf *all, const char *name, size_t nbytes)
{
    char *text = malloc(4 * nbytes + 1);
    if (text == NULL) {
        all->failed = 1;
        return;
    }
    escape_text(text, 4 * nbytes + 1, name, nbytes);
    text_append(all, text, strlen(text) + 1);
    free(text);
}

void like_names_release(like_names *n)
{
    text_release(&n->names);
    text_release(&n->all);
}

void like_names_add(like_names *n, const catalogue *c, size_t tensor)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    char text[200];
    add_escaped(&n->all, catalogue_name(c, name), catalogue_name_nbytes(c, name));
    n->first = n->count == 0 ? (uint32_t)tensor : n->first;
    escape_text(text, sizeof text, catalogue_name(c, name), catalogue_name_nbytes(c, name));
    if (n->count++ >= LIKE_NAMES_SHOWN) {
        if (n->log != NULL)
            log_write(n->log, LOG_DETAIL, "%s: '%s'", n->kind, text);
        return;
    }
    text_printf(&n->names, "%s'%s'", n->count > 1 ? ", " : "", text);
}

static bool is_named_in(const catalogue *c, const catalogue *other, size_t tensor)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    return catalogue_find(other, catalogue_name(c, name), catalogue_name_nbytes(c, name)) !=
           CAT_NONE;
}

bool like_output_is_dequantized(const like_output *l, const catalogue *to, uint32_t tensor)
{
    const cat_tensor *b = catalogue_tensor(&l->base->cat, tensor);
    const uint32_t k = catalogue_find(to, catalogue_name(&l->base->cat, b->name),
                                      catalogue_name_nbytes(&l->base->cat, b->name));
    return l->config.is_quantized && k != CAT_NONE && !like_output_is_castable((dtype)b->dtype) &&
           like_output_is_castable((dtype)catalogue_tensor(to, k)->dtype);
}

/* Ends of the names of scales. */
static const char *const scales[] = {SCALE_OF_BLOCKS, SCALE_OF_TENSOR};

/* An output projection that the model takes from the embedding; a scale of a dequantized tensor; one that the model
 * makes. */
static bool may_be_missing(const like_output *l, const catalogue *to, size_t tensor)
{
    const catalogue *c = &l->base->cat;
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (!text_ends_with(text, nbytes, scales[i]))
            continue;
        const uint32_t scaled = catalogue_find(c, text, nbytes - strlen(scales[i]));
        if (scaled != CAT_NONE && like_output_is_dequantized(l, to, scaled))
            return true;
    }
    return (l->config.ties == MODEL_TIES_YES && model_is_head(c, tensor)) ||
           is_made_by_model(l, c, tensor);
}

void like_names_put_more(const like_names *n, text_buf *out)
{
    if (n->count <= LIKE_NAMES_SHOWN)
        return;
    text_printf(out, ", and %" PRIu64 " more", n->count - LIKE_NAMES_SHOWN);
    if (n->lists != NULL)
        text_printf(out, " (%s lists them)", n->lists);
}

void like_names_put(const like_names *n, const char *what, text_buf *out)
{
    if (n->count > 0)
        text_printf(out, "%s%" PRIu64 " %s: %s", out->nbytes > 0 ? "; " : "", n->count, what,
                    n->names.text == NULL ? "" : n->names.text);
    like_names_put_more(n, out);
}

static bool is_tied_copy(const vec *ties, size_t tensor)
{
    for (size_t i = 0; ties != NULL && i < ties->count; i++)
        if (VEC_AT(ties, const tied_pair, i)->alias == tensor)
            return true;
    return false;
}

void like_output_compare_names(const like_output *l, const catalogue *to, bool allows_head,
                               const vec *ties, like_names *missing, like_names *extra)
{
    const catalogue *base = &l->base->cat;
    for (size_t i = 0; i < catalogue_tensor_count(base); i++)
        if (!is_named_in(base, to, i) && !may_be_missing(l, to, i))
            like_names_add(missing, base, i);
    for (size_t i = 0; i < catalogue_tensor_count(to); i++)
        if (!is_named_in(to, base, i) && !(allows_head && model_is_head(to, i)) &&
            (catalogue_tensor(to, i)->flags & CAT_TENSOR_STORAGE) == 0 && !is_tied_copy(ties, i) &&
            !is_made_by_model(l, to, i))
            like_names_add(extra, to, i);
}

static bool has_scale_of(const catalogue *c, size_t tensor, const catalogue *base)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (text_ends_with(text, nbytes, scales[i]))
            return catalogue_find(base, text, nbytes) != CAT_NONE;
    return false;
}

const char *like_output_names_advice(const like_output *l, const catalogue *to, const char *usual)
{
    if (!l->config.is_quantized || l->base->unquantized)
        return usual;
    for (size_t i = 0; i < catalogue_tensor_count(to); i++)
        if (has_scale_of(to, i, &l->base->cat))
            return "both folders are quantized: restore the missing scales or blocks from the "
                   "original, and check how the export names tensors";
    return "the folder of --like is quantized: if the source is not, give --dequantize";
}

/* The line of the map that makes a tensor of the target; 0: no line. */
static uint32_t line_of(const fsdpck_checkpoint *from, const target *to, size_t tensor)
{
    const uint32_t at = *VEC_AT(&to->from, const uint32_t, tensor);
    return from->mapper == NULL || at == CAT_NONE ? 0 : map_adapter_line(from->mapper, at);
}

/* "made by line 7 of map 'm'": of the tensors that the folder lacks. */
static void put_lines(const like_output *l, const target *to, const fsdpck_checkpoint *from,
                      text_buf *out)
{
    uint32_t lines[LIKE_NAMES_SHOWN];
    size_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&to->cat) && count < LIKE_NAMES_SHOWN; i++) {
        const uint32_t line = line_of(from, to, i);
        size_t k = 0;
        while (k < count && lines[k] != line)
            k++;
        if (line != 0 && k == count && !is_named_in(&to->cat, &l->base->cat, i))
            lines[count++] = line;
    }
    for (size_t i = 0; i < count; i++)
        text_printf(out, "%s%u",
                    i > 0        ? ", "
                    : count == 1 ? "made by line "
                                 : "made by lines ",
                    lines[i]);
    if (count > 0)
        text_printf(out, " of map '%s'", from->map_name);
}

/* The folder's config.json unties an output projection, which it lacks. */
static bool lacks_head(const like_output *l, const catalogue *to, const like_names *missing,
                       const like_names *extra)
{
    return missing->count == 0 && extra->count == 1 && model_is_head(to, extra->first) &&
           l->config.ties == MODEL_TIES_NO;
}

static fsdpck_status check_names(const like_output *l, const target *t,
                                 const fsdpck_checkpoint *from, fsdpck_error *err)
{
    const catalogue *to = &t->cat;
    const logger *log = &from->ctx->log;
    like_names missing = {.lists = "-v", .log = log, .kind = "missing"},
               extra = {.lists = "-v", .log = log, .kind = "not in the folder of --like"};
    text_buf text = {0}, lines = {0};
    like_output_compare_names(l, to, false, NULL, &missing, &extra);
    like_names_put(&missing, "missing", &text);
    like_names_put(&extra, "not in the folder of --like", &text);
    if (extra.count > 0)
        put_lines(l, t, from, &lines);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK && missing.count + extra.count > 0)
        st = FAIL_WITH(
            err, BADINPUT, EXPORT_KEYS, ("tensors differ from the folder of --like: %s", text.text),
            (path, l->base->path),
            (next, "%s",
             like_output_names_advice(
                 l, to,
                 lacks_head(l, to, &missing, &extra)
                     ? "if the model is tied, write \"tie_word_embeddings\": true into "
                       "config.json of the folder of --like; if not, restore the tensor there"
                 : extra.count > 0 && missing.count > 0
                     ? "check that the folder of --like belongs to this model; if transformers "
                       "names tensors differently in memory, give --rename; omit tensors with "
                       "--exclude"
                 : extra.count > 0
                     ? "check that the folder of --like belongs to this model; omit tensors "
                       "with --exclude"
                     : "check that the folder of --like belongs to this model")));
    if (st == FSDPCK_BADINPUT && lines.nbytes > 0)
        error_found(err, "%s", lines.text);
    if (st == FSDPCK_BADINPUT) {
        model_type_name_other(from, l->base, err);
        text_append(&missing.all, extra.all.text, extra.all.nbytes);
        missing.all.failed |= extra.all.failed;
        named_tensors_keep(from->ctx, err, &missing.all);
    }
    text_release(&text);
    text_release(&lines);
    like_names_release(&missing);
    like_names_release(&extra);
    return st;
}

void like_output_put_type(const catalogue *c, size_t tensor, text_buf *text)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    text_printf(text, "%s [", dtype_get((dtype)t->dtype)->name);
    for (unsigned d = 0; d < t->ndim; d++)
        text_printf(text, "%s%" PRIu64, d == 0 ? "" : ", ", catalogue_shape(c, tensor)[d]);
    text_puts(text, "]");
}

/* Whether --dtype gave a floating dtype that the folder does not have. The castable dtypes differ for
 * no other reason. */
static bool is_user_dtype(const target *to, const catalogue *from, size_t i, dtype theirs)
{
    const dtype ours = (dtype)catalogue_tensor(&to->cat, i)->dtype;
    const uint32_t at = *VEC_AT(&to->from, const uint32_t, i);
    if (dtype_get(ours)->kind != DTYPE_IS_FLOAT || dtype_get(theirs)->kind != DTYPE_IS_FLOAT)
        return false;
    return (like_output_is_castable(ours) && like_output_is_castable(theirs)) ||
           ours != (dtype)catalogue_tensor(from, at)->dtype;
}

/* Whether an embedding or output projection has another number of rows only. */
static bool is_resized(const like_output *l, const catalogue *to, size_t i, uint32_t k)
{
    bool is_certain;
    const catalogue *base = &l->base->cat;
    const uint64_t *ours = catalogue_shape(to, i), *theirs = catalogue_shape(base, k);
    return catalogue_tensor(to, i)->ndim == 2 && catalogue_tensor(base, k)->ndim == 2 &&
           ours[0] != theirs[0] && ours[1] == theirs[1] &&
           (model_is_head(base, k) || model_embedding_find(base, &l->config, &is_certain) == k);
}

/* Writes a map's name into `next` where it is known. */
static void put_shape_advice(const like_output *l, const fsdpck_checkpoint *from,
                             const catalogue *to, size_t i, uint32_t k, text_buf *next)
{
    if (!is_resized(l, to, i, k))
        text_puts(next, "check that the folder of --like belongs to this model");
    else if (from->map_name != NULL)
        text_printf(
            next,
            "for a resized vocabulary, give --map %s --config FILE in place of --like, with "
            "a config.json that has vocab_size %" PRIu64
            "; otherwise, check that the folder of --like belongs to this model",
            from->map_name, catalogue_shape(to, i)[0]);
    else
        text_printf(next,
                    "for a resized vocabulary, omit --like, and write a config.json with "
                    "vocab_size %" PRIu64
                    " beside the output; otherwise, check that the folder of --like belongs to "
                    "this model",
                    catalogue_shape(to, i)[0]);
}

static fsdpck_status refuse_type(const like_output *l, const target *t, size_t i, uint32_t k,
                                 const fsdpck_checkpoint *from, bool is_shape, fsdpck_error *err)
{
    const catalogue *base = &l->base->cat, *to = &t->cat;
    const uint32_t line = line_of(from, t, i);
    text_buf found = {0}, expected = {0}, next = {0};
    put_shape_advice(l, from, to, i, k, &next);
    like_output_put_type(to, i, &found);
    if (line != 0)
        text_printf(&found, ", made by line %u of map '%s'", line, from->map_name);
    like_output_put_type(base, k, &expected);
    fsdpck_status st = text_check(&found, err);
    if (st == FSDPCK_OK)
        st = text_check(&expected, err);
    if (st == FSDPCK_OK)
        st = text_check(&next, err);
    if (st == FSDPCK_OK)
        st = FAIL_AS(
            err, FSDPCK_BADINPUT,
            is_shape ? FSDPCK_FINDING_EXPORT_SHAPE : FSDPCK_FINDING_EXPORT_DTYPE,
            ("tensor has a different %s in the folder of --like",
             is_shape ? "shape" : "kind of dtype"),
            (path, l->base->path), (tensor, catalogue_name(to, catalogue_tensor(to, i)->name)),
            (expected, "%s", expected.text), (found, "%s", found.text), (next, "%s", next.text));
    text_release(&next);
    if (is_shape && st == FSDPCK_BADINPUT)
        model_type_name_other(from, l->base, err);
    text_release(&found);
    text_release(&expected);
    return st;
}

static fsdpck_status check_types(const like_output *l, const target *t,
                                 const fsdpck_checkpoint *from, fsdpck_error *err)
{
    const catalogue *base = &l->base->cat, *to = &t->cat;
    for (size_t i = 0; i < catalogue_tensor_count(to); i++) {
        const cat_tensor *ours = catalogue_tensor(to, i);
        const uint32_t k = catalogue_find(base, catalogue_name(to, ours->name),
                                          catalogue_name_nbytes(to, ours->name));
        const cat_tensor *theirs = catalogue_tensor(base, k);
        const bool is_shape = !shape_equal(catalogue_shape(to, i), ours->ndim,
                                           catalogue_shape(base, k), theirs->ndim);
        if (is_shape || (ours->dtype != theirs->dtype && !like_output_is_dequantized(l, to, k) &&
                         !is_user_dtype(t, &from->cat, i, (dtype)theirs->dtype)))
            return refuse_type(l, t, i, k, from, is_shape, err);
    }
    return FSDPCK_OK;
}

fsdpck_status like_output_check(const like_output *l, const target *to,
                                const fsdpck_checkpoint *from, fsdpck_error *err)
{
    RETURN_IF(check_names(l, to, from, err));
    return check_types(l, to, from, err);
}
