/* Files whose names may be wrong: those of other savers beside a trainer's own, and copies of one
 * rank's file under another rank's name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "formats/pt/pt.h"
#include "formats/pt/ranks_internal.h"

/* --- files that are not read --- */

static bool is_listed(const ranks_list *l, const char *entry)
{
    for (size_t i = 0; i < l->files.count; i++)
        if (strcmp(VEC_AT(&l->files, const ranks_file, i)->name, entry) == 0)
            return true;
    return false;
}

void ranks_warn_beside(const open_request *req, const ranks_list *l)
{
    const probe_input *in = req->probe;
    const char *first = NULL;
    uint64_t count = 0;
    char others[40] = "";
    if (req->rank_pattern != NULL)
        return;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        if ((!ranks_name_is_generic(entry) && !ranks_name_is_known(entry)) || is_listed(l, entry))
            continue;
        first = first == NULL ? entry : first;
        count++;
    }
    if (count == 0)
        return;
    if (count > 1)
        snprintf(others, sizeof others, " and %" PRIu64 " more", count - 1);
    log_warn(&req->log, FSDPCK_FINDING_WEIGHTS_BESIDE,
             "to read the other files instead, give --source-rank-pattern with {r} for the rank",
             "reading files like '%s', not '%s'%s in the same folder",
             VEC_AT(&l->files, const ranks_file, 0)->name, first, others);
}

/* --- copies --- */

static uint64_t mixed(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

/* Zeros are equal on many ranks: padding, state of an optimizer before its first step. */
static bool is_telling(const torch_shard *q)
{
    return q->ndim == 1 && (q->flags & TORCH_SHARD_CRC) != 0 && q->record_nbytes > 0 &&
           dtype_get((dtype)q->dtype)->kind == DTYPE_IS_FLOAT &&
           q->crc32 != crc32_zeros(q->record_nbytes);
}

void ranks_copies_see(ranks_copies *c, const ranks_state *s, uint32_t entry, const uint32_t *pieces,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, pieces[i]);
        if (q->file >= c->count || !is_telling(q))
            continue;
        uint64_t h = mixed(entry, q->crc32);
        h = mixed(h, q->record_nbytes);
        h = mixed(h, q->offset_bytes - q->record_offset_bytes);
        h = mixed(h, *VEC_AT(&s->reader->dims, const uint64_t, q->dims_at));
        c->files[q->file].hash += h;
        c->files[q->file].nbytes += q->record_nbytes;
    }
}

static int by_content(const void *a, const void *b)
{
    const ranks_copy *x = a, *y = b;
    if (x->family != y->family)
        return x->family < y->family ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void warn_same(const ranks_state *s, const ranks_copy *same, size_t count)
{
    text_buf ranks = {.limit_bytes = 160};
    for (size_t i = 0; i < count; i++)
        text_printf(&ranks, "%s%" PRIu32, i > 0 ? ", " : "", same[i].rank);
    log_warn(&s->req->log, FSDPCK_FINDING_RANK_COPIED,
             "compare these files with the original files of the ranks",
             "'%s': files of ranks %s%s have equal bytes, but each rank should have its own shard: "
             "one file may be a copy of another rank's file",
             same->name, ranks.text == NULL ? "" : ranks.text, ranks.failed ? ", ..." : "");
    text_release(&ranks);
}

static size_t end_of_same(const ranks_copies *c, size_t begin)
{
    const ranks_copy *first = &c->files[begin];
    size_t end = begin + 1;
    while (end < c->count && c->files[end].family == first->family &&
           c->files[end].hash == first->hash && c->files[end].nbytes == first->nbytes)
        end++;
    return end;
}

/* Ranks that hold copies by intent (HSDP) do so in groups of one size. */
void ranks_copies_warn(ranks_copies *c, const ranks_state *s)
{
    enum { TELLING_NBYTES = 1024 };
    const vec *files = &s->list->files;
    for (size_t i = 0; i < files->count; i++) {
        const ranks_file *f = VEC_AT(files, const ranks_file, i);
        ranks_copy *copy = &c->files[f->index];
        copy->family = f->family;
        copy->rank = f->rank;
        copy->name = f->name;
    }
    qsort(c->files, c->count, sizeof *c->files, by_content);
    for (size_t begin = 0; begin < c->count;) {
        const uint32_t family = c->files[begin].family;
        size_t most = begin, largest = 0, smallest = SIZE_MAX;
        while (begin < c->count && c->files[begin].family == family) {
            const size_t end = end_of_same(c, begin), n = end - begin;
            if (c->files[begin].nbytes >= TELLING_NBYTES) {
                smallest = n < smallest ? n : smallest;
                most = n > largest ? begin : most;
                largest = n > largest ? n : largest;
            }
            begin = end;
        }
        if (largest > 1 && largest != smallest)
            warn_same(s, &c->files[most], largest);
    }
}

/* --- ranks recorded in the files --- */

void ranks_note_own_rank(const ranks_parse *p, uint64_t rank)
{
    if (rank < MESH_RANKS_MAX)
        *VEC_AT(&p->s->own_ranks, uint32_t, p->file->index) = (uint32_t)rank;
}

fsdpck_status ranks_check_own_ranks(ranks_state *s, fsdpck_error *err)
{
    value_map seen = VALUE_MAP(s->req->metadata);
    fsdpck_status st = FSDPCK_OK;

    for (size_t i = 0; st == FSDPCK_OK && i < s->list->files.count; i++) {
        const ranks_file *f = VEC_AT(&s->list->files, const ranks_file, i);
        const uint32_t own = *VEC_AT(&s->own_ranks, const uint32_t, f->index);
        if (own == CAT_NONE)
            continue;
        uint64_t *first = value_map_put(&seen, (uint64_t)f->family << 32 | (own + 1u), NULL, err);
        if (first == NULL) {
            st = FSDPCK_LIMIT;
        } else if (*first != 0) {
            st = FAIL_WITH(err, BADINPUT, RANK_DOUBLE,
                           ("two files contain data of rank %" PRIu32, own),
                           (found, "'%s' and '%s'", ranks_path(s, (uint32_t)(*first - 1)), f->name),
                           (next, "one of them is a copy: find the file of the missing rank"));
        } else {
            *first = (uint64_t)f->index + 1;
        }
        if (own != f->rank && s->renamed == NULL)
            s->renamed = f;
    }
    value_map_release(&seen);
    return st;
}
