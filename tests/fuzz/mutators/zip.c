/* Zips: records are deleted, doubled, renamed, moved, filled with other bytes, deflated; then all
 * offsets, sizes and checksums are right again, but for one field, now and then. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "tests/fuzz/mutators/mutate.h"

enum {
    RECORDS_MAX = 64,
    FIELDS_MAX = 24 * RECORDS_MAX,
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    HAS_DESCRIPTOR = 8,
    DATA_MAX = 1 << 16
};

typedef struct record {
    uint8_t name[96];
    uint16_t name_nbytes, flags, method, extra_nbytes;
    uint8_t extra[96]; /* of the local header */
    uint8_t *data;     /* as stored */
    uint32_t nbytes, stored_nbytes, crc;
    bool wide; /* a descriptor of 24 bytes */
    bool no_crc;
} record;

/* Where a number of the layout lies, to be broken. */
typedef struct field {
    uint32_t at;
    uint8_t nbytes;
} field;

typedef struct archive {
    record of[RECORDS_MAX];
    size_t count;
    bool end64;
    bool by_end64; /* the plain end record leaves all numbers to it */
    uint8_t *out;
    size_t capacity, nbytes;
    field fields[FIELDS_MAX];
    size_t field_count;
} archive;

/* --- apart --- */

static bool parse_record(archive *z, const mutation *m, const uint8_t *central)
{
    record *r = &z->of[z->count];
    const uint32_t at = load_le32(central + 42);
    *r = (record){.flags = load_le16(central + 8),
                  .method = load_le16(central + 10),
                  .crc = load_le32(central + 16),
                  .stored_nbytes = load_le32(central + 20),
                  .nbytes = load_le32(central + 24)};
    if (at > m->nbytes || m->nbytes - at < LOCAL)
        return false;
    const uint8_t *local = m->bytes + at;
    const size_t name = load_le16(local + 26), extra = load_le16(local + 28);
    const size_t left = m->nbytes - at - LOCAL;
    if (name + extra > left || r->stored_nbytes > left - name - extra ||
        r->stored_nbytes > DATA_MAX)
        return false;
    r->name_nbytes = (uint16_t)(name < sizeof r->name ? name : sizeof r->name);
    memcpy(r->name, local + LOCAL, r->name_nbytes);
    r->extra_nbytes = (uint16_t)(extra <= sizeof r->extra ? extra : 0);
    memcpy(r->extra, local + LOCAL + name, r->extra_nbytes);
    r->wide = r->extra_nbytes > 4 && load_le16(r->extra) == 1;
    r->data = malloc(r->stored_nbytes + 1u);
    if (r->data == NULL)
        return false;
    memcpy(r->data, local + LOCAL + name + extra, r->stored_nbytes);
    r->no_crc = r->crc == 0 && r->nbytes > 0;
    z->count++;
    return true;
}

static bool split(archive *z, const mutation *m)
{
    if (m->nbytes < END)
        return false;
    const uint8_t *end = m->bytes + m->nbytes - END;
    size_t at = load_le32(end + 16);
    z->end64 = m->nbytes >= END + LOCATOR && load_le32(end - LOCATOR) == 0x07064b50;
    if (z->end64 && m->nbytes >= END + LOCATOR + END64 && at == UINT32_MAX)
        at = (size_t)load_le64(end - LOCATOR - END64 + 48);
    while (z->count < RECORDS_MAX && at <= m->nbytes && m->nbytes - at >= CENTRAL &&
           load_le32(m->bytes + at) == 0x02014b50) {
        const uint8_t *c = m->bytes + at;
        if (!parse_record(z, m, c))
            break;
        at += CENTRAL + (size_t)load_le16(c + 28) + load_le16(c + 30) + load_le16(c + 32);
    }
    return z->count > 0;
}

/* --- together --- */

static void put(archive *z, uint64_t v, uint8_t nbytes, bool is_field)
{
    if (z->capacity - z->nbytes < nbytes)
        return;
    if (is_field && z->field_count < FIELDS_MAX)
        z->fields[z->field_count++] = (field){(uint32_t)z->nbytes, nbytes};
    memcpy(z->out + z->nbytes, &v, nbytes);
    z->nbytes += nbytes;
}

static void put_bytes(archive *z, const void *bytes, size_t nbytes)
{
    if (z->capacity - z->nbytes < nbytes)
        return;
    if (nbytes > 0)
        memcpy(z->out + z->nbytes, bytes, nbytes);
    z->nbytes += nbytes;
}

/* What local header and directory share: flags, method, time, date, CRC, sizes, lengths. */
static void put_common(archive *z, const record *r, bool zeros, uint16_t extra_nbytes)
{
    put(z, r->flags, 2, true);
    put(z, r->method, 2, true);
    put(z, 0, 4, false);
    put(z, zeros ? 0 : r->crc, 4, true);
    put(z, zeros ? 0 : r->stored_nbytes, 4, true);
    put(z, zeros ? 0 : r->nbytes, 4, true);
    put(z, r->name_nbytes, 2, true);
    put(z, extra_nbytes, 2, true);
}

static void put_local(archive *z, const record *r)
{
    const bool later = (r->flags & HAS_DESCRIPTOR) != 0;
    put(z, 0x04034b50, 4, true);
    put(z, 0, 2, false);
    put_common(z, r, later, r->extra_nbytes);
    put_bytes(z, r->name, r->name_nbytes);
    put_bytes(z, r->extra, r->extra_nbytes);
    put_bytes(z, r->data, r->stored_nbytes);
    if (!later)
        return;
    put(z, 0x08074b50, 4, true);
    put(z, r->crc, 4, true);
    put(z, r->stored_nbytes, r->wide ? 8 : 4, true);
    put(z, r->nbytes, r->wide ? 8 : 4, true);
}

static void assemble(archive *z)
{
    uint32_t at[RECORDS_MAX];
    for (size_t i = 0; i < z->count; i++) {
        at[i] = (uint32_t)z->nbytes;
        put_local(z, &z->of[i]);
    }
    const size_t directory = z->nbytes;
    for (size_t i = 0; i < z->count; i++) {
        put(z, 0x02014b50, 4, true);
        put(z, 0, 4, false);
        put_common(z, &z->of[i], false, 0);
        put(z, 0, 2, true); /* comment */
        put(z, 0, 2, true); /* disk */
        put(z, 0, 6, false);
        put(z, at[i], 4, true);
        put_bytes(z, z->of[i].name, z->of[i].name_nbytes);
    }
    const size_t end = z->nbytes;
    if (z->end64) {
        put(z, 0x06064b50, 4, true);
        put(z, END64 - 12, 8, true);
        put(z, 0, 4, false);
        put(z, 0, 8, true); /* disks */
        put(z, z->count, 8, true);
        put(z, z->count, 8, true);
        put(z, end - directory, 8, true);
        put(z, directory, 8, true);
        put(z, 0x07064b50, 4, true);
        put(z, 0, 4, true);
        put(z, end, 8, true);
        put(z, 1, 4, true);
    }
    const bool ones = z->end64 && z->by_end64;
    put(z, 0x06054b50, 4, true);
    put(z, 0, 4, true);
    put(z, ones ? UINT16_MAX : z->count, 2, true);
    put(z, ones ? UINT16_MAX : z->count, 2, true);
    put(z, ones ? UINT32_MAX : end - directory, 4, true);
    put(z, ones ? UINT32_MAX : directory, 4, true);
    put(z, 0, 2, true);
}

/* --- changes --- */

static void set_data(record *r, uint8_t *data, size_t stored_nbytes)
{
    free(r->data);
    r->data = data;
    r->stored_nbytes = (uint32_t)stored_nbytes;
}

static bool is_pickle(const record *r)
{
    return r->name_nbytes >= 8 && memcmp(r->name + r->name_nbytes - 8, "data.pkl", 8) == 0;
}

static void change_data(mutation *m, record *r, bool as_pickle)
{
    const size_t room = r->stored_nbytes + 512u;
    uint8_t *data = malloc(room);
    if (data == NULL)
        return;
    memcpy(data, r->data, r->stored_nbytes);
    mutation part = {
        .bytes = data, .nbytes = r->stored_nbytes, .capacity = room, .random = m->random};
    if (as_pickle && r->nbytes > 0)
        mutate_pickle(&part);
    else
        mutate_bytes(&part);
    m->random = part.random;
    set_data(r, data, part.nbytes);
    if (r->method == 0) {
        r->nbytes = r->stored_nbytes;
        r->crc = r->no_crc ? 0 : crc32_update(0, data, r->stored_nbytes);
    }
}

static void deflate_data(record *r)
{
    z_stream s = {0};
    if (r->method != 0 ||
        deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    const size_t room = deflateBound(&s, r->stored_nbytes);
    uint8_t *data = malloc(room + 1);
    s.next_in = r->data;
    s.avail_in = r->stored_nbytes;
    s.next_out = data;
    s.avail_out = (uInt)room;
    if (data != NULL && deflate(&s, Z_FINISH) == Z_STREAM_END) {
        set_data(r, data, s.total_out);
        r->method = 8;
    } else {
        free(data);
    }
    deflateEnd(&s);
}

static void change_name(mutation *m, archive *z, record *r)
{
    static const char *const names[] = {"archive/data.pkl",  "archive/version",
                                        "archive/data/0",    "archive/data/1",
                                        "archive/byteorder", "archive/../x",
                                        "archive/DATA.PKL",  "x/data.pkl",
                                        "archive/.data/x",   "/a/b"};
    const record *other = &z->of[mutate_below(m, z->count)];
    const char *name = names[mutate_below(m, sizeof names / sizeof *names)];
    const size_t at = mutate_below(m, r->name_nbytes);
    switch (mutate_below(m, 4)) {
    case 0:
        memcpy(r->name, other->name, sizeof r->name);
        r->name_nbytes = other->name_nbytes;
        break;
    case 1:
        r->name[at] = (uint8_t)(r->name[at] ^ (1u << mutate_below(m, 8)));
        break;
    case 2:
        r->name[at] ^= 0x20;
        break;
    default:
        memcpy(r->name, name, strlen(name));
        r->name_nbytes = (uint16_t)strlen(name);
        break;
    }
}

static void double_record(archive *z, size_t i, size_t to)
{
    record copy = z->of[i];
    copy.data = malloc(copy.stored_nbytes + 1u);
    if (z->count == RECORDS_MAX || copy.data == NULL) {
        free(copy.data);
        return;
    }
    memcpy(copy.data, z->of[i].data, copy.stored_nbytes);
    memmove(&z->of[to + 1], &z->of[to], (z->count - to) * sizeof(record));
    z->of[to] = copy;
    z->count++;
}

static void change_record(mutation *m, archive *z)
{
    const size_t i = mutate_below(m, z->count), k = mutate_below(m, z->count);
    record *r = &z->of[i];
    const record swapped = *r;
    switch (mutate_below(m, 12)) {
    case 0:
        free(r->data);
        memmove(r, r + 1, (z->count - i - 1) * sizeof *r);
        z->count--;
        break;
    case 1:
        double_record(z, i, k);
        break;
    case 2:
        change_name(m, z, r);
        break;
    case 3:
        *r = z->of[k];
        z->of[k] = swapped;
        break;
    case 4:
        deflate_data(r);
        break;
    case 5:
        r->flags ^= (uint16_t)(mutate_once_in(m, 2) ? HAS_DESCRIPTOR : 1u << mutate_below(m, 16));
        break;
    case 6:
        if (mutate_once_in(m, 2)) /* length of the first field */
            r->extra[2] = (uint8_t)mutate_number(m, r->extra[2]);
        else
            r->extra_nbytes = 0;
        r->wide = r->extra_nbytes > 4 && load_le16(r->extra) == 1;
        break;
    case 7:
        z->end64 = !z->end64;
        break;
    default:
        for (size_t n = 0; n < z->count && !is_pickle(r); n++)
            r = &z->of[(i + n) % z->count];
        change_data(m, mutate_once_in(m, 4) ? &z->of[i] : r,
                    mutate_once_in(m, 10) ? false : is_pickle(r));
        break;
    }
}

static uint64_t get_field(const archive *z, const field *f)
{
    uint64_t v = 0;
    memcpy(&v, z->out + f->at, f->nbytes);
    return v;
}

/* One number of the layout becomes another; or two neighbours do, whose sum stays, carry and all. */
static void break_field(mutation *m, archive *z)
{
    const size_t i = mutate_below(m, z->field_count);
    const field *f = &z->fields[i], *g = &z->fields[mutate_below(m, z->field_count)];
    uint64_t v = mutate_once_in(m, 4) ? get_field(z, g) : mutate_number(m, get_field(z, f));
    if (mutate_once_in(m, 4) && i + 1 < z->field_count && f[1].nbytes == f->nbytes) {
        const uint64_t other = get_field(z, f + 1) + get_field(z, f) - v;
        memcpy(z->out + f[1].at, &other, f->nbytes);
    }
    memcpy(z->out + f->at, &v, f->nbytes);
}

void mutate_zip(mutation *m)
{
    archive *z = calloc(1, sizeof *z);
    uint8_t *out = malloc(m->capacity + 1);
    if (z != NULL && out != NULL && split(z, m)) {
        z->out = out;
        z->capacity = m->capacity;
        if (!mutate_once_in(m, 3))
            change_record(m, z);
        z->by_end64 = mutate_once_in(m, 2);
        assemble(z);
        if (z->nbytes > 0 && z->field_count > 0 && mutate_once_in(m, 2))
            break_field(m, z);
        memcpy(m->bytes, out, z->nbytes);
        m->nbytes = z->nbytes;
    } else {
        mutate_bytes(m);
    }
    for (size_t i = 0; z != NULL && i < z->count; i++)
        free(z->of[i].data);
    free(z);
    free(out);
}
