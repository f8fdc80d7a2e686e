/* torch.save names the root of its zip after the file that it writes, without the last suffix: "rank_1" of "rank_1.pt". A
 * file that was exchanged with another one, or is a copy of it, still has the other's name (PyTorchStreamWriter, since
 * torch 1.6). Files of a program that renames what it saved have names of no file here, or each that of the next. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/torch_folder/torch_folder.h"

/* The name without its last suffix. */
static size_t stem_nbytes(const char *path)
{
    const char *dot = strrchr(text_file_name(path), '.');
    return dot != NULL ? (size_t)(dot - path) : strlen(path);
}

static const char *path_of(torch_folder *r, size_t index)
{
    return file_set_path(&r->files, (uint32_t)index);
}

void torch_file_note_root(torch_folder *r, uint32_t index, const char *root)
{
    const char *path = path_of(r, index), *name = text_file_name(path);
    const size_t folder_nbytes = (size_t)(name - path), root_nbytes = strlen(root);
    torch_folder_file *f = VEC_AT(&r->inputs, torch_folder_file, index);
    free(f->saved_as);
    f->saved_as = NULL;
    if (root_nbytes == 0 || text_is(name, stem_nbytes(path) - folder_nbytes, root))
        return;
    f->saved_as = malloc(folder_nbytes + root_nbytes + 1);
    if (f->saved_as == NULL)
        return;
    memcpy(f->saved_as, path, folder_nbytes);
    memcpy(f->saved_as + folder_nbytes, root, root_nbytes + 1);
}

typedef struct named_file {
    const char *path;
    size_t nbytes; /* of the stem */
    uint32_t index;
} named_file;

static int compare_stems(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const int order = memcmp(a, b, a_nbytes < b_nbytes ? a_nbytes : b_nbytes);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

static int by_stem(const void *a, const void *b)
{
    const named_file *one = a, *other = b;
    return compare_stems(one->path, one->nbytes, other->path, other->nbytes);
}

/* The file that has the name now, or CAT_NONE. */
static uint32_t find_file(const named_file *files, size_t count, const char *stem)
{
    const named_file key = {.path = stem, .nbytes = strlen(stem)};
    const named_file *found = bsearch(&key, files, count, sizeof *files, by_stem);
    return found == NULL ? CAT_NONE : found->index;
}

/* Whether the file with this file's recorded name has its own, or both are in a circle of exchanged ones. */
static bool is_exchanged(const torch_folder *r, const named_file *files, size_t index)
{
    const size_t count = r->inputs.count;
    uint32_t at = (uint32_t)index;
    for (size_t steps = 0; steps <= count; steps++) {
        const char *saved_as = VEC_AT(&r->inputs, const torch_folder_file, at)->saved_as;
        if (saved_as == NULL)
            return true;
        at = find_file(files, count, saved_as);
        if (at == CAT_NONE)
            return false;
    }
    return true;
}

void torch_file_names_check(torch_folder *r, const open_request *req)
{
    const size_t count = r->inputs.count;
    const torch_folder_file *inputs = r->inputs.items;
    size_t exchanged = 0, first = 0, odd = 0;
    for (size_t i = 0; i < count; i++)
        odd += inputs[i].saved_as != NULL;
    named_file *files = odd == 0 ? NULL : calloc(count, sizeof *files);
    if (files == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        files[i] = (named_file){path_of(r, i), stem_nbytes(path_of(r, i)), (uint32_t)i};
    qsort(files, count, sizeof *files, by_stem);
    for (size_t i = count; i-- > 0;) {
        if (inputs[i].saved_as == NULL || !is_exchanged(r, files, i))
            continue;
        first = i;
        exchanged++;
    }
    if (exchanged > 0)
        log_warn(
            &req->log, FSDPCK_FINDING_RANK_NAME,
            "check whether the files were exchanged, or copied, by mistake",
            "'%s/%s' records that it was saved as '%s', which is the name of another file here; "
            "%zu file%s of this kind",
            req->path, path_of(r, first), text_file_name(inputs[first].saved_as), exchanged,
            text_plural(exchanged));
    free(files);
}
