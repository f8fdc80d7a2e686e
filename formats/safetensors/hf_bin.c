/* A Hugging Face folder of torch.save files with a missing, unreadable or duplicate file. This
 * reader accepts it to report the defect; the files of a complete folder are read one at a time.
 * Also a folder of Keras' numbered HDF5 files. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/safetensors/hf_bin_files.h"
#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/hf_keras.h"
#include "formats/safetensors/hf_missing.h"
#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st.h"

#define MODEL     "pytorch_model"
#define BIN       ".bin"
#define BIN_INDEX ".bin.index.json"

/* The index that transformers reads, otherwise the only one, or NULL. */
static const char *find_index(const probe_input *in)
{
    static const char usual[] = MODEL BIN_INDEX;
    const char *found = NULL;
    size_t count = 0;
    if (probe_has_entry(in, usual))
        return usual;
    for (size_t i = 0; i < in->entry_count; i++) {
        const size_t n = strlen(in->entries[i]);
        if (n <= strlen(BIN_INDEX) ||
            strcmp(in->entries[i] + n - strlen(BIN_INDEX), BIN_INDEX) != 0)
            continue;
        found = in->entries[i];
        count++;
    }
    return count == 1 ? found : NULL;
}

static fsdpck_status check_files(const probe_input *in, const char *const *names, size_t count,
                                 bool is_one_model, fsdpck_error *err)
{
    hf_bin_files files;
    fsdpck_status st = FSDPCK_OK;
    hf_bin_files_init(&files, in, is_one_model);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = hf_bin_files_check(&files, names[i], err);
    hf_bin_files_release(&files);
    return st;
}

/* The files with the same numbering as `first`. */
static fsdpck_status check_family(const probe_input *in, const char *first, const shard_name *as,
                                  budget *owner, fsdpck_error *err)
{
    const bool is_model = strncmp(first, MODEL, strlen(MODEL)) == 0;
    const char **names = budget_alloc(owner, in->entry_count * sizeof *names, err);
    size_t count = 0;
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        shard_name parts;
        if (shard_name_parse_as(entry, BIN, &parts) &&
            shard_name_same_set(entry, &parts, first, as))
            names[count++] = entry;
    }
    const fsdpck_status st = check_files(in, names, count, is_model, err);
    budget_free(owner, names, in->entry_count * sizeof *names);
    return st;
}

static fsdpck_status check_families(const probe_input *in, budget *owner, fsdpck_error *err)
{
    const char *const whole[] = {MODEL BIN};
    if (probe_has_entry(in, whole[0]))
        RETURN_IF(check_files(in, whole, 1, true, err));
    for (size_t i = 0; i < in->entry_count; i++) {
        shard_name parts;
        if (shard_name_parse_as(in->entries[i], BIN, &parts) && parts.file_number == 1)
            RETURN_IF(check_family(in, in->entries[i], &parts, owner, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_index(const open_request *req, const char *index, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    budget *owner = req->metadata;
    hf_index ix;
    RETURN_IF(hf_index_read(&in->dir, index, owner, &ix, err));
    const size_t count = strtab_count(&ix.files);
    fsdpck_status st = FSDPCK_OK;
    const char **names = budget_alloc(owner, count * sizeof *names, err);
    if (names == NULL)
        st = FSDPCK_LIMIT;
    for (uint32_t i = 0; st == FSDPCK_OK && i < count; i++)
        names[i] = strtab_text(&ix.files, i);
    if (st == FSDPCK_OK) {
        qsort(names, count, sizeof *names, text_compare);
        st = hf_missing_check(req, names, count, BIN, NULL, err);
    }
    if (st == FSDPCK_OK)
        st = check_files(in, names, count, true, err);
    budget_free(owner, names, count * sizeof *names);
    hf_index_release(&ix);
    return st;
}

static fsdpck_status check(const open_request *req, fsdpck_error *err)
{
    static const char *const suffixes[] = {BIN, ".pt", ".pth", ".ckpt", ".h5", ".hdf5"};
    const probe_input *in = req->probe;
    const char *entry;
    const char *index = NULL;
    if (hf_keras_find(in, &index))
        return hf_keras_check(req, index, err);
    index = find_index(in);
    if (index != NULL)
        return check_index(req, index, err);
    /* Also if a file with the whole model exists, which may be older. */
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        RETURN_IF(hf_missing_check_mixed(in, suffixes[i], err));
        if (hf_missing_family(in, suffixes[i], &entry))
            return hf_missing_family_error(req, suffixes[i], entry, err);
    }
    return check_families(in, req->metadata, err);
}

static bool probe(const probe_input *in, const char **near_miss)
{
    const open_request req = {.probe = in};
    const char *index;
    (void)near_miss;
    if (in->is_folder && hf_keras_find(in, &index))
        return true;
    return in->is_folder && check(&req, NULL) == FSDPCK_BADINPUT;
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    (void)cat;
    *self = NULL;
    RETURN_IF(check(req, err));
    return FAIL_WITH(err, USAGE, NONE, ("folder holds several torch.save files"), (path, req->path),
                     (next, "name one of them"));
}

static void close_folder(void *self)
{
    (void)self;
}

const format_reader hf_bin_reader = {
    .name = "hf-bin",
    .description = "a folder of numbered .bin files, checked for missing files, read one at a time",
    .probe = probe,
    .open = open_folder,
    .close = close_folder,
    .id = FSDPCK_FORMAT_HF_BIN,
};
