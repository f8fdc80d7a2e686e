#include "formats/dcp/dcp_object_copies.h"

#include <inttypes.h>

#include "base/crc.h"
#include "base/text.h"
#include "formats/common/own_state.h"

#define PRINTED_NBYTES_MAX 4096u

static bool is_plain(value_kind kind)
{
    return kind == VALUE_NONE || kind == VALUE_BOOL || kind == VALUE_INT || kind == VALUE_FLOAT ||
           kind == VALUE_STR;
}

/* Bytes of pickles are not compared: they also depend on which equal parts of a value are one object. */
uint64_t dcp_object_sum(const value_pool *pool, value v)
{
    text_buf text = {.limit_bytes = PRINTED_NBYTES_MAX + 8};
    const value_kind kind = value_kind_of(v);
    const bool is_list = kind == VALUE_LIST || kind == VALUE_TUPLE;
    for (size_t i = 0; is_list && i < value_count(pool, v); i++)
        if (!is_plain(value_kind_of(value_item(pool, v, i))))
            return 0;
    if (!is_list && !is_plain(kind))
        return 0;
    value_print(pool, v, PRINTED_NBYTES_MAX, &text);
    const uint64_t sum = text.failed ? 0 : crc64_update(0, text.text, text.nbytes) | 1;
    text_release(&text);
    return sum;
}

typedef struct differing {
    uint64_t count;
    const char *first;
    uint32_t file; /* with the other value */
} differing;

size_t dcp_first_repeat(const dcp_folder *d, uint32_t number)
{
    const dcp_repeat *repeats = d->repeats.items;
    size_t low = 0, high = d->repeats.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (repeats[middle].object < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void compare(const dcp_folder *d, const cat_object *o, uint64_t sum, const uint64_t *others,
                    differing *found)
{
    const dcp_repeat *repeats = d->repeats.items;
    for (size_t k = dcp_first_repeat(d, o->number);
         k < d->repeats.count && repeats[k].object == o->number; k++) {
        if (others[k] == 0 || others[k] == sum)
            continue;
        if (found->count++ == 0) {
            found->first = catalogue_name(d->cat, o->name);
            found->file = repeats[k].file;
        }
        return;
    }
}

void dcp_object_copies_report(const dcp_folder *d, const dcp_blob *blobs, uint64_t count,
                              const uint64_t *sums, const record_check_request *r)
{
    differing found = {0};
    fsdpck_error what;
    for (uint64_t i = 0; i < count; i++) {
        if (!(blobs[i].who & DCP_BLOB_OBJECT) || sums[i] == 0)
            continue;
        const cat_object *o = catalogue_object(d->cat, blobs[i].who & ~DCP_BLOB_OBJECT);
        if (!own_state_is_name(catalogue_name(d->cat, o->name)))
            compare(d, o, sums[i], sums + count, &found);
    }
    if (found.count == 0)
        return;
    const cat_file *f = catalogue_file(d->cat, found.file);
    FAIL_WITH(&what, BADINPUT, RANK_DIFFER,
              ("objects differ from those of the lowest rank: %" PRIu64
               " object%s, first '%s' of rank %" PRIu32,
               found.count, text_plural(found.count), found.first, f->rank),
              (path_in, d->dir.path, catalogue_name(d->cat, f->path)),
              (next, "check that all files are from one save"));
    r->found(r->found_ctx, FORMAT_WARNING, &what);
}
