#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/platform.h"
#include "base/text.h"

/* The length is the distance to the next entry's text, less the NUL. */
struct strtab_entry {
    uint32_t text_at;
    uint32_t hash;
};

enum { FIRST_BUCKETS = 64 };

static uint64_t fold_product(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    const u128 p = (u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Multiply-and-fold over 16 bytes at a time. Both factors are masked with secrets from the seed:
 * with published constants a chosen block could make a factor zero and cancel the seed. */
static uint32_t hash_bytes(const uint8_t *p, size_t nbytes, uint64_t seed)
{
    const uint64_t secret = fold_product(seed ^ 0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u);
    const uint64_t secret2 = secret * 0xBF58476D1CE4E5B9u + 0x94D049BB133111EBu;
    uint64_t h = seed;
    size_t left = nbytes;
    for (; left > 16; left -= 16, p += 16)
        h = fold_product(load_le64(p) ^ secret, load_le64(p + 8) ^ secret2 ^ h) + (h >> 32);
    uint64_t a = 0;
    uint64_t b = 0;
    if (left >= 8) {
        a = load_le64(p);
        b = load_le64(p + left - 8);
    } else if (left >= 4) {
        a = load_le32(p);
        b = load_le32(p + left - 4);
    } else if (left > 0) {
        a = (uint64_t)p[0] | ((uint64_t)p[left / 2] << 8) | ((uint64_t)p[left - 1] << 16);
    }
    h = fold_product(a ^ secret, b ^ secret2 ^ h);
    h = fold_product(h ^ secret2, (uint64_t)nbytes ^ secret);
    return (uint32_t)(h ^ (h >> 32));
}

void strtab_init(strtab *t, budget *owner)
{
    memset(t, 0, sizeof(*t));
    t->text = VEC_OF(char, owner);
    t->entries = VEC_OF(struct strtab_entry, owner);
    t->buckets = VEC_OF(uint32_t, owner);
    t->owner = owner;
    platform_random(&t->seed, sizeof(t->seed));
}

static const struct strtab_entry *entry_at(const strtab *t, uint32_t id)
{
    return VEC_AT(&t->entries, const struct strtab_entry, id);
}

size_t strtab_count(const strtab *t)
{
    return t->entries.count;
}

const char *strtab_text(const strtab *t, uint32_t id)
{
    return (const char *)t->text.items + entry_at(t, id)->text_at;
}

size_t strtab_nbytes(const strtab *t, uint32_t id)
{
    const size_t end =
        (size_t)id + 1 < t->entries.count ? entry_at(t, id + 1)->text_at : t->text.count;
    return end - entry_at(t, id)->text_at - 1;
}

bool strtab_is(const strtab *t, uint32_t id, const char *text, size_t nbytes)
{
    return text_equal(strtab_text(t, id), strtab_nbytes(t, id), text, nbytes);
}

/* The bucket of the string, or the empty bucket for it. */
static size_t bucket_of(const strtab *t, const char *text, size_t nbytes, uint32_t hash)
{
    const uint32_t *buckets = t->buckets.items;
    const size_t mask = t->buckets.count - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        const uint32_t id = buckets[i];
        if (id == STRTAB_NONE)
            return i;
        if (entry_at(t, id)->hash == hash && strtab_is(t, id, text, nbytes))
            return i;
    }
}

static void fill_buckets(strtab *t)
{
    uint32_t *buckets = t->buckets.items;
    const size_t mask = t->buckets.count - 1;
    memset(buckets, 0xFF, t->buckets.count * sizeof *buckets); /* STRTAB_NONE everywhere */
    for (uint32_t id = 0; id < t->entries.count; id++) {
        size_t i = entry_at(t, id)->hash & mask;
        while (buckets[i] != STRTAB_NONE)
            i = (i + 1) & mask;
        buckets[i] = id;
    }
}

static fsdpck_status grow_buckets(strtab *t, fsdpck_error *err)
{
    const size_t count = t->buckets.count > 0 ? t->buckets.count * 2 : FIRST_BUCKETS;
    vec grown = VEC_OF(uint32_t, t->owner);
    if (count < t->buckets.count)
        return error_set_nomem(err, UINT64_MAX);
    RETURN_IF(vec_reserve(&grown, count, err));
    grown.count = count;
    vec_release(&t->buckets);
    t->buckets = grown;
    fill_buckets(t);
    return FSDPCK_OK;
}

static fsdpck_status add_entry(strtab *t, const char *text, size_t nbytes, uint32_t hash,
                               fsdpck_error *err)
{
    const size_t text_at = t->text.count;
    if (t->entries.count >= STRTAB_NONE - 1 || !checked_range(text_at, nbytes, UINT32_MAX))
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many names, or more than 4 GiB of names");
    RETURN_IF(vec_reserve(&t->entries, 1, err));
    char *copy = vec_push_n(&t->text, nbytes + 1, err);
    if (copy == NULL)
        return FSDPCK_LIMIT;
    memcpy(copy, text, nbytes);
    struct strtab_entry *entry = vec_push(&t->entries, err);
    if (entry == NULL)
        return FSDPCK_LIMIT;
    entry->text_at = (uint32_t)text_at;
    entry->hash = hash;
    return FSDPCK_OK;
}

fsdpck_status strtab_intern(strtab *t, const char *text, size_t nbytes, uint32_t *id,
                            fsdpck_error *err)
{
    text = nbytes > 0 ? text : "";
    /* At most half full: linear probing then needs one or two probes. */
    if (t->entries.count >= t->buckets.count / 2)
        RETURN_IF(grow_buckets(t, err));
    const uint32_t hash = hash_bytes((const uint8_t *)text, nbytes, t->seed);
    const size_t bucket = bucket_of(t, text, nbytes, hash);
    uint32_t *const found = VEC_AT(&t->buckets, uint32_t, bucket);
    if (*found == STRTAB_NONE) {
        RETURN_IF(add_entry(t, text, nbytes, hash, err));
        *found = (uint32_t)(t->entries.count - 1);
    }
    *id = *found;
    return FSDPCK_OK;
}

uint32_t strtab_find(const strtab *t, const char *text, size_t nbytes)
{
    if (t->buckets.count == 0)
        return STRTAB_NONE;
    text = nbytes > 0 ? text : "";
    const uint32_t hash = hash_bytes((const uint8_t *)text, nbytes, t->seed);
    return *VEC_AT(&t->buckets, const uint32_t, bucket_of(t, text, nbytes, hash));
}

void strtab_truncate(strtab *t, size_t count)
{
    if (count >= t->entries.count)
        return;
    t->text.count = entry_at(t, (uint32_t)count)->text_at;
    t->entries.count = count;
    fill_buckets(t);
}

void strtab_release(strtab *t)
{
    VEC_RELEASE_ALL(&t->text, &t->entries, &t->buckets);
}
