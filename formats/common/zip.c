#include "formats/common/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "formats/common/zip_records.h"

enum { TAIL_NBYTES = 64 << 10, WINDOW_NBYTES = 4 << 10, ENTRIES_LIMIT = 1 << 24 };

/* --- reading --- */

static fsdpck_status read_archive(const zip_archive *z, uint64_t offset, void *dst, uint64_t nbytes,
                                  fsdpck_error *err)
{
    if (z->tail != NULL && offset >= z->tail_offset_bytes) {
        memcpy(dst, z->tail + (offset - z->tail_offset_bytes), nbytes);
        return FSDPCK_OK;
    }
    return z->in.read(z->in.ctx, z->in.base_offset_bytes + offset, dst, nbytes, err);
}

/* A few KiB around the current offset, so that a descriptor and the next header are one read. */
typedef struct window {
    const zip_archive *zip;
    uint64_t limit; /* archive offset after which nothing is read */
    uint64_t offset;
    size_t nbytes;
    uint8_t *bytes;
    size_t capacity;
} window;

/* *bytes: `nbytes` from `offset` on; fewer (*found) only before `limit`. */
static fsdpck_status window_get(window *w, uint64_t offset, size_t nbytes, const uint8_t **bytes,
                                size_t *found, fsdpck_error *err)
{
    const uint64_t left = offset < w->limit ? w->limit - offset : 0;
    *found = nbytes < left ? nbytes : (size_t)left;
    if (w->zip->tail != NULL && offset >= w->zip->tail_offset_bytes) {
        *bytes = w->zip->tail + (offset - w->zip->tail_offset_bytes);
        return FSDPCK_OK;
    }
    if (offset < w->offset || offset + *found > w->offset + w->nbytes) {
        const size_t ahead = *found > WINDOW_NBYTES ? *found : WINDOW_NBYTES;
        if (ahead > w->capacity) {
            budget_free(w->zip->owner, w->bytes, w->capacity);
            w->capacity = 0;
            w->bytes = budget_alloc(w->zip->owner, ahead, err);
            if (w->bytes == NULL)
                return FSDPCK_LIMIT;
            w->capacity = ahead;
        }
        w->nbytes = 0;
        const size_t n = ahead < left ? ahead : (size_t)left;
        RETURN_IF(read_archive(w->zip, offset, w->bytes, n, err));
        w->offset = offset;
        w->nbytes = n;
    }
    *bytes = w->bytes + (offset - w->offset);
    return FSDPCK_OK;
}

static fsdpck_status entry_failed(const zip_archive *z, uint64_t offset, fsdpck_status st,
                                  fsdpck_error *err)
{
    error_offset(err, z->in.base_offset_bytes + offset);
    return st;
}

/* The entry as the directory had it, with its full name in `name`. */
static void central_of(const zip_archive *z, const zip_entry *e, char *name, zip_central *c)
{
    const size_t prefix_nbytes = strlen(z->prefix);
    const size_t rest = strtab_nbytes(&z->names, e->name);

    memcpy(name, z->prefix, prefix_nbytes);
    name[prefix_nbytes] = '/';
    memcpy(name + prefix_nbytes + 1, strtab_text(&z->names, e->name), rest);
    *c = (zip_central){.name = name,
                       .name_nbytes = (uint16_t)(prefix_nbytes + 1 + rest),
                       .prefix_nbytes = (uint16_t)prefix_nbytes,
                       .method = e->method,
                       .flags = e->flags,
                       .crc32 = e->crc32,
                       .nbytes = e->nbytes,
                       .stored_nbytes = e->stored_nbytes,
                       .header_offset_bytes = e->header_offset_bytes};
}

/* Checks header and descriptor in place; *end is the offset after the entry. */
static fsdpck_status entry_check_at(window *w, const zip_entry *e, uint64_t *data_at, uint64_t *end,
                                    fsdpck_error *err)
{
    char name[ZIP_NAME_LIMIT];
    const uint8_t *bytes;
    size_t found;
    zip_central c;
    zip_local local;
    uint64_t descriptor_at;

    central_of(w->zip, e, name, &c);
    const uint64_t at = e->header_offset_bytes;
    RETURN_IF(window_get(w, at, ZIP_LOCAL_NBYTES + c.name_nbytes + 64u, &bytes, &found, err));
    if (found >= ZIP_LOCAL_NBYTES && zip_local_nbytes(bytes) > found)
        RETURN_IF(window_get(w, at, zip_local_nbytes(bytes), &bytes, &found, err));
    fsdpck_status st = zip_local_parse(bytes, found, &c, &local, err);
    if (st != FSDPCK_OK)
        return entry_failed(w->zip, at, st, err);
    *data_at = at + local.header_nbytes;
    if (!checked_add(*data_at, e->stored_nbytes, &descriptor_at) ||
        !checked_range(descriptor_at, local.descriptor_nbytes, w->limit)) {
        st = FAIL(err, BADINPUT, ZIP_OVERLAP, "zip entry overlaps the directory");
        return entry_failed(w->zip, at, st, err);
    }
    *end = descriptor_at + local.descriptor_nbytes;
    if (local.descriptor_nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(window_get(w, descriptor_at, local.descriptor_nbytes, &bytes, &found, err));
    st = zip_descriptor_check(bytes, local.descriptor_nbytes, &c, err);
    return st == FSDPCK_OK ? st : entry_failed(w->zip, descriptor_at, st, err);
}

/* --- the directory --- */

static fsdpck_status name_failed(const zip_central *c, fsdpck_finding_id finding, const char *what,
                                 fsdpck_error *err)
{
    char shown[160];
    return error_set(err, FSDPCK_BADINPUT, finding, "%s: '%s'", what,
                     escape_text(shown, sizeof(shown), c->name, c->name_nbytes));
}

/* Some readers would extract two names that differ only in case to one file. `folded` holds the
 * folded forms of names with capitals; names without are their own. */
static fsdpck_status case_check(const zip_central *c, const strtab *names, strtab *folded,
                                fsdpck_error *err)
{
    const char *name = c->name + c->prefix_nbytes + 1;
    const size_t nbytes = (size_t)(c->name_nbytes - c->prefix_nbytes - 1);
    char lower[ZIP_NAME_LIMIT];
    bool capitals = false;
    uint32_t id;

    for (size_t i = 0; i < nbytes; i++) {
        const bool capital = name[i] >= 'A' && name[i] <= 'Z';
        lower[i] = (char)(capital ? name[i] + ('a' - 'A') : name[i]);
        capitals = capitals || capital;
    }
    bool clash = strtab_count(folded) > 0 && strtab_find(folded, lower, nbytes) != STRTAB_NONE;
    if (capitals && !clash) {
        clash = strtab_find(names, lower, nbytes) != STRTAB_NONE;
        RETURN_IF(strtab_intern(folded, lower, nbytes, &id, err));
    }
    return clash ? name_failed(c, FSDPCK_FINDING_ZIP_CASE,
                               "two zip entries have names that differ only in case", err)
                 : FSDPCK_OK;
}

static fsdpck_status entry_add(zip_archive *z, const zip_central *c, strtab *folded,
                               fsdpck_error *err)
{
    const size_t before = strtab_count(&z->names);

    if (z->entries.count == 0)
        memcpy(z->prefix, c->name, c->prefix_nbytes);
    else if (strlen(z->prefix) != c->prefix_nbytes ||
             memcmp(z->prefix, c->name, c->prefix_nbytes) != 0)
        return name_failed(c, FSDPCK_FINDING_ZIP_ROOT, "zip entries are in two different folders",
                           err);
    zip_entry *e = vec_push(&z->entries, err);
    if (e == NULL)
        return FSDPCK_LIMIT;
    const char *name = c->name + c->prefix_nbytes + 1;
    const size_t nbytes = (size_t)(c->name_nbytes - c->prefix_nbytes - 1);
    RETURN_IF(strtab_intern(&z->names, name, nbytes, &e->name, err));
    if (strtab_count(&z->names) == before)
        return name_failed(c, FSDPCK_FINDING_ZIP_DUPNAME, "two zip entries have the same name",
                           err);
    e->method = c->method;
    e->flags = c->flags;
    e->crc32 = c->crc32;
    e->nbytes = c->nbytes;
    e->stored_nbytes = c->stored_nbytes;
    e->header_offset_bytes = c->header_offset_bytes;
    z->any_deflated = z->any_deflated || c->method != 0;
    if (c->crc32 != 0 && c->nbytes > 0)
        z->no_crc = false;
    return case_check(c, &z->names, folded, err);
}

static fsdpck_status directory_parse(zip_archive *z, const zip_end *end, const uint8_t *directory,
                                     fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    strtab folded;
    zip_central c;
    size_t at = 0;

    strtab_init(&folded, z->owner);
    z->no_crc = true;
    for (uint64_t i = 0; i < end->count && st == FSDPCK_OK; i++) {
        const size_t begin = at;
        st = zip_central_parse(directory, end->directory_nbytes, &at, &c, err);
        if (st == FSDPCK_OK)
            st = entry_add(z, &c, &folded, err);
        if (st != FSDPCK_OK)
            st = entry_failed(z, end->directory_offset_bytes + begin, st, err);
    }
    if (st == FSDPCK_OK && at != end->directory_nbytes)
        st = entry_failed(
            z, end->directory_offset_bytes + at,
            FAIL(err, BADINPUT, ZIP_COUNT, "zip directory is longer than its entries"), err);
    strtab_release(&folded);
    return st;
}

static fsdpck_status directory_read(zip_archive *z, const zip_end *end, fsdpck_error *err)
{
    if (end->count > ENTRIES_LIMIT)
        return FAIL(err, LIMIT, ZIP_ENTRIES, "zip has more than %d entries", ENTRIES_LIMIT);
    RETURN_IF(vec_reserve(&z->entries, end->count, err));
    if (end->directory_offset_bytes >= z->tail_offset_bytes)
        return directory_parse(z, end,
                               z->tail + (end->directory_offset_bytes - z->tail_offset_bytes), err);
    uint8_t *directory = budget_alloc(z->owner, end->directory_nbytes, err);
    if (directory == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = z->in.read(z->in.ctx, z->in.base_offset_bytes + end->directory_offset_bytes,
                                  directory, end->directory_nbytes, err);
    if (st == FSDPCK_OK)
        st = directory_parse(z, end, directory, err);
    budget_free(z->owner, directory, end->directory_nbytes);
    return st;
}

static int by_header(const void *a, const void *b)
{
    const uint64_t x = ((const zip_entry *)a)->header_offset_bytes;
    const uint64_t y = ((const zip_entry *)b)->header_offset_bytes;
    return (x > y) - (x < y);
}

static fsdpck_status entries_index(zip_archive *z, fsdpck_error *err)
{
    bool sorted = true;

    for (size_t i = 1; i < z->entries.count && sorted; i++)
        sorted = by_header(VEC_AT(&z->entries, zip_entry, i - 1),
                           VEC_AT(&z->entries, zip_entry, i)) <= 0;
    if (!sorted)
        qsort(z->entries.items, z->entries.count, sizeof(zip_entry), by_header);
    z->by_name = budget_alloc(z->owner, z->entries.count * sizeof(uint32_t), err);
    if (z->by_name == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < z->entries.count; i++)
        z->by_name[VEC_AT(&z->entries, zip_entry, i)->name] = (uint32_t)i;
    return FSDPCK_OK;
}

/* --- every byte belongs to exactly one entry --- */

static fsdpck_status tile_failed(const zip_archive *z, uint64_t expected, uint64_t found,
                                 fsdpck_error *err)
{
    const bool gap = found > expected;
    const bool first = expected == 0;
    fsdpck_status st = FAIL_AS(
        err, FSDPCK_BADINPUT,
        !gap    ? FSDPCK_FINDING_ZIP_OVERLAP
        : first ? FSDPCK_FINDING_ZIP_PREFIX
                : FSDPCK_FINDING_ZIP_GAP,
        (!gap    ? "zip entries overlap"
         : first ? "bytes before the first zip entry"
                 : "bytes between zip entries belong to no entry"),
        (expected, "the next entry or the directory at byte %llu", (unsigned long long)expected),
        (found, "byte %llu", (unsigned long long)found));
    return entry_failed(z, gap ? expected : found, st, err);
}

/* Whether the directory alone shows torch's layout; if so, sets the data offsets. */
static bool layout_is_torchs(zip_archive *z, uint64_t directory_offset)
{
    const size_t prefix_nbytes = strlen(z->prefix) + 1;
    uint64_t at = 0;

    for (size_t i = 0; i < z->entries.count; i++) {
        zip_entry *e = VEC_AT(&z->entries, zip_entry, i);
        const uint16_t flags = ZIP_FLAG_UTF8 | (e->nbytes > 0 ? ZIP_FLAG_DESCRIPTOR : 0);
        if (e->header_offset_bytes != at || e->method != 0 || e->flags != flags ||
            e->nbytes > directory_offset)
            return false;
        const uint64_t data =
            zip_data_offset(at, prefix_nbytes + strtab_nbytes(&z->names, e->name), e->nbytes);
        e->data_offset_bytes = z->in.base_offset_bytes + data;
        at = data + e->nbytes + zip_descriptor_nbytes(at, e->nbytes);
        if (at > directory_offset)
            return false;
    }
    return at == directory_offset;
}

static fsdpck_status entries_check(zip_archive *z, uint64_t directory_offset, fsdpck_error *err)
{
    window w = {.zip = z, .limit = directory_offset};
    fsdpck_status st = FSDPCK_OK;
    uint64_t at = 0;

    for (size_t i = 0; i < z->entries.count && st == FSDPCK_OK; i++) {
        zip_entry *e = VEC_AT(&z->entries, zip_entry, i);
        uint64_t data_at = 0;
        if (e->header_offset_bytes != at) {
            st = tile_failed(z, at, e->header_offset_bytes, err);
            break;
        }
        st = entry_check_at(&w, e, &data_at, &at, err);
        e->data_offset_bytes = z->in.base_offset_bytes + data_at;
        e->checked = true;
    }
    if (st == FSDPCK_OK && at != directory_offset)
        st = tile_failed(z, at, directory_offset, err);
    budget_free(z->owner, w.bytes, w.capacity);
    return st;
}

/* --- public --- */

static fsdpck_status open_parts(zip_archive *z, fsdpck_error *err)
{
    zip_end end;

    z->tail_nbytes = z->in.nbytes < TAIL_NBYTES ? z->in.nbytes : TAIL_NBYTES;
    z->tail_offset_bytes = z->in.nbytes - z->tail_nbytes;
    z->tail = budget_alloc(z->owner, z->tail_nbytes, err);
    if (z->tail == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(z->in.read(z->in.ctx, z->in.base_offset_bytes + z->tail_offset_bytes, z->tail,
                         z->tail_nbytes, err));
    fsdpck_status st = zip_end_parse(z->tail, z->tail_nbytes, z->in.nbytes, &end, err);
    if (st != FSDPCK_OK)
        return entry_failed(z, z->in.nbytes < ZIP_END_NBYTES ? 0 : z->in.nbytes - ZIP_END_NBYTES,
                            st, err);
    RETURN_IF(directory_read(z, &end, err));
    RETURN_IF(entries_index(z, err));
    if (z->entries.count > ZIP_EAGER_ENTRIES && layout_is_torchs(z, end.directory_offset_bytes))
        return FSDPCK_OK;
    return entries_check(z, end.directory_offset_bytes, err);
}

fsdpck_status zip_open(const zip_input *in, budget *owner, zip_archive *z, fsdpck_error *err)
{
    uint64_t end;

    memset(z, 0, sizeof(*z));
    z->in = *in;
    z->owner = owner;
    z->entries = VEC_OF(zip_entry, owner);
    strtab_init(&z->names, owner);
    if (!checked_add(in->base_offset_bytes, in->nbytes, &end) || end > INT64_MAX)
        return FAIL(err, BADINPUT, ZIP_DIR, "zip reaches past the largest possible file size");
    fsdpck_status st = in->nbytes < ZIP_END_NBYTES
                           ? FAIL(err, BADINPUT, ZIP_EMPTY, "too short for a zip: %llu bytes",
                                  (unsigned long long)in->nbytes)
                           : open_parts(z, err);
    if (st != FSDPCK_OK)
        zip_release(z);
    return st;
}

const zip_entry *zip_find(const zip_archive *z, const char *name)
{
    const uint32_t id = strtab_find(&z->names, name, strlen(name));
    return id == STRTAB_NONE ? NULL : VEC_AT(&z->entries, const zip_entry, z->by_name[id]);
}

const char *zip_name(const zip_archive *z, const zip_entry *e)
{
    return strtab_text(&z->names, e->name);
}

fsdpck_status zip_entry_check(const zip_archive *z, const zip_entry *e, fsdpck_error *err)
{
    if (e->checked)
        return FSDPCK_OK;
    window w = {.zip = z, .limit = z->in.nbytes - ZIP_END_NBYTES};
    uint64_t data_at, end;
    fsdpck_status st = entry_check_at(&w, e, &data_at, &end, err);
    if (st == FSDPCK_OK && z->in.base_offset_bytes + data_at != e->data_offset_bytes) {
        const uint64_t expected = e->data_offset_bytes - z->in.base_offset_bytes;
        st = tile_failed(z, expected, data_at, err);
    }
    budget_free(z->owner, w.bytes, w.capacity);
    return st;
}

static fsdpck_status entry_bytes(const zip_archive *z, const zip_entry *e, uint8_t *bytes,
                                 fsdpck_error *err)
{
    if (e->method != 0) {
        zip_inflater *inf;
        RETURN_IF(zip_inflater_open(&z->in, e, !z->no_crc, &inf, err));
        fsdpck_status st = zip_inflater_read(inf, bytes, e->nbytes, err);
        if (st == FSDPCK_OK)
            st = zip_inflater_finish(inf, err);
        zip_inflater_close(inf);
        return st;
    }
    RETURN_IF(
        read_archive(z, e->data_offset_bytes - z->in.base_offset_bytes, bytes, e->nbytes, err));
    const uint32_t crc = crc32_update(0, bytes, e->nbytes);
    if (z->no_crc || crc == e->crc32)
        return FSDPCK_OK;
    char shown[160];
    return FAIL_WITH(
        err, BADINPUT, ZIP_CRC,
        ("CRC of a zip entry does not match: '%s'",
         escape_text(shown, sizeof(shown), zip_name(z, e), strtab_nbytes(&z->names, e->name))),
        (offset, e->data_offset_bytes), (expected, "%08x", e->crc32), (found, "%08x", crc));
}

fsdpck_status zip_read_entry(const zip_archive *z, const zip_entry *e, uint64_t limit_bytes,
                             uint8_t **bytes, uint64_t *nbytes, fsdpck_error *err)
{
    *bytes = NULL;
    *nbytes = 0;
    RETURN_IF(zip_entry_check(z, e, err));
    if (e->nbytes > limit_bytes) {
        char shown[160];
        return FAIL_AS(
            err, FSDPCK_LIMIT, e->method != 0 ? FSDPCK_FINDING_ZIP_BOMB : FSDPCK_FINDING_ZIP_SIZE,
            ("zip entry is too large: '%s'",
             escape_text(shown, sizeof(shown), zip_name(z, e), strtab_nbytes(&z->names, e->name))),
            (expected, "at most %llu bytes", (unsigned long long)limit_bytes),
            (found, "%llu bytes", (unsigned long long)e->nbytes),
            (offset, z->in.base_offset_bytes + e->header_offset_bytes));
    }
    uint8_t *p = budget_alloc(z->owner, e->nbytes, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = entry_bytes(z, e, p, err);
    if (st != FSDPCK_OK) {
        budget_free(z->owner, p, e->nbytes);
        return st;
    }
    *bytes = p;
    *nbytes = e->nbytes;
    return FSDPCK_OK;
}

void zip_drop_tail(zip_archive *z)
{
    if (z->tail != NULL)
        budget_free(z->owner, z->tail, z->tail_nbytes);
    z->tail = NULL;
}

void zip_release(zip_archive *z)
{
    zip_drop_tail(z);
    if (z->by_name != NULL)
        budget_free(z->owner, z->by_name, z->entries.count * sizeof(uint32_t));
    z->by_name = NULL;
    vec_release(&z->entries);
    strtab_release(&z->names);
}
