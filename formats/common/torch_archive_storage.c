#include <inttypes.h>
#include <string.h>

#include "formats/common/torch_archive_internal.h"

static fsdpck_status persid_bad(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, PT_PERSID, "persistent id of a storage has %s", what);
}

static fsdpck_status key_check(const char *key, size_t nbytes, fsdpck_error *err)
{
    const bool dots =
        (nbytes == 1 && key[0] == '.') || (nbytes == 2 && key[0] == '.' && key[1] == '.');
    char shown[160];

    if (nbytes > 0 && nbytes < 256 && !dots && memchr(key, '/', nbytes) == NULL &&
        memchr(key, '\0', nbytes) == NULL)
        return FSDPCK_OK;
    return FAIL(err, BADINPUT, PT_PERSID, "storage key is not a valid record name: '%s'",
                escape_text(shown, sizeof(shown), key, nbytes));
}

static fsdpck_status class_dtype(const value_pool *pool, value class, dtype *d, fsdpck_error *err)
{
    if (value_kind_of(class) != VALUE_SYMBOL)
        return persid_bad(err, "no storage class");
    const char *name = value_symbol_name(pool, class);
    *d = strcmp(name, "UntypedStorage") == 0 ? DTYPE_UINT8
                                             : dtype_from_storage_class(name, strlen(name));
    if (*d != DTYPE_NONE)
        return FSDPCK_OK;
    char shown[160];
    return FAIL_WITH(
        err, UNSUPPORTED, PT_TENSOR_KIND,
        ("storage class is not supported: '%s'",
         escape_text(shown, sizeof(shown), name, strlen(name))),
        (next, "quantized tensors must be dequantized in the program that saves them"));
}

/* Finds the record data/KEY and compares its size. */
static fsdpck_status storage_record(const zip_archive *zip, const char *key, size_t key_nbytes,
                                    torch_storage *s, fsdpck_error *err)
{
    char name[5 + 256] = "data/";
    char shown[160];

    memcpy(name + 5, key, key_nbytes);
    name[5 + key_nbytes] = '\0';
    const zip_entry *e = zip_find(zip, name);
    escape_text(shown, sizeof(shown), name, key_nbytes + 5);
    if (e == NULL)
        return FAIL(err, BADINPUT, PT_PERSID, "record '%s' of a storage is missing", shown);
    s->entry = (uint32_t)(e - VEC_AT(&zip->entries, const zip_entry, 0));
    s->data_offset_bytes = e->data_offset_bytes;
    s->header_offset_bytes = zip->in.base_offset_bytes + e->header_offset_bytes;
    s->crc32 = e->crc32;
    s->has_crc = !zip->no_crc;
    s->deflated = e->method != 0;
    if (e->nbytes == s->nbytes)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, PT_STORAGE_SIZE,
                     ("size of record '%s' differs from its storage", shown),
                     (expected, "%" PRIu64 " bytes", s->nbytes),
                     (found, "%" PRIu64 " bytes", e->nbytes), (offset, e->data_offset_bytes));
}

static fsdpck_status storage_find_or_add(torch_builder *b, const torch_storage *claim,
                                         const char *key, size_t key_nbytes, uint32_t *index,
                                         fsdpck_error *err)
{
    torch_archive *a = b->archive;

    RETURN_IF(strtab_intern(&b->keys, key, key_nbytes, index, err));
    if (*index < a->storages.count) {
        const torch_storage *s = VEC_AT(&a->storages, torch_storage, *index);
        if (s->dtype == claim->dtype && s->nbytes == claim->nbytes && s->meta == claim->meta)
            return FSDPCK_OK;
        return persid_bad(err, "a dtype or size that differs from an earlier one of the same key");
    }
    torch_storage s = *claim;
    s.entry = UINT32_MAX;
    if (!b->no_records && !s.meta)
        RETURN_IF(storage_record(&a->zip, key, key_nbytes, &s, err));
    return vec_add(&a->storages, &s, err);
}

/* Legacy (view_key, offset, size): a part of the storage; otherwise None. */
static fsdpck_status view_parse(const value_pool *pool, value view, uint64_t nelems,
                                storage_ref *ref, fsdpck_error *err)
{
    uint64_t size;

    if (value_is_none(view))
        return FSDPCK_OK;
    if (value_kind_of(view) != VALUE_TUPLE || value_count(pool, view) != 3 ||
        !value_as_u64(pool, value_item(pool, view, 1), &ref->offset_nelems) ||
        !value_as_u64(pool, value_item(pool, view, 2), &size) ||
        !checked_range(ref->offset_nelems, size, nelems))
        return persid_bad(err, "a view that is not inside its storage");
    return FSDPCK_OK;
}

fsdpck_status torch_persid_resolve(torch_builder *b, value_pool *pool, value args, value *resolved,
                                   fsdpck_error *err)
{
    const size_t count = value_kind_of(args) == VALUE_TUPLE ? value_count(pool, args) : 0;
    torch_storage claim = {0};
    storage_ref ref = {0};
    uint64_t nelems;
    size_t key_nbytes, location_nbytes;
    dtype d = DTYPE_NONE;

    if (b->archive->is_legacy && count >= 2 &&
        value_is_str(pool, value_item(pool, args, 0), "module")) {
        *resolved = value_item(pool, args, 1);
        return FSDPCK_OK;
    }
    if (count != (b->archive->is_legacy ? 6 : 5) ||
        !value_is_str(pool, value_item(pool, args, 0), "storage"))
        return persid_bad(err, "a form other than ('storage', class, key, location, count)");
    fsdpck_status st = class_dtype(pool, value_item(pool, args, 1), &d, err);
    if (st == FSDPCK_UNSUPPORTED && b->calls != TORCH_CALLS_REFUSE) {
        *resolved = VALUE_OF_NONE; /* of a quantized tensor, whose call is kept without it */
        return FSDPCK_OK;
    }
    RETURN_IF(st);
    if (value_kind_of(value_item(pool, args, 2)) != VALUE_STR ||
        value_kind_of(value_item(pool, args, 3)) != VALUE_STR)
        return persid_bad(err, "a key or location that is not a string");
    if (!value_as_u64(pool, value_item(pool, args, 4), &nelems))
        return persid_bad(err, "an invalid element count");
    const char *location = value_text(pool, value_item(pool, args, 3), &location_nbytes);
    claim.meta = location_nbytes == 4 && memcmp(location, "meta", 4) == 0;
    const char *text = value_text(pool, value_item(pool, args, 2), &key_nbytes);
    RETURN_IF(key_check(text, key_nbytes, err));
    char key[256];
    memcpy(key, text, key_nbytes);
    RETURN_IF(strtab_intern(&pool->strings, key, key_nbytes, &claim.key, err));
    claim.dtype = (uint8_t)d;
    RETURN_IF(torch_storage_nbytes(d, nelems, &claim.nbytes, err));
    RETURN_IF(storage_find_or_add(b, &claim, key, key_nbytes, &ref.storage, err));
    if (count == 6)
        RETURN_IF(view_parse(pool, value_item(pool, args, 5), nelems, &ref, err));
    RETURN_IF(vec_add(&b->refs, &ref, err));
    *resolved = value_of_host(b->refs.count - 1);
    return FSDPCK_OK;
}
