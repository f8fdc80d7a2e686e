#include "formats/safetensors/hf_keras.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "formats/safetensors/hf_missing.h"

#define INDEX_SUFFIX     ".weights.json"
#define SHARD_SUFFIX     ".weights.h5"
#define INDEX_NBYTES_MAX ((uint64_t)64 << 20)

/* Keras writes '_%05d'. */
enum { SHARD_DIGITS = 5 };

/* Bytes before "_00000.weights.h5"; 0 if the name has another form. */
static size_t stem_nbytes(const char *name)
{
    const size_t n = strlen(name), k = SHARD_DIGITS + sizeof SHARD_SUFFIX; /* with "_" */
    if (n <= k || !text_ends_with(name, n, SHARD_SUFFIX) || name[n - k] != '_' ||
        strspn(name + n - k + 1, "0123456789") != SHARD_DIGITS)
        return 0;
    return n - k;
}

bool hf_keras_is_shard(const char *name)
{
    return stem_nbytes(name) > 0;
}

bool hf_keras_find(const probe_input *in, const char **index)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        *index = in->entries[i];
        const size_t n = strlen(*index), k = strlen(INDEX_SUFFIX);
        if (n <= k || !text_ends_with(*index, n, INDEX_SUFFIX))
            continue;
        for (size_t shard = 0; shard < in->entry_count; shard++)
            if (stem_nbytes(in->entries[shard]) == n - k &&
                strncmp(in->entries[shard], *index, n - k) == 0)
                return true;
    }
    return false;
}

/* All texts in "weight_map": a list of files for each layer. */
static fsdpck_status read_map(json_reader *r, strtab *files, fsdpck_error *err)
{
    json_token t;
    uint32_t id;
    unsigned depth = 0;
    do {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_STRING) {
            RETURN_IF(path_check_inside(t.text, t.nbytes, FSDPCK_FINDING_IDX_PATH, err));
            RETURN_IF(strtab_intern(files, t.text, t.nbytes, &id, err));
        }
        depth += t.kind == JSON_OBJECT || t.kind == JSON_ARRAY;
        depth -= t.kind == JSON_OBJECT_END || t.kind == JSON_ARRAY_END;
    } while (depth > 0);
    return FSDPCK_OK;
}

static fsdpck_status read_root(json_reader *r, strtab *files, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_next(r, &t, err); /* nothing may follow */
        if (json_is(&t, "weight_map")) {
            RETURN_IF(read_map(r, files, err));
            continue;
        }
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(json_skip(r, &t, err));
    }
}

static fsdpck_status read_index(const open_request *req, const char *index, strtab *files,
                                fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    RETURN_IF(file_read_whole(&req->probe->dir, index, INDEX_NBYTES_MAX, &text, &nbytes, err));
    json_reader r;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_IDX_JSON);
    const fsdpck_status st = read_root(&r, files, err);
    json_reader_release(&r);
    free(text);
    return st;
}

static fsdpck_status check_files(const open_request *req, const strtab *files, fsdpck_error *err)
{
    const size_t count = strtab_count(files);
    const char **names = budget_alloc(req->metadata, (count + 1) * sizeof *names, err);
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < count; i++)
        names[i] = strtab_text(files, i);
    qsort(names, count, sizeof *names, text_compare);
    const fsdpck_status st = hf_missing_check(req, names, count, ".h5", NULL, err);
    budget_free(req->metadata, names, (count + 1) * sizeof *names);
    return st;
}

fsdpck_status hf_keras_check(const open_request *req, const char *index, fsdpck_error *err)
{
    strtab files;
    strtab_init(&files, req->metadata);
    fsdpck_status st = read_index(req, index, &files, err);
    if (st == FSDPCK_OK)
        st = check_files(req, &files, err);
    else
        error_path(err, req->path);
    const size_t count = strtab_count(&files);
    strtab_release(&files);
    RETURN_IF(st);
    return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN, ("weights of a Keras model in several files"),
                     (path, req->path),
                     (found, "%zu file%s in '%s'", count, text_plural(count), index),
                     (next, "save the model again in one file, with model.save_weights(PATH); to "
                            "read only some of the layers, give one of the files"));
}
