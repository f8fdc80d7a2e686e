#include "state/same_files.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "state/sort.h"

/* Samples bound the bytes that are read: of all files, but some of each. */
enum {
    RECORDS_LEAST = 2,
    VARIED_LEAST = 2,
    SAMPLES_OF_ALL = 1024,
    SAMPLES_OF_EACH = 16,
    SAMPLE_NBYTES = 16384,
    /* Of a file with one record: fewer equal bytes, such as 64 floats, may be an accident. */
    MOMENT_NBYTES_LEAST = 256
};

typedef struct file_records {
    uint64_t first, count;
    bool has_crc; /* all of them */
} file_records;

static file_record record_of(const same_files *c, const file_records *f, uint64_t i)
{
    return c->record_at(c->ctx, f->first + i);
}

static file_records records_from(const same_files *c, uint64_t first)
{
    file_records f = {.first = first, .has_crc = true};
    const uint32_t file = record_of(c, &f, 0).file;
    while (first + f.count < c->count) {
        const file_record e = record_of(c, &f, f.count);
        if (e.file != file)
            break;
        f.has_crc = f.has_crc && e.has_crc;
        f.count++;
    }
    return f;
}

static uint64_t hash_of(const same_files *c, const file_records *f)
{
    uint64_t h = f->count;
    for (uint64_t i = 0; i < f->count; i++) {
        const file_record e = record_of(c, f, i);
        h = (h ^ e.crc32 ^ (e.nbytes << 32) ^ e.offset_bytes) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static bool has_same_records(const same_files *c, const file_records *a, const file_records *b)
{
    bool same = a->count == b->count;
    for (uint64_t i = 0; same && i < a->count; i++) {
        const file_record x = record_of(c, a, i), y = record_of(c, b, i);
        same = x.crc32 == y.crc32 && x.nbytes == y.nbytes && x.offset_bytes == y.offset_bytes &&
               x.at_bytes == y.at_bytes;
    }
    return same;
}

static uint32_t tensor_of(const same_files *c, const file_record *e)
{
    return catalogue_chunk(c->cat, e->chunk)->tensor;
}

static bool has_same_box(const same_files *c, const file_record *a, const file_record *b)
{
    return tensor_of(c, a) == tensor_of(c, b) &&
           catalogue_chunk_is_same(c->cat, a->chunk, b->chunk);
}

static uint64_t itemsize_of(const same_files *c, const file_record *e)
{
    const cat_tensor *t = catalogue_tensor(c->cat, tensor_of(c, e));
    return dtype_get((dtype)t->dtype)->itemsize_bytes;
}

/* Whether a record of another box has several elements. */
static bool is_stranger(const same_files *c, const file_record *a, const file_record *b)
{
    return a->nbytes - a->at_bytes > itemsize_of(c, a) && !has_same_box(c, a, b);
}

/* Whether the first elements of a chunk differ from each other. */
static bool is_varied(const same_files *c, const file_record *e, uint8_t *sample)
{
    const uint64_t item = itemsize_of(c, e), left = e->nbytes - e->at_bytes;
    uint64_t n = left < SAMPLE_NBYTES ? left : SAMPLE_NBYTES;
    n -= n % item;
    const source *src = c->source;
    return n > item &&
           src->read_at(src->ctx, e->file, e->offset_bytes + e->at_bytes, sample, n, NULL) ==
               FSDPCK_OK &&
           memcmp(sample, sample + item, n - item) != 0;
}

static uint64_t count_strangers(const same_files *c, const file_records *a, const file_records *b)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        const file_record x = record_of(c, a, i), y = record_of(c, b, i);
        count += is_stranger(c, &x, &y);
    }
    return count;
}

/* Which of `step` records is a sample: not always the same, as kinds of records alternate. */
static uint64_t pick_sample(uint64_t group, uint64_t step)
{
    const uint64_t h = (group + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return (h ^ h >> 29) % step;
}

/* Fresh optimizer state and biases are constant, and then equal in many files; a pattern that repeats
 * may be so in one tensor. At most `samples` records, from all parts of the file. */
static bool has_varied_strangers(const same_files *c, const file_records *a, const file_records *b,
                                 uint64_t samples)
{
    uint8_t sample[SAMPLE_NBYTES];
    const uint64_t count = count_strangers(c, a, b), step = (count + samples - 1) / samples;
    uint64_t at = 0;
    unsigned varied = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        const file_record x = record_of(c, a, i), y = record_of(c, b, i);
        if (!is_stranger(c, &x, &y))
            continue;
        const bool is_sample = at % step == pick_sample(at / step, step);
        at++;
        if (is_sample && is_varied(c, &x, sample) && ++varied == VARIED_LEAST)
            return true;
    }
    return false;
}

/* ---- files with one record ---- */

/* Means of gradients, with the dims of the parameter. */
static bool is_moment(const char *name, size_t nbytes)
{
    static const char *const keys[] = {".exp_avg", ".exp_avg_sq", ".max_exp_avg_sq", ".square_avg",
                                       ".momentum_buffer"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (text_ends_with(name, nbytes, keys[i]))
            return true;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether names differ in numbers alone, and only after the segment "state": of two layers in one optimizer. */
static bool are_of_layers(const char *a, const char *b)
{
    const char *begin = a, *state = strstr(a, "state.");
    bool differ = false;
    while (state != NULL && state != a && state[-1] != '.')
        state = strstr(state + 1, "state.");
    while (*a != '\0' || *b != '\0') {
        if (is_digit(*a) && is_digit(*b)) {
            const char *x = a, *y = b;
            while (is_digit(*a))
                a++;
            while (is_digit(*b))
                b++;
            const bool same = a - x == b - y && memcmp(x, y, (size_t)(a - x)) == 0;
            if (!same && (state == NULL || x - begin < state - begin))
                return false;
            differ = differ || !same;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return differ;
}

static uint64_t read_sample(const same_files *c, const file_record *e, uint8_t *sample)
{
    const uint64_t left = e->nbytes - e->at_bytes, n = left < SAMPLE_NBYTES ? left : SAMPLE_NBYTES;
    const source *src = c->source;
    return src->read_at(src->ctx, e->file, e->offset_bytes + e->at_bytes, sample, n, NULL) ==
                   FSDPCK_OK
               ? n
               : 0;
}

/* Whether half of the first elements differ from the one before. */
static bool has_begun(const same_files *c, const file_record *e)
{
    uint8_t sample[SAMPLE_NBYTES];
    const uint64_t item = itemsize_of(c, e), n = read_sample(c, e, sample);
    uint64_t changes = 0;
    for (uint64_t i = item; i + item <= n; i += item)
        changes += memcmp(sample + i, sample + i - item, item) != 0;
    return n > 0 && changes >= n / item / 2;
}

static bool has_same_sample(const same_files *c, const file_record *a, const file_record *b)
{
    uint8_t sample[SAMPLE_NBYTES], other[SAMPLE_NBYTES];
    const uint64_t n = read_sample(c, a, sample);
    return n > 0 && read_sample(c, b, other) == n && memcmp(sample, other, n) == 0;
}

enum { BEGUN_UNKNOWN, BEGUN_NO, BEGUN_YES };

/* One record is no evidence in general: tied weights, copies of a model, and layers that begin as copies are equal too.
 * Means of gradients of matrices in two layers, or in two boxes of one, are not, if they have begun. *begun: of a. */
static bool is_copied_moment(const same_files *c, const file_record *a, const file_record *b,
                             int *begun)
{
    const catalogue *cat = c->cat;
    const cat_tensor *s = catalogue_tensor(cat, tensor_of(c, a)),
                     *t = catalogue_tensor(cat, tensor_of(c, b));
    const char *name = catalogue_name(cat, s->name);
    if (s->ndim < 2 || t->ndim < 2 || has_same_box(c, a, b) ||
        a->nbytes - a->at_bytes < MOMENT_NBYTES_LEAST ||
        !is_moment(name, catalogue_name_nbytes(cat, s->name)) ||
        (s != t && !are_of_layers(name, catalogue_name(cat, t->name))))
        return false;
    /* Fresh ones are equal in all layers: read once. */
    if (*begun == BEGUN_UNKNOWN)
        *begun = has_begun(c, a) ? BEGUN_YES : BEGUN_NO;
    return *begun == BEGUN_YES && has_same_sample(c, a, b);
}

void same_files_describe(const catalogue *cat, const file_record *a, uint64_t count,
                         fsdpck_error *what)
{
    (void)FAIL(what, BADINPUT, FILE_SAME,
               "file has the same data as '%s', though the metadata gives them different tensors "
               "or boxes",
               catalogue_name(cat, catalogue_file(cat, a->file)->path));
    error_found(what, "%" PRIu64 " record%s of equal size and CRC-32", count, text_plural(count));
}

/* Number of files that have the records of another. With samples: also reports them. */
static uint64_t find_pairs(const same_files *c, const file_records *files, const sort_pair *list,
                           uint64_t n, uint64_t samples)
{
    uint64_t pairs = 0;
    int begun = BEGUN_UNKNOWN; /* of the record of `head` */
    for (uint64_t k = 1, head = 0; k < n; k++) {
        const file_records *a = &files[list[head].item], *b = &files[list[k].item];
        if (list[k].key != list[head].key || !has_same_records(c, a, b)) {
            head = k;
            begun = BEGUN_UNKNOWN;
            continue;
        }
        pairs++;
        if (samples == 0)
            continue;
        const file_record x = record_of(c, a, 0), y = record_of(c, b, 0);
        if (a->count < RECORDS_LEAST ? is_copied_moment(c, &x, &y, &begun)
                                     : has_varied_strangers(c, a, b, samples))
            c->report(c->ctx, &x, &y, a->count);
    }
    return pairs;
}

fsdpck_status same_files_find(const same_files *c, fsdpck_error *err)
{
    const uint64_t most = catalogue_file_count(c->cat);
    const uint64_t nbytes = most * (sizeof(file_records) + 2 * sizeof(sort_pair));
    uint64_t n = 0;
    if (most < 2 || c->count == 0)
        return FSDPCK_OK;
    sort_pair *list = budget_alloc(c->metadata, nbytes, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    file_records *files = (file_records *)(list + 2 * most);
    for (uint64_t i = 0; i < c->count && n < most;) {
        const file_records f = records_from(c, i);
        i += f.count;
        if (!f.has_crc)
            continue;
        files[n] = f;
        list[n] = (sort_pair){hash_of(c, &f), (uint32_t)n};
        n++;
    }
    sort_pairs(list, list + most, n, NULL, NULL);
    const uint64_t pairs = find_pairs(c, files, list, n, 0);
    if (pairs > 0)
        (void)find_pairs(c, files, list, n,
                         pairs < SAMPLES_OF_ALL / SAMPLES_OF_EACH ? SAMPLES_OF_ALL / pairs
                                                                  : SAMPLES_OF_EACH);
    budget_free(c->metadata, list, nbytes);
    return FSDPCK_OK;
}
