#include "formats/safetensors/hf_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define INDEX_NBYTES_MAX ((uint64_t)256 << 20)

static fsdpck_status fail(fsdpck_error *err, size_t offset_bytes, const char *what)
{
    return FAIL_WITH(err, BADINPUT, IDX_JSON, ("%s", what), (offset, offset_bytes));
}

/* The value as it is written. Of "total_size" only integers are used: old conversions wrote a float. */
static fsdpck_status read_member(json_reader *r, const text_buf *key, hf_index *ix,
                                 fsdpck_error *err)
{
    json_token t;
    RETURN_IF(text_check(key, err));
    RETURN_IF(json_next(r, &t, err));
    const bool is_u64 = t.kind == JSON_NUMBER && t.is_u64;
    const size_t begin = t.offset_bytes;
    const uint64_t n = t.u64;
    RETURN_IF(json_skip(r, &t, err));
    if (!text_is(key->text, key->nbytes, "total_size"))
        return cat_metadata_add(&ix->metadata, key->text, key->nbytes, r->text + begin,
                                r->at - begin, err);
    if (is_u64) {
        ix->has_total = true;
        ix->total_nbytes = n;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_metadata(json_reader *r, hf_index *ix, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_OBJECT)
        return json_skip(r, &t, err);
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        text_buf key = {.limit_bytes = INDEX_NBYTES_MAX};
        text_append(&key, t.text, t.nbytes);
        const fsdpck_status st = read_member(r, &key, ix, err);
        text_release(&key);
        RETURN_IF(st);
    }
}

static fsdpck_status read_map(json_reader *r, hf_index *ix, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_OBJECT)
        return fail(err, t.offset_bytes, "'weight_map' is not an object");
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const size_t known = strtab_count(&ix->tensors);
        uint32_t tensor;
        uint32_t path;
        RETURN_IF(strtab_intern(&ix->tensors, t.text, t.nbytes, &tensor, err));
        if (tensor < known)
            return FAIL_WITH(err, BADINPUT, IDX_DUP, ("'weight_map' contains a tensor twice"),
                             (offset, t.offset_bytes), (tensor, strtab_text(&ix->tensors, tensor)));
        RETURN_IF(json_next(r, &t, err));
        if (t.kind != JSON_STRING)
            return fail(err, t.offset_bytes, "'weight_map' has a value that is not a string");
        const fsdpck_status st = path_check_inside(t.text, t.nbytes, FSDPCK_FINDING_IDX_PATH, err);
        if (st != FSDPCK_OK) {
            error_offset(err, t.offset_bytes);
            error_tensor(err, strtab_text(&ix->tensors, tensor));
            return st;
        }
        RETURN_IF(strtab_intern(&ix->files, t.text, t.nbytes, &path, err));
        RETURN_IF(vec_add(&ix->file_of, &(uint32_t){path}, err));
    }
}

static fsdpck_status read_root(json_reader *r, hf_index *ix, fsdpck_error *err)
{
    bool has_map = false;
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_OBJECT)
        return fail(err, 0, "index is not an object");
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        if (json_is(&t, "weight_map")) {
            if (has_map)
                return fail(err, t.offset_bytes, "index has 'weight_map' twice");
            has_map = true;
            RETURN_IF(read_map(r, ix, err));
        } else if (json_is(&t, "metadata")) {
            RETURN_IF(read_metadata(r, ix, err));
        } else {
            RETURN_IF(json_next(r, &t, err));
            RETURN_IF(json_skip(r, &t, err));
        }
    }
    RETURN_IF(json_next(r, &t, err)); /* nothing may follow */
    if (ix->file_of.count == 0)
        return fail(err, 0, has_map ? "'weight_map' is empty" : "index has no 'weight_map'");
    return FSDPCK_OK;
}

fsdpck_status hf_index_parse(const char *text, size_t nbytes, budget *owner, hf_index *ix,
                             fsdpck_error *err)
{
    *ix = (hf_index){.file_of = VEC_OF(uint32_t, owner)};
    strtab_init(&ix->tensors, owner);
    strtab_init(&ix->files, owner);
    cat_metadata_init(&ix->metadata, owner);
    json_reader r;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_IDX_JSON);
    const fsdpck_status st = read_root(&r, ix, err);
    json_reader_release(&r);
    if (st != FSDPCK_OK)
        hf_index_release(ix);
    return st;
}

fsdpck_status hf_index_read(const folder *dir, const char *name, budget *owner, hf_index *ix,
                            fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    *ix = (hf_index){0};
    fsdpck_status st = file_read_whole(dir, name, INDEX_NBYTES_MAX, &text, &nbytes, err);
    if (st == FSDPCK_LIMIT && err != NULL && err->finding == FSDPCK_FINDING_LIMIT_SIZE)
        err->finding = FSDPCK_FINDING_IDX_JSON;
    RETURN_IF(st);
    st = hf_index_parse(text, nbytes, owner, ix, err);
    free(text);
    if (st != FSDPCK_OK) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", dir->path, name);
        error_path(err, path);
    }
    return st;
}

void hf_index_release(hf_index *ix)
{
    strtab_release(&ix->tensors);
    strtab_release(&ix->files);
    vec_release(&ix->file_of);
    cat_metadata_release(&ix->metadata);
}
