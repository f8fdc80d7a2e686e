#include "open/rank_models.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Kinds of files beside those of the model; more are not compared. */
enum { KINDS_MAX = 16 };

/* What a file is, in models.of_file: KIND_OTHERS + k is the kind k of `kinds`. */
enum { KIND_NONE, KIND_MODEL, KIND_OTHERS };

typedef struct models {
    const fsdpck_checkpoint *c;
    uint32_t *of_file;
    strtab names;      /* of the model's tensors, without its keys */
    uint32_t *tensors; /* of each name */
    uint64_t count;    /* tensors of the model */
    strtab kinds;      /* first keys of the others, which are the names of files before the rank */
    uint64_t same[KINDS_MAX];
} models;

static bool is_part(const models *m, size_t tensor, checkpoint_part part)
{
    return tensor < m->c->parts.tensor_count && m->c->parts.tensor_part[tensor] == part &&
           !(catalogue_tensor(&m->c->cat, tensor)->flags &
             (CAT_TENSOR_OF_RANK | CAT_TENSOR_STORAGE | CAT_TENSOR_IN_OBJECT));
}

static void mark_files(models *m, const cat_tensor *t, uint32_t kind)
{
    const catalogue *c = &m->c->cat;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        if (catalogue_chunk(c, k)->file < catalogue_file_count(c))
            m->of_file[catalogue_chunk(c, k)->file] = kind;
}

static bool has_files_of_model(const models *m, const cat_tensor *t)
{
    const catalogue *c = &m->c->cat;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        if (catalogue_chunk(c, k)->file < catalogue_file_count(c) &&
            m->of_file[catalogue_chunk(c, k)->file] == KIND_MODEL)
            return true;
    return false;
}

/* Bytes of the key of a model with which a name begins, and its dot; 0. */
static size_t key_nbytes(const char *name, size_t nbytes)
{
    const char *key = checkpoint_parts_flat_key(name, nbytes);
    return key == NULL ? 0 : strlen(key) + 1;
}

static fsdpck_status add_name(models *m, const char *name, size_t nbytes, uint32_t tensor)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&m->names, name, nbytes, &id, NULL));
    m->tensors[id] = tensor;
    return FSDPCK_OK;
}

/* Each name with and without a key of a model: one of the files may have it, and the other not. */
static fsdpck_status list_model(models *m)
{
    const catalogue *c = &m->c->cat;
    const size_t outer = checkpoint_parts_outer_nbytes(&m->c->parts, PART_MODEL);
    for (uint32_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (!is_part(m, i, PART_MODEL))
            continue;
        const char *name = catalogue_name(c, t->name) + outer;
        const size_t nbytes = catalogue_name_nbytes(c, t->name) - outer;
        const size_t key = key_nbytes(name, nbytes);
        RETURN_IF(add_name(m, name, nbytes, i));
        if (key > 0)
            RETURN_IF(add_name(m, name + key, nbytes - key, i));
        m->count++;
        mark_files(m, t, KIND_MODEL);
    }
    return FSDPCK_OK;
}

static bool is_in_model(const models *m, const char *name, size_t nbytes, uint32_t tensor)
{
    const catalogue *c = &m->c->cat;
    const uint32_t id = strtab_find(&m->names, name, nbytes);
    const uint32_t own = id == STRTAB_NONE ? CAT_NONE : m->tensors[id];
    return own != CAT_NONE &&
           shape_equal(catalogue_shape(c, own), catalogue_tensor(c, own)->ndim,
                       catalogue_shape(c, tensor), catalogue_tensor(c, tensor)->ndim);
}

/* "ema", "model_ema" */
static bool is_average(const char *key, size_t nbytes)
{
    static const char separators[] = "_-.";
    for (size_t at = 0; at < nbytes;) {
        const size_t n = strcspn(key + at, separators);
        if (text_is(key + at, n, "ema"))
            return true;
        at += n + 1;
    }
    return false;
}

static fsdpck_status count_other(models *m, uint32_t tensor)
{
    const catalogue *c = &m->c->cat;
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const char *name = catalogue_name(c, t->name), *dot = strchr(name, '.');
    uint32_t kind;
    if (dot == NULL || has_files_of_model(m, t) || is_average(name, (size_t)(dot - name)))
        return FSDPCK_OK;
    const char *rest = dot + 1;
    const size_t nbytes = catalogue_name_nbytes(c, t->name) - (size_t)(rest - name);
    const size_t key = key_nbytes(rest, nbytes);
    if (!is_in_model(m, rest, nbytes, tensor) && !is_in_model(m, rest + key, nbytes - key, tensor))
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&m->kinds, name, (size_t)(dot - name), &kind, NULL));
    if (kind < KINDS_MAX)
        m->same[kind]++;
    mark_files(m, t, KIND_OTHERS + kind);
    return FSDPCK_OK;
}

/* "'ckpt_rank0.pt' and 3 more" */
static void put_files(const models *m, uint32_t kind, text_buf *out)
{
    const catalogue *c = &m->c->cat;
    uint32_t first = CAT_NONE;
    size_t count = 0;
    for (uint32_t i = 0; i < catalogue_file_count(c); i++)
        if (m->of_file[i] == kind && count++ == 0)
            first = i;
    if (first != CAT_NONE)
        text_printf(out, "'%s'", catalogue_name(c, catalogue_file(c, first)->path));
    if (count > 1)
        text_printf(out, " and %zu more", count - 1);
}

static void warn_kind(const models *m, uint32_t kind)
{
    text_buf own = {.limit_bytes = 1000}, other = {.limit_bytes = 1000};
    put_files(m, KIND_MODEL, &own);
    put_files(m, KIND_OTHERS + kind, &other);
    if (own.text != NULL && other.text != NULL)
        log_warn(&m->c->ctx->log, FSDPCK_FINDING_WEIGHTS_BESIDE,
                 "move the files of one model into a folder of their own, or choose them with "
                 "--source-rank-pattern",
                 "reading the model of %s; the tensors of the same names in %s are not part of it",
                 own.text, other.text);
    text_release(&own);
    text_release(&other);
}

/* Without memory for the tables, nothing is reported. */
static void compare(models *m)
{
    fsdpck_status st = list_model(m);
    for (uint32_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(&m->c->cat); i++)
        if (is_part(m, i, PART_OTHER))
            st = count_other(m, i);
    for (uint32_t k = 0; st == FSDPCK_OK && k < strtab_count(&m->kinds) && k < KINDS_MAX; k++)
        if (2 * m->same[k] >= m->count)
            warn_kind(m, k);
}

void rank_models_warn(const fsdpck_checkpoint *c)
{
    models m = {.c = c};
    /* Without a key of the model, all of it is one. */
    if (c->format != format_reader_of_pattern ||
        checkpoint_parts_outer_nbytes(&c->parts, PART_MODEL) == 0)
        return;
    m.of_file = calloc(catalogue_file_count(&c->cat) + 1, sizeof *m.of_file);
    m.tensors = calloc(2 * catalogue_tensor_count(&c->cat) + 1, sizeof *m.tensors);
    strtab_init(&m.names, NULL);
    strtab_init(&m.kinds, NULL);
    if (m.of_file != NULL && m.tensors != NULL)
        compare(&m);
    strtab_release(&m.names);
    strtab_release(&m.kinds);
    free(m.of_file);
    free(m.tensors);
}
