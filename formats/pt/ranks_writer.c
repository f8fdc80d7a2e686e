#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/pt/pt.h"
#include "formats/pt/pt_file.h"
#include "formats/pt/rank_pattern.h"
#include "formats/pt/ranks_internal.h"
#include "formats/pt/ranks_write_dtensor.h"

/* One torch.save zip (pt_file.h) per rank: the nested state, with each sharded tensor as a DTensor
 * of the rank's shard, and every other one as a plain CPU tensor. All are compact, whereas torch's
 * files keep the padding of FSDP2's shards.
 *
 * The output keeps the families of the source, else those of a trainer: with several, an outer key of
 * the state selects the family and is not in its files. With one, the files hold the whole state. A
 * family without content has no files. */

enum { FAMILY_PATTERN_NBYTES = 64 };

typedef struct family {
    const char *key; /* NULL: the whole state */
    const char *pattern;
} family;

enum { FAMILIES_MAX = CAT_RANK_FAMILIES_MAX };
_Static_assert((int)FAMILIES_MAX >= (int)RANKS_TRAINER_FAMILIES, "a trainer's families fit too");

/* The families of the source or of its trainer. */
typedef struct own_families {
    size_t count;
    family families[FAMILIES_MAX];
    char patterns[RANKS_TRAINER_FAMILIES][FAMILY_PATTERN_NBYTES];
} own_families;

static const char plain_pattern[] = "model_world_size_{W}_rank_{r}.pt";

typedef struct chunk_spot {
    uint32_t file; /* layout_state.file that contains it; 0: none yet */
    uint32_t record;
} chunk_spot;

typedef struct layout_state {
    target *t;
    dtensor_writer dtensor;
    chunk_spot *spots; /* of each chunk */
    uint32_t file;     /* number of files created so far */
    uint64_t nchunks;
    uint64_t ranks_at;      /* in target.text: int32 ranks of all meshes */
    uint32_t mesh_record;   /* of this file, CAT_NONE while it has none */
    const text_buf *pickle; /* of the current file, so far */
    const char *file_name;  /* for messages */
} layout_state;

static fsdpck_status fail_tensor(const layout_state *s, uint64_t tensor, fsdpck_status st,
                                 const char *what, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    return FAIL_AS(err, st, FSDPCK_FINDING_NONE, ("%s", what), (path, s->file_name),
                   (tensor, catalogue_name(cat, catalogue_tensor(cat, tensor)->name)));
}

/* --- the pickle --- */

static fsdpck_status mesh_key(void *ctx, char key[16], fsdpck_error *err)
{
    layout_state *s = ctx;
    if (s->mesh_record == CAT_NONE)
        RETURN_IF(pt_file_add_bytes(s->t, s->ranks_at, s->t->world_size * sizeof(int32_t),
                                    &s->mesh_record, err));
    snprintf(key, 16, "%" PRIu32, s->mesh_record);
    return FSDPCK_OK;
}

static fsdpck_status mesh_boundary(void *ctx, fsdpck_error *err)
{
    const layout_state *s = ctx;
    return pt_file_mark(s->t, s->pickle->nbytes, err);
}

/* The chunk of this rank: the nth if each rank has one, otherwise the one with this rank. */
static fsdpck_status chunk_of_rank(const layout_state *s, uint64_t tensor, uint64_t *chunk,
                                   fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&s->t->cat, tensor);
    const uint64_t rank = s->dtensor.rank;

    if (t->flags & CAT_TENSOR_STORAGE || t->alias != CAT_NONE)
        return fail_tensor(s, tensor, FSDPCK_INTERNAL, "rank files cannot hold views", err);
    if (t->nchunks == s->t->world_size) {
        *chunk = t->first_chunk + rank;
        return FSDPCK_OK;
    }
    for (uint32_t i = 0; i < t->nchunks; i++) {
        *chunk = t->first_chunk + i;
        if (catalogue_chunk(&s->t->cat, *chunk)->rank == rank)
            return FSDPCK_OK;
    }
    return fail_tensor(s, tensor, FSDPCK_INTERNAL, "rank has no shard of a tensor that it lists",
                       err);
}

static fsdpck_status put_tensor(void *ctx, pickle_writer *w, uint64_t index, fsdpck_error *err)
{
    layout_state *s = ctx;
    const catalogue *cat = &s->t->cat;
    uint64_t sizes[NDIM_MAX], strides[NDIM_MAX];
    uint64_t chunk = 0;
    char key[16];

    if (index >= catalogue_tensor_count(cat))
        return FAIL(err, INTERNAL, NONE, "nested state refers to a tensor that does not exist");
    RETURN_IF(chunk_of_rank(s, index, &chunk, err));
    chunk_spot *spot = &s->spots[chunk];
    if (spot->file != 0 && spot->file != s->file)
        return fail_tensor(s, index, FSDPCK_UNSUPPORTED, "tensor is in two files of a rank", err);
    if (spot->file == 0) /* otherwise a name that is linked to the one before */
        RETURN_IF(pt_file_add_chunk(s->t, chunk, &spot->record, err));
    spot->file = s->file;
    const cat_tensor *t = catalogue_tensor(cat, index);
    catalogue_chunk_box(cat, chunk, NULL, sizes);
    snprintf(key, sizeof(key), "%" PRIu32, spot->record);
    if (t->spec != CAT_NONE)
        return dtensor_put(&s->dtensor, w, index, sizes, key, err);
    if (t->ndim > 0 && memcmp(sizes, catalogue_shape(cat, index), t->ndim * sizeof *sizes) != 0)
        return fail_tensor(s, index, FSDPCK_INTERNAL, "shard of a tensor that is not sharded", err);
    box_row_major_strides(sizes, t->ndim, strides);
    torch_put_tensor_of(w, key, t, sizes, strides, 0, box_nelems(sizes, t->ndim));
    return FSDPCK_OK;
}

/* --- families --- */

/* The pattern with 0 for {i}. */
static void put_pattern(char out[FAMILY_PATTERN_NBYTES], const char *pattern)
{
    const char *number = strstr(pattern, "{i}");
    if (number == NULL)
        snprintf(out, FAMILY_PATTERN_NBYTES, "%s", pattern);
    else
        snprintf(out, FAMILY_PATTERN_NBYTES, "%.*s0%s", (int)(number - pattern), pattern,
                 number + strlen("{i}"));
}

static void find_families(const target *t, own_families *own)
{
    const cat_origin *o = &t->cat.origin;
    *own = (own_families){0};
    for (size_t i = 0; i < o->rank_family_count; i++) {
        const cat_rank_family *f = &o->rank_families[i];
        own->families[own->count++] =
            (family){o->rank_family_count > 1 ? f->key : NULL, f->pattern};
    }
    if (own->count > 0)
        return;
    for (size_t i = 0; i < RANKS_TRAINER_FAMILIES; i++) {
        const ranks_trainer_family *f = &ranks_trainer_families[i];
        if (!f->is_written || strcmp(f->trainer, o->trainer) != 0)
            continue;
        put_pattern(own->patterns[own->count], f->pattern);
        own->families[own->count] = (family){f->key, own->patterns[own->count]};
        own->count++;
    }
}

static bool is_family_key(const target *t, value key, const own_families *own)
{
    for (size_t i = 0; i < own->count; i++)
        if (own->families[i].key != NULL && value_is_str(&t->cat.pool, key, own->families[i].key))
            return true;
    return false;
}

/* Whether a state consists of families: a dict whose keys are theirs. */
static bool has_families(target *t, value root, const own_families *own)
{
    value dict;
    if (!value_as_dict(&t->cat.pool, root, &dict) || value_count(&t->cat.pool, dict) == 0)
        return false;
    for (size_t i = 0; i < value_count(&t->cat.pool, dict); i++)
        if (!is_family_key(t, value_key(&t->cat.pool, dict, i), own))
            return false;
    return true;
}

static bool all_have_families(target *t, const own_families *own)
{
    if (t->rank_roots.count == 0)
        return has_families(t, t->root, own);
    for (size_t r = 0; r < t->rank_roots.count; r++)
        if (!has_families(t, *VEC_AT(&t->rank_roots, const value, r), own))
            return false;
    return true;
}

/* Content of a family's files; false if a rank has none. */
static fsdpck_status content_of(layout_state *s, const family *f, value *content, bool *found,
                                fsdpck_error *err)
{
    target *t = s->t;
    value dict;

    *content =
        t->rank_roots.count > 0 ? *VEC_AT(&t->rank_roots, const value, s->dtensor.rank) : t->root;
    *found = true;
    if (value_is_none(*content))
        RETURN_IF(pt_flat_root(&t->cat, (uint32_t)s->dtensor.rank, content, err));
    if (f->key == NULL)
        return FSDPCK_OK;
    if (!value_as_dict(&t->cat.pool, *content, &dict))
        return FAIL(err, LIMIT, LIMIT_MEMORY, "out of memory");
    *found = value_dict_find(&t->cat.pool, dict, f->key, content);
    return FSDPCK_OK;
}

/* --- the layout --- */

static fsdpck_status lay_out_file(layout_state *s, const family *f, text_buf *pickle,
                                  fsdpck_error *err)
{
    target *t = s->t;
    char name[RANK_FILE_NAME_NBYTES];
    value content;
    bool found;

    RETURN_IF(content_of(s, f, &content, &found, err));
    if (!found)
        return FSDPCK_OK;
    RETURN_IF(rank_pattern_name(f->pattern, s->dtensor.rank, t->world_size, name, err));
    s->file_name = name;
    s->file++;
    s->mesh_record = CAT_NONE;
    s->pickle = pickle;
    pickle->nbytes = 0;
    fsdpck_status st = pickle_write(&t->cat.pool, content, put_tensor, s, pickle, err);
    if (st == FSDPCK_OK)
        st = pt_file_end(t, name, (uint32_t)s->dtensor.rank, pickle, err);
    s->file_name = NULL;
    return st;
}

static fsdpck_status lay_out_family(layout_state *s, const family *f, fsdpck_error *err)
{
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;
    for (s->dtensor.rank = 0; st == FSDPCK_OK && s->dtensor.rank < s->t->world_size;
         s->dtensor.rank++)
        st = lay_out_file(s, f, &pickle, err);
    text_release(&pickle);
    return st;
}

/* A family whose files are alone is read back without its key. */
static fsdpck_status lay_out_families(layout_state *s, const own_families *own, fsdpck_error *err)
{
    size_t written = 0;
    for (size_t i = 0; i < own->count; i++) {
        const uint64_t files = catalogue_file_count(&s->t->cat);
        RETURN_IF(lay_out_family(s, &own->families[i], err));
        if (catalogue_file_count(&s->t->cat) == files)
            continue;
        s->t->dropped_key = written++ == 0 ? own->families[i].key : NULL;
    }
    return FSDPCK_OK;
}

static fsdpck_status add_settings(target *t, const char *name, fsdpck_error *err)
{
    text_buf text = {0};
    uint32_t index;

    fsdpck_status st = ranks_settings_put(t->cat.origin.settings, t->world_size, &text, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(&t->cat, name, strlen(name), text.nbytes, CAT_NONE, &index, err);
    if (st == FSDPCK_OK)
        st = target_add_constant(t, index, 0, text.text, text.nbytes, err);
    text_release(&text);
    return st;
}

static fsdpck_status lay_out(layout_state *s, const char *pattern, fsdpck_error *err)
{
    target *t = s->t;
    const ranks_trainer *const trainer = ranks_trainer_find(t->cat.origin.trainer);
    own_families own;
    find_families(t, &own);
    const family whole = {NULL, pattern != NULL ? pattern
                                : own.count > 0 ? own.families[0].pattern
                                                : plain_pattern};

    RETURN_IF(rank_pattern_check(whole.pattern, t->world_size, err));
    if (pattern != NULL || own.count == 0 || !all_have_families(t, &own))
        RETURN_IF(lay_out_family(s, &whole, err));
    else
        RETURN_IF(lay_out_families(s, &own, err));
    if (trainer != NULL && trainer->settings_name != NULL)
        RETURN_IF(add_settings(t, trainer->settings_name, err));
    for (uint64_t i = 0; i < s->nchunks; i++) {
        if (s->spots[i].file == 0)
            return fail_tensor(s, catalogue_chunk(&t->cat, i)->tensor, FSDPCK_INTERNAL,
                               "nested state of a rank has no location for its shard of a tensor",
                               err);
    }
    return FSDPCK_OK;
}

/* The ranks of every mesh, once: all files refer to this text. */
static fsdpck_status add_ranks(layout_state *s, fsdpck_error *err)
{
    s->ranks_at = s->t->text.nbytes;
    for (uint64_t r = 0; s->t->cat.meshes.count > 0 && r < s->t->world_size; r++) {
        const uint8_t le[4] = {(uint8_t)r, (uint8_t)(r >> 8), (uint8_t)(r >> 16),
                               (uint8_t)(r >> 24)};
        text_append(&s->t->text, le, sizeof le);
    }
    return text_check(&s->t->text, err);
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    layout_state s = {.t = t, .nchunks = catalogue_chunk_count(&t->cat)};

    t->is_folder = true;
    if (t->rank_roots.count > 0 && t->rank_roots.count != t->world_size)
        return FAIL(err, INTERNAL, NONE, "rank has no nested state");
    RETURN_IF(dtensor_writer_init(&s.dtensor, t, opt, err));
    s.dtensor.mesh_key = mesh_key;
    s.dtensor.mesh_boundary = mesh_boundary;
    s.dtensor.ctx = &s;
    RETURN_IF(pt_files_begin(t, err));
    RETURN_IF(add_ranks(&s, err));
    s.spots = budget_alloc(t->cat.owner, s.nchunks * sizeof *s.spots, err);
    if (s.spots == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = lay_out(&s, opt != NULL ? opt->rank_pattern : NULL, err);
    budget_free(t->cat.owner, s.spots, s.nchunks * sizeof *s.spots);
    return st;
}

const format_writer pt_ranks_writer = {
    .name = "pt-ranks",
    .description = "a folder with one torch.save file per rank: DTensors",
    .is_folder = true,
    .takes = STATE_NESTED,
    .sharded = true,
    .ranks_only = true,
    .every_rank = true,
    .holds = pt_file_holds,
    .layout = layout,
    .seal = pt_files_seal,
    .id = FSDPCK_FORMAT_PT_RANKS,
    .options = WRITER_RANK_PATTERN | WRITER_DEVICE_TYPE | WRITER_TORCH,
};
