/* A Hugging Face folder: an index of any bytes, and files described by the input.
 *
 *     u8 number of files (0 to 3), then for each: u8 number of tensors (0 to 7), for each of them u8:
 *     lower half its name (t0 to t15), upper half its size; then the index, omitted if no byte remains
 *
 * Next to the folder is a file that no index may reach. An accepted folder has each tensor of each
 * opened file once, in its file at its offset, and all tensors of the index. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/st.h"
#include "tests/support/must.h"

enum { FILES_MAX = 3, TENSORS_MAX = 7, INDEX_NBYTES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static const char *const file_names[] = {"a.safetensors", "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors"};
#define INDEX_NAME "model.safetensors.index.json"
#define OUTSIDE    "outside.safetensors"

/* Each file's tensors as bytes of the input; -1: no file. */
typedef struct contents {
    int count[FILES_MAX];
    uint8_t tensors[FILES_MAX][TENSORS_MAX];
} contents;

static char parent[256], folder_path[300], sub_path[310];
static contents there; /* what the files hold since the last input */

static void write_file(const char *dir, const char *name, const void *bytes, size_t nbytes)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes && close(fd) == 0, "cannot write");
}

static void remove_file(const char *dir, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static void remove_all(void)
{
    for (int i = 0; i < FILES_MAX; i++)
        remove_file(folder_path, file_names[i]);
    remove_file(folder_path, INDEX_NAME);
    remove_file(parent, OUTSIDE);
    rmdir(sub_path);
    rmdir(folder_path);
    rmdir(parent);
}

static void write_tensors(const char *dir, const char *name, const char *prefix,
                          const uint8_t *tensors, int count)
{
    char text[1024] = {0};
    size_t n = 8, at = 0;
    text[n++] = '{';
    for (int i = 0; i < count; i++) {
        const unsigned nbytes = tensors[i] >> 4;
        n += (size_t)snprintf(
            text + n, sizeof text - n,
            "%s\"%s%u\":{\"dtype\":\"U8\",\"shape\":[%u],\"data_offsets\":[%zu,%zu]}",
            i > 0 ? "," : "", prefix, tensors[i] & 15, nbytes, at, at + nbytes);
        at += nbytes;
    }
    text[n++] = '}';
    text[0] = (char)((n - 8) & 0xff);
    text[1] = (char)((n - 8) >> 8);
    must(n + at < sizeof text, "too long");
    write_file(dir, name, text, n + at);
}

static void make_folders(void)
{
    const char *tmp = getenv("TMPDIR");
    const uint8_t outside[] = {0x10};
    snprintf(parent, sizeof parent, "%s/fuzz_folder.XXXXXX", tmp != NULL ? tmp : "/tmp");
    must(mkdtemp(parent) != NULL, "cannot make a folder");
    snprintf(folder_path, sizeof folder_path, "%s/in", parent);
    snprintf(sub_path, sizeof sub_path, "%s/sub", folder_path);
    must(mkdir(folder_path, 0700) == 0 && mkdir(sub_path, 0700) == 0, "cannot make a folder");
    atexit(remove_all);
    there = (contents){.count = {-1, -1, -1}};
    write_tensors(parent, OUTSIDE, "outside", outside, 1);
}

/* A tensor twice in one file is the header's business: left out. */
static contents split_contents(const uint8_t **data, size_t *nbytes)
{
    contents c = {.count = {-1, -1, -1}};
    const uint8_t *p = *data, *end = p + *nbytes;
    const int files = p < end ? *p++ % (FILES_MAX + 1) : 0;
    for (int f = 0; f < files; f++) {
        const int count = p < end ? *p++ % (TENSORS_MAX + 1) : 0;
        unsigned seen = 0;
        c.count[f] = 0;
        for (int i = 0; i < count && p < end; i++, p++) {
            if ((seen >> (*p & 15) & 1) == 0)
                c.tensors[f][c.count[f]++] = *p;
            seen |= 1u << (*p & 15);
        }
    }
    *nbytes = (size_t)(end - p);
    *data = p;
    return c;
}

/* Whether a path of the folder is this file: "./a" is "a". */
static bool is_file(const char *path, const char *name)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return strcmp(path, name) == 0;
}

/* What the input says of a tensor in the file that `path` names; -1: nothing. */
static int nbytes_in(const contents *c, const char *path, unsigned tensor)
{
    for (int f = 0; f < FILES_MAX; f++)
        for (int i = 0; is_file(path, file_names[f]) && i < c->count[f]; i++)
            if ((c->tensors[f][i] & 15) == tensor)
                return c->tensors[f][i] >> 4;
    return -1;
}

static void check_tensor(const catalogue *cat, size_t i, const contents *c, unsigned *seen)
{
    const cat_tensor *t = catalogue_tensor(cat, i);
    const char *name = catalogue_name(cat, t->name);
    char *end;
    must(name[0] == 't', "a tensor of a file that is not in the folder");
    const unsigned number = (unsigned)strtoul(name + 1, &end, 10);
    must(*end == '\0' && number < 16 && t->nchunks == 1, "an odd tensor");
    const cat_chunk *k = catalogue_chunk(cat, t->first_chunk);
    const int nbytes =
        nbytes_in(c, catalogue_name(cat, catalogue_file(cat, k->file)->path), number);
    must(nbytes >= 0, "a tensor that its file does not have");
    must(t->ndim == 1 && catalogue_shape(cat, i)[0] == (uint64_t)nbytes, "another size");
    must((*seen >> number & 1) == 0, "a tensor twice");
    *seen |= 1u << number;
}

/* An opened folder matches its files. */
static void check_catalogue(const catalogue *cat, const contents *c, const hf_index *ix)
{
    unsigned seen = 0;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        check_tensor(cat, i, c, &seen);
    for (size_t f = 0; f < catalogue_file_count(cat); f++) {
        const char *path = catalogue_name(cat, catalogue_file(cat, f)->path);
        for (int k = 0; k < FILES_MAX; k++)
            for (int i = 0; is_file(path, file_names[k]) && i < c->count[k]; i++)
                must(seen >> (c->tensors[k][i] & 15) & 1, "a tensor of a file is left out");
    }
    for (uint32_t i = 0; ix != NULL && i < ix->file_of.count; i++) {
        const char *name = strtab_text(&ix->tensors, i);
        const uint32_t t = catalogue_find(cat, name, strtab_nbytes(&ix->tensors, i));
        must(t != CAT_NONE, "a tensor of the index is left out");
        const cat_chunk *k = catalogue_chunk(cat, catalogue_tensor(cat, t)->first_chunk);
        must(strcmp(catalogue_name(cat, catalogue_file(cat, k->file)->path),
                    strtab_text(&ix->files, *VEC_AT(&ix->file_of, const uint32_t, i))) == 0,
             "a tensor is not in the file that the index names");
    }
}

/* No path of an index that is accepted leads out of the folder. */
static void check_paths(const hf_index *ix)
{
    for (uint32_t i = 0; i < strtab_count(&ix->files); i++) {
        const char *path = strtab_text(&ix->files, i);
        must(path[0] != '/' && strlen(path) == strtab_nbytes(&ix->files, i), "an absolute path");
        for (const char *part = path; part != NULL; part = strchr(part, '/')) {
            part += *part == '/';
            must(strncmp(part, "..", 2) != 0 || (part[2] != '/' && part[2] != '\0'),
                 "a path with a part '..'");
        }
    }
}

static void open_it(const contents *c, const uint8_t *index, size_t nbytes)
{
    budget b;
    catalogue cat;
    fsdpck_error err;
    hf_index ix;
    void *self = NULL;
    probe_input in = {.path = folder_path, .is_folder = true};
    fsdpck_error_init(&err);
    budget_init(&b, 64u << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    must(folder_open(&in.dir, folder_path, NULL) == FSDPCK_OK &&
             folder_list(&in.dir, NULL, &in.entries, &in.entry_count, NULL) == FSDPCK_OK,
         "cannot list the folder");
    const open_request req = {.path = folder_path, .probe = &in, .metadata = &b, .nthreads = 1};
    const bool has_index =
        nbytes > 0 && hf_index_parse((const char *)index, nbytes, &b, &ix, NULL) == FSDPCK_OK;
    if (has_index)
        check_paths(&ix);
    const fsdpck_status st = hf_reader.open(&req, &cat, &self, &err);
    if (st == FSDPCK_OK) {
        must(nbytes == 0 || has_index, "opened by an index that is refused");
        check_catalogue(&cat, c, has_index ? &ix : NULL);
        hf_reader.close(self);
    } else {
        must(err.message[0] != '\0' && err.finding != FSDPCK_FINDING_NONE,
             "refused without a word");
    }
    if (has_index)
        hf_index_release(&ix);
    free(in.entries);
    folder_close(&in.dir);
    catalogue_release(&cat);
    must(b.used_bytes == 0, "memory kept");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    if (parent[0] == '\0')
        make_folders();
    if (nbytes > INDEX_NBYTES_MAX)
        return 0;
    const contents c = split_contents(&data, &nbytes);
    for (int f = 0; f < FILES_MAX; f++) {
        if (c.count[f] == there.count[f] &&
            memcmp(c.tensors[f], there.tensors[f], TENSORS_MAX) == 0)
            continue;
        if (c.count[f] >= 0)
            write_tensors(folder_path, file_names[f], "t", c.tensors[f], c.count[f]);
        else
            remove_file(folder_path, file_names[f]);
    }
    there = c;
    if (nbytes > 0)
        write_file(folder_path, INDEX_NAME, data, nbytes);
    else
        remove_file(folder_path, INDEX_NAME);
    open_it(&c, data, nbytes);
    return 0;
}
