/* A Hugging Face folder of torch.save files that are not all there. It is claimed so that its owner
 * learns what is missing; the files of a complete folder are read one by one. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/hf_missing.h"
#include "formats/safetensors/st.h"

#define BIN       ".bin"
#define BIN_INDEX ".bin.index.json"

/* The index that transformers reads, else the only one; NULL. */
static const char *find_index(const probe_input *in)
{
    static const char usual[] = "pytorch_model" BIN_INDEX;
    const char *found = NULL;
    size_t count = 0;
    if (hf_missing_has_entry(in, usual))
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

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fsdpck_status check_index(const probe_input *in, const char *index, budget *owner,
                                 fsdpck_error *err)
{
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
        qsort(names, count, sizeof *names, by_text);
        st = hf_missing_check(in, names, count, BIN, err);
    }
    budget_free(owner, names, count * sizeof *names);
    hf_index_release(&ix);
    return st;
}

static fsdpck_status check(const probe_input *in, budget *owner, fsdpck_error *err)
{
    const char *entry;
    const char *index = find_index(in);
    if (index != NULL)
        return check_index(in, index, owner, err);
    /* One file of the whole model is read rather than those beside it. */
    if (!hf_missing_has_entry(in, "pytorch_model" BIN) && hf_missing_family(in, BIN, &entry))
        return hf_missing_family_error(in, BIN, entry, err);
    return FSDPCK_OK;
}

static bool probe(const probe_input *in, const char **near_miss)
{
    (void)near_miss;
    return in->is_folder && check(in, NULL, NULL) == FSDPCK_BADINPUT;
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    (void)cat;
    *self = NULL;
    RETURN_IF(check(req->probe, req->metadata, err));
    const fsdpck_status st = error_set(err, FSDPCK_USAGE, FSDPCK_FINDING_NONE,
                                       "folder holds several files of torch.save");
    error_path(err, req->path);
    error_next(err, "name one of them");
    return st;
}

static void close_folder(void *self)
{
    (void)self;
}

const format_reader hf_bin_reader = {
    .name = "hf-bin",
    .description = "a folder of numbered .bin files: checked for missing files, read one by one",
    .probe = probe,
    .open = open_folder,
    .close = close_folder,
};
