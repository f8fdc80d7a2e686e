#include "formats/safetensors/hf_bin_files.h"

#include "base/platform.h"
#include "formats/common/torch_archive.h"

void hf_bin_files_init(hf_bin_files *b, const probe_input *in, bool is_one_model)
{
    *b = (hf_bin_files){.in = in, .is_one_model = is_one_model};
    budget_init(&b->owner, platform_memory_bytes() / 4, "metadata",
                "ulimit -v or the memory of the job: metadata may use a quarter of it");
    strtab_init(&b->tensors, &b->owner);
    b->files = VEC_OF(const char *, &b->owner);
}

void hf_bin_files_release(hf_bin_files *b)
{
    strtab_release(&b->tensors);
    vec_release(&b->files);
}

static fsdpck_status read_file(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    return file_read_at(ctx, offset_bytes, dst, nbytes, err);
}

static fsdpck_status add_name(hf_bin_files *b, const value_pool *pool, value key,
                              const char *in_file, fsdpck_error *err)
{
    size_t nbytes;
    uint32_t id;
    const char *name = value_text(pool, key, &nbytes);
    const size_t known = strtab_count(&b->tensors);
    RETURN_IF(strtab_intern(&b->tensors, name, nbytes, &id, err));
    if (id < known && *VEC_AT(&b->files, const char *const, id) == in_file)
        return FSDPCK_OK;
    if (id < known)
        return FAIL_WITH(
            err, BADINPUT, IDX_DUP, ("tensor is in two files"),
            (tensor, strtab_text(&b->tensors, id)),
            (found, "also in '%s'", *VEC_AT(&b->files, const char *const, id)),
            (next, "copy or download both files again: one may be a copy of the other"));
    const char **slot = vec_push(&b->files, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = in_file;
    return FSDPCK_OK;
}

/* A model is a dict of tensors. */
static fsdpck_status add_names(hf_bin_files *b, value_pool *pool, value root, const char *in_file,
                               fsdpck_error *err)
{
    value dict;
    if (!b->is_one_model || !value_as_dict(pool, root, &dict))
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const value key = value_key(pool, dict, i);
        if (value_kind_of(key) == VALUE_STR &&
            value_kind_of(value_item(pool, dict, i)) == VALUE_TENSOR)
            RETURN_IF(add_name(b, pool, key, in_file, err));
    }
    return FSDPCK_OK;
}

fsdpck_status hf_bin_files_check(hf_bin_files *b, const char *name, fsdpck_error *err)
{
    file f = FILE_CLOSED;
    torch_archive a;
    value_pool pool;
    if (file_open_read(&f, &b->in->dir, name, 0, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const zip_input in = {.read = read_file, .ctx = &f, .nbytes = f.nbytes};
    value_pool_init(&pool, &b->owner);
    fsdpck_status st = torch_archive_open(&in, &b->owner, &pool, TORCH_CALLS_KEEP_ALL, &a, err);
    if (st == FSDPCK_OK) {
        st = add_names(b, &pool, a.root, name, err);
        torch_archive_release(&a);
    }
    value_pool_release(&pool);
    file_abandon(&f);
    if (st == FSDPCK_BADINPUT)
        error_path_in(err, b->in->path, name);
    return st == FSDPCK_BADINPUT ? st : FSDPCK_OK;
}
