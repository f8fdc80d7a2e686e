#include "formats/safetensors/hf_like.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/safetensors/st_layout.h"

/* A tensor of the target, at its place in the folder. */
typedef struct placed {
    uint32_t tensor;
    uint32_t file; /* of the folder */
    unsigned rank; /* of its dtype: first those of more bytes, so that each is aligned */
    uint64_t offset_bytes;
} placed;

#define RENUMBERED_NBYTES 48u

/* A file of the folder. */
typedef struct like_file {
    const char *name; /* NULL: none of its tensors is in the target, and it is not written */
    char renumbered[RENUMBERED_NBYTES];
} like_file;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    ORDER_BY(x->file, y->file);
    ORDER_BY(y->rank, x->rank);
    ORDER_BY(x->offset_bytes, y->offset_bytes);
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static fsdpck_status check_name(const char *name, fsdpck_error *err)
{
    if (strchr(name, '/') == NULL && name[0] != '.' &&
        text_ends_with(name, strlen(name), ".safetensors"))
        return FSDPCK_OK;
    return FAIL_WITH(err, UNSUPPORTED, NONE,
                     ("'%s' is not a valid name for a file of weights", name),
                     (expected, "file names that end in .safetensors, without a folder"),
                     (next, "save the folder of --like again with transformers"));
}

/* *recast: a dtype differs from that in the folder, so its order may not be aligned. */
static fsdpck_status place_tensors(const target *t, const catalogue *like, placed *list,
                                   bool *recast, fsdpck_error *err)
{
    *recast = false;
    for (uint32_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        const cat_tensor *ct = catalogue_tensor(&t->cat, i);
        const char *name = catalogue_name(&t->cat, ct->name);
        const uint32_t found = catalogue_find(like, name, catalogue_name_nbytes(&t->cat, ct->name));
        if (found == CAT_NONE || catalogue_tensor(like, found)->nchunks == 0)
            return FAIL_WITH(err, BADINPUT, EXPORT_KEYS, ("tensor is not in the folder of --like"),
                             (tensor, name));
        RETURN_IF(st_layout_check(t, i, err));
        const cat_tensor *theirs = catalogue_tensor(like, found);
        const cat_chunk *k = catalogue_chunk(like, theirs->first_chunk);
        *recast = *recast || ct->dtype != theirs->dtype;
        list[i] = (placed){.tensor = i,
                           .file = k->file,
                           .rank = dtype_get((dtype)ct->dtype)->safetensors_rank,
                           .offset_bytes = k->offset_bytes};
    }
    return FSDPCK_OK;
}

/* The folder's names. Where it has a file that is not written, such as one with only the scales of
 * quantized weights, its numbers would tell of a missing file: then the others are numbered again. */
static fsdpck_status name_files(like_file *files, const catalogue *like, const placed *list,
                                size_t count, fsdpck_error *err)
{
    const size_t all = catalogue_file_count(like);
    size_t kept = 0, number = 0;
    for (size_t i = 0; i < count; i++) {
        like_file *f = &files[list[i].file];
        kept += f->name == NULL;
        f->name = catalogue_name(like, catalogue_file(like, list[i].file)->path);
    }
    for (size_t i = 0; i < all; i++) {
        if (files[i].name == NULL)
            continue;
        RETURN_IF(check_name(files[i].name, err));
        if (kept == all)
            continue;
        snprintf(files[i].renumbered, sizeof files[i].renumbered,
                 "model-%05zu-of-%05zu.safetensors", ++number, kept);
        files[i].name = files[i].renumbered;
    }
    return FSDPCK_OK;
}

static fsdpck_status place_files(target *t, const catalogue *like, const like_file *files,
                                 const placed *list, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    uint32_t *tensors = budget_alloc(t->cat.owner, (count + 1) * sizeof *tensors, err);
    if (tensors == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        tensors[i] = list[i].tensor;
    fsdpck_status st = FSDPCK_OK;
    size_t begin = 0;
    for (uint32_t f = 0; st == FSDPCK_OK && f < catalogue_file_count(like); f++) {
        size_t end = begin;
        while (end < count && list[end].file == f)
            end++;
        if (files[f].name != NULL)
            st = st_layout_file_in_order(t, files[f].name, tensors + begin, end - begin, err);
        begin = end;
    }
    budget_free(t->cat.owner, tensors, (count + 1) * sizeof *tensors);
    return st;
}

static fsdpck_status place_index(target *t, const writer_options *opt, const like_file *files,
                                 const placed *places, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    uint64_t total_nbytes = 0;
    hf_index_entry *list = budget_alloc(t->cat.owner, count * sizeof *list, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        const uint32_t name = catalogue_tensor(&t->cat, places[i].tensor)->name;
        total_nbytes += catalogue_tensor_nbytes(&t->cat, places[i].tensor);
        list[i] = (hf_index_entry){.name = catalogue_name(&t->cat, name),
                                   .nbytes = catalogue_name_nbytes(&t->cat, name),
                                   .file = files[places[i].file].name};
    }
    const fsdpck_status st = hf_index_add(t, opt->like_index, list, count, total_nbytes, err);
    budget_free(t->cat.owner, list, count * sizeof *list);
    return st;
}

fsdpck_status hf_like_layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    bool recast = false;
    vec files = VEC_OF(like_file, t->cat.owner);
    placed *list = budget_alloc(t->cat.owner, count * sizeof *list, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st =
        vec_push_n(&files, catalogue_file_count(opt->like), err) == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = place_tensors(t, opt->like, list, &recast, err);
    for (size_t i = 0; i < count && !recast; i++)
        list[i].rank = 0;
    if (st == FSDPCK_OK && count > 1)
        qsort(list, count, sizeof *list, by_place);
    if (st == FSDPCK_OK)
        st = name_files(files.items, opt->like, list, count, err);
    if (st == FSDPCK_OK)
        st = place_files(t, opt->like, files.items, list, err);
    if (st == FSDPCK_OK && opt->like_index != NULL)
        st = place_index(t, opt, files.items, list, err);
    vec_release(&files);
    budget_free(t->cat.owner, list, count * sizeof *list);
    t->is_folder = true;
    return st;
}

/* --- the index --- */

static int by_name(const void *a, const void *b)
{
    const hf_index_entry *x = a;
    const hf_index_entry *y = b;
    return text_order(x->name, x->nbytes, y->name, y->nbytes);
}

/* What the source's index states besides. */
static void put_source_texts(const target *t, json_writer *w)
{
    const cat_metadata *m = t->cat.origin.index_metadata;
    for (uint32_t key = 0; m != NULL && key < cat_metadata_count(m); key++) {
        size_t nbytes, text_nbytes;
        const char *name = cat_metadata_key(m, key, &nbytes);
        const char *text = cat_metadata_text(m, key, &text_nbytes);
        if (text == NULL || !target_keeps_index_text(t, name, nbytes))
            continue;
        json_put_key(w, name, nbytes);
        json_put_raw(w, text, text_nbytes);
    }
}

static void put_index(const target *t, const hf_index_entry *list, size_t count,
                      uint64_t total_nbytes, text_buf *text)
{
    json_writer w;
    json_writer_init(&w, text, 2);
    json_begin_object(&w);
    json_member_object(&w, "metadata");
    json_member_u64(&w, "total_size", total_nbytes);
    put_source_texts(t, &w);
    json_end_object(&w);
    json_member_object(&w, "weight_map");
    for (size_t i = 0; i < count; i++) {
        json_put_key(&w, list[i].name, list[i].nbytes);
        json_put_cstr(&w, list[i].file);
    }
    json_end_object(&w);
    json_end_object(&w);
    text_puts(text, "\n");
}

fsdpck_status hf_index_add(target *t, const char *file_name, hf_index_entry *list, size_t count,
                           uint64_t total_nbytes, fsdpck_error *err)
{
    uint32_t index;
    text_buf text = {.limit_bytes = SIZE_MAX / 2};
    if (count > 1)
        qsort(list, count, sizeof *list, by_name);
    put_index(t, list, count, total_nbytes, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(&t->cat, file_name, strlen(file_name), text.nbytes, CAT_NONE,
                                &index, err);
    if (st == FSDPCK_OK)
        st = target_add_constant(t, index, 0, text.text, text.nbytes, err);
    t->has_index = true;
    text_release(&text);
    return st;
}
