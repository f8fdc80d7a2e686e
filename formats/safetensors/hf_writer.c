#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_like.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_layout.h"

/* Assignment of tensors to files. The rule of huggingface_hub 0.30
 * (split_state_dict_into_shards_factory): in order of the state dict, a tensor larger than the
 * limit becomes a separate file; any other tensor that would make the open file too large closes it
 * first. Files are numbered in closing order. */
typedef struct split {
    uint32_t *file_of; /* of each tensor; first an id by opening, at the end the number less one */
    uint32_t *number;  /* of each id */
    uint32_t opened;
    uint32_t closed;
    uint64_t total_nbytes;
} split;

static void close_file(split *s, uint32_t id)
{
    s->number[id] = s->closed++;
}

static void deal(const target *t, uint64_t limit_nbytes, split *s)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    uint32_t current = 0;
    bool is_open = false;
    uint64_t held = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t nbytes = catalogue_tensor_nbytes(&t->cat, i);
        s->total_nbytes += nbytes;
        if (nbytes > limit_nbytes) {
            s->file_of[i] = s->opened++;
            close_file(s, s->file_of[i]);
            continue;
        }
        if (is_open && nbytes > limit_nbytes - held) {
            close_file(s, current);
            is_open = false;
        }
        if (!is_open) {
            current = s->opened++;
            is_open = true;
            held = 0;
        }
        s->file_of[i] = current;
        held += nbytes;
    }
    if (is_open)
        close_file(s, current);
    for (size_t i = 0; i < count; i++)
        s->file_of[i] = s->number[s->file_of[i]];
}

#define NAME_CAPACITY 96u

static const char *stem_of(const writer_options *opt)
{
    return opt != NULL && opt->weights_stem != NULL ? opt->weights_stem : "model";
}

static void file_name(const char *stem, uint32_t index, uint32_t count, char name[NAME_CAPACITY])
{
    if (count <= 1)
        snprintf(name, NAME_CAPACITY, "%s.safetensors", stem);
    else
        snprintf(name, NAME_CAPACITY, "%s-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", stem,
                 index + 1, count);
}

/* Tensors grouped by file, then each file laid out. */
static fsdpck_status place_files(target *t, const char *stem, const split *s, uint32_t *grouped,
                                 uint64_t *first, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    for (size_t i = 0; i < count; i++)
        first[s->file_of[i] + 1]++;
    for (uint32_t f = 0; f < s->closed; f++)
        first[f + 1] += first[f];
    for (size_t i = count; i-- > 0;)
        grouped[--first[s->file_of[i] + 1]] = (uint32_t)i;
    /* first[f + 1] is now the beginning of file f. */
    for (uint32_t f = 0; f < s->closed; f++) {
        const uint64_t begin = first[f + 1];
        const uint64_t end = f + 1 < s->closed ? first[f + 2] : count;
        char name[NAME_CAPACITY];
        file_name(stem, f, s->closed, name);
        RETURN_IF(st_layout_file(t, name, grouped + begin, (size_t)(end - begin), err));
    }
    return FSDPCK_OK;
}

/* --- the index --- */

static fsdpck_status place_index(target *t, const char *stem, const split *s, fsdpck_error *err)
{
    catalogue *cat = &t->cat;
    const size_t count = catalogue_tensor_count(cat);
    hf_index_entry *list = budget_alloc(cat->owner, count * sizeof *list, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = catalogue_tensor(cat, i)->name;
        /* Files are in the order of their numbers. */
        list[i] = (hf_index_entry){catalogue_name(cat, id), catalogue_name_nbytes(cat, id),
                                   catalogue_name(cat, catalogue_file(cat, s->file_of[i])->path)};
    }
    char name[NAME_CAPACITY];
    snprintf(name, sizeof name, "%s.safetensors.index.json", stem);
    const fsdpck_status st = hf_index_add(t, name, list, count, s->total_nbytes, err);
    budget_free(cat->owner, list, count * sizeof *list);
    return st;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    const size_t count = catalogue_tensor_count(&t->cat);
    if (opt != NULL && opt->like != NULL)
        return hf_like_layout(t, opt, err);
    const uint64_t limit =
        opt != NULL && opt->max_shard_nbytes > 0 ? opt->max_shard_nbytes : UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        RETURN_IF(st_layout_check(t, i, err));
    /* Four arrays in one block; `first` leads, for its alignment. */
    const uint64_t nbytes = (count + 2) * sizeof(uint64_t) + 3 * count * sizeof(uint32_t);
    uint64_t *first = budget_alloc(owner, nbytes, err);
    if (first == NULL)
        return FSDPCK_LIMIT;
    uint32_t *grouped = (uint32_t *)(first + count + 2);
    split s = {.file_of = grouped + count, .number = grouped + 2 * count};
    deal(t, limit, &s);
    if (s.closed == 0)
        s.closed = 1; /* without tensors: one file with an empty header */
    fsdpck_status st = place_files(t, stem_of(opt), &s, grouped, first, err);
    if (st == FSDPCK_OK && s.closed > 1)
        st = place_index(t, stem_of(opt), &s, err);
    budget_free(owner, first, nbytes);
    t->is_folder = true;
    return st;
}

const format_writer hf_writer = {
    .name = "hf",
    .records_tied = true,
    .description = "a folder of safetensors files with an index, as in transformers",
    .is_folder = true,
    .holds = st_layout_holds,
    .layout = layout,
    .id = FSDPCK_FORMAT_HF,
    .options = WRITER_LIKE | WRITER_MAX_SHARD,
    .of_model = true,
};
