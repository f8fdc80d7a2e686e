#include "formats/common/torch_serialization_id.h"

#include <inttypes.h>

bool torch_serialization_id_differs(const uint8_t *text, size_t nbytes, uint64_t hash)
{
    uint64_t stated = 0;
    if (nbytes != TORCH_SERIALIZATION_ID_NBYTES)
        return false;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (i >= nbytes / 2 && !checked_mul_add(stated, 10, (uint64_t)(text[i] - '0'), &stated))
            return false;
    }
    return stated != hash;
}

fsdpck_status torch_serialization_id_check(const zip_archive *z, fsdpck_error *err)
{
    const zip_entry *id = zip_find(z, TORCH_SERIALIZATION_ID_RECORD);
    uint8_t *text;
    uint64_t nbytes, hash = 0;

    if (id == NULL || z->no_crc)
        return FSDPCK_OK;
    for (size_t i = 0; i < z->entries.count; i++) {
        const zip_entry *e = VEC_AT(&z->entries, const zip_entry, i);
        if (e == id)
            break;
        if (e->nbytes == 0)
            continue;
        if (e->crc32 == 0) /* not yet filled in, as with torch's skip_data */
            return FSDPCK_OK;
        hash = torch_serialization_id_add(hash, e->crc32);
    }
    /* The check of the record itself reports its own defects. */
    if (zip_read_entry(z, id, TORCH_SERIALIZATION_ID_NBYTES, &text, &nbytes, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const bool differs = torch_serialization_id_differs(text, nbytes, hash);
    fsdpck_status st = FSDPCK_OK;
    if (differs)
        st = FAIL_WITH(err, BADINPUT, PT_SERID, ("serialization id does not match the records"),
                       (offset, id->data_offset_bytes), (expected, "...%020" PRIu64, hash),
                       (found, "...%.20s", (const char *)text + TORCH_SERIALIZATION_ID_NBYTES / 2));
    budget_free(z->owner, text, nbytes);
    return st;
}
