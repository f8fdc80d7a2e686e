#include "open/folder_set.h"

#include "base/bytes.h"

void folder_set_init(folder_set *s)
{
    strtab_init(&s->ids, NULL);
}

fsdpck_status folder_set_add(folder_set *s, const folder_id *id, bool *is_new, fsdpck_error *err)
{
    uint8_t key[16];
    uint32_t at;
    const size_t known = strtab_count(&s->ids);
    store_le64(key, id->dev);
    store_le64(key + 8, id->ino);
    RETURN_IF(strtab_intern(&s->ids, (const char *)key, sizeof key, &at, err));
    *is_new = strtab_count(&s->ids) > known;
    return FSDPCK_OK;
}

void folder_set_release(folder_set *s)
{
    strtab_release(&s->ids);
}
