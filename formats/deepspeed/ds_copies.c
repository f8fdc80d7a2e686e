/* ds_copies.c: copies of one rank's file under another rank's name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "base/text.h"
#include "formats/deepspeed/ds_internal.h"

/* Fragments are tested for constants, partitions are not: a few elements are enough. */
enum { TELLING_NBYTES = 256, TELLING_FRAGMENT_NBYTES = 10 };

static const char compare_next[] = "compare these files with the original files of the ranks";

typedef struct rank_sum {
    uint64_t sum;
    uint32_t rank;
} rank_sum;

static int by_sum(const void *a, const void *b)
{
    const rank_sum *x = a, *y = b;
    ORDER_BY(x->sum, y->sum);
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* --- partitions of the optimizer files --- */

/* Whether all master weights of a rank, or all its optimizer state, have the checksums of those of
 * another. Zeros do not count. */
static bool same_partitions(const ds_state *s, bool is_state, uint32_t a, uint32_t b)
{
    uint64_t nbytes = 0;
    for (size_t i = 0, k = 0; i < s->partitions.count; i++) {
        const ds_partition *x = VEC_AT(&s->partitions, const ds_partition, i);
        if ((x->slot != 0) != is_state || x->rank != a)
            continue;
        while (k < s->partitions.count) {
            const ds_partition *y = VEC_AT(&s->partitions, const ds_partition, k);
            if (y->slot == x->slot && y->rank == b && y->group == x->group)
                break;
            k++;
        }
        if (k == s->partitions.count)
            return false;
        const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, x->piece);
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard,
                                      VEC_AT(&s->partitions, const ds_partition, k)->piece);
        if (ds_pieces_compare(s->reader, p, q) != DS_EQUAL)
            return false;
        nbytes += p->crc32 == crc32_zeros(p->record_nbytes) ? 0 : p->record_nbytes;
    }
    return nbytes >= TELLING_NBYTES;
}

/* Weights that were never trained may be equal by chance, such as ones; trained state is not. */
static fsdpck_status report_copy(const ds_state *s, uint32_t a, uint32_t b, fsdpck_error *err)
{
    if (same_partitions(s, true, a, b))
        return FAIL_WITH(err, BADINPUT, RANK_COPIED,
                         ("optimizer files of ranks %" PRIu32 " and %" PRIu32
                          " have equal weights and equal optimizer state: one file is a copy of "
                          "the other",
                          a, b),
                         (path, s->req->path), (next, compare_next));
    log_warn(&s->req->log, FSDPCK_FINDING_RANK_COPIED, compare_next,
             "optimizer files of ranks %" PRIu32 " and %" PRIu32
             " have equal weights, but each rank should have its own: one file may be a copy "
             "of another rank's file",
             a, b);
    return FSDPCK_OK;
}

fsdpck_status ds_check_copies(const ds_state *s, fsdpck_error *err)
{
    rank_sum *sums = budget_alloc(s->req->metadata, s->world * sizeof *sums, err);
    if (sums == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t i = 0; i < s->world; i++)
        sums[i].rank = (uint32_t)i;
    for (size_t i = 0; i < s->partitions.count; i++) {
        const ds_partition *x = VEC_AT(&s->partitions, const ds_partition, i);
        if (x->slot == 0)
            sums[x->rank].sum = sums[x->rank].sum * UINT64_C(0x9e3779b97f4a7c15) +
                                VEC_AT(&s->reader->pieces, const torch_shard, x->piece)->crc32;
    }
    qsort(sums, s->world, sizeof *sums, by_sum);
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t i = 1; i < s->world; i++) {
        if (sums[i].sum != sums[i - 1].sum ||
            !same_partitions(s, false, sums[i - 1].rank, sums[i].rank))
            continue;
        st = report_copy(s, sums[i - 1].rank, sums[i].rank, err);
        break;
    }
    budget_free(s->req->metadata, sums, s->world * sizeof *sums);
    return st;
}

/* --- fragments of frozen parameters --- */

/* Whether all elements of a record are equal, as in the weight or bias of a norm. Ranks share such
 * fragments by chance. */
static bool is_constant(const ds_state *s, const torch_shard *p)
{
    uint8_t element[16];
    uint64_t nbytes = dtype_get((dtype)p->dtype)->itemsize_bytes, left = p->record_nbytes;
    uint32_t power, all = 0; /* of `nbytes` bytes; of those that are joined */
    if (p->crc32 == crc32_zeros(p->record_nbytes))
        return true;
    if ((p->flags & TORCH_SHARD_STREAM) || nbytes == 0 || nbytes > sizeof element ||
        left % nbytes != 0 ||
        file_set_read_at(&s->reader->files, p->file, p->record_offset_bytes, element, nbytes,
                         NULL) != FSDPCK_OK)
        return false;
    power = crc32_update(0, element, nbytes);
    for (uint64_t count = left / nbytes; count > 0; count /= 2) {
        if (count % 2 == 1)
            all = crc32_join(all, power, nbytes);
        power = crc32_join(power, power, nbytes);
        nbytes *= 2;
    }
    return p->crc32 == all;
}

/* As same_partitions. The fragments are sorted by name and rank. */
static bool same_fragments(const ds_state *s, uint32_t a, uint32_t b)
{
    const ds_whole *x = NULL;
    uint64_t nbytes = 0;
    for (size_t i = 0; i < s->frozen.count; i++) {
        const ds_whole *y = VEC_AT(&s->frozen, const ds_whole, i);
        if (y->rank == a)
            x = y;
        if (y->rank != b)
            continue;
        if (x == NULL || x->name != y->name)
            return false;
        const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, x->piece);
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, y->piece);
        if (ds_pieces_compare(s->reader, p, q) != DS_EQUAL)
            return false;
        if (nbytes < TELLING_FRAGMENT_NBYTES && !is_constant(s, p))
            nbytes += ds_piece_nelems(s->reader, p) * dtype_get((dtype)p->dtype)->itemsize_bytes;
    }
    return nbytes >= TELLING_FRAGMENT_NBYTES;
}

/* Frozen weights may be equal by intent, as two halves of one tensor: a warning. */
static void warn_fragments(const ds_state *s, const rank_sum *sums)
{
    const rank_sum *first = NULL;
    uint64_t more = 0;
    char others[60] = "";
    for (uint64_t i = 1; i < s->world; i++) {
        if (sums[i].sum != sums[i - 1].sum || !same_fragments(s, sums[i - 1].rank, sums[i].rank))
            continue;
        more += first != NULL;
        first = first == NULL ? &sums[i - 1] : first;
    }
    if (first == NULL)
        return;
    if (more > 0)
        snprintf(others, sizeof others, ", and those of %" PRIu64 " more rank%s too", more,
                 text_plural(more));
    log_warn(&s->req->log, FSDPCK_FINDING_RANK_COPIED, compare_next,
             "model states of ranks %" PRIu32 " and %" PRIu32
             " have equal frozen weights%s, but each rank should have its own part: one file may "
             "be a copy of another rank's file",
             first[0].rank, first[1].rank, others);
}

fsdpck_status ds_check_frozen_copies(const ds_state *s, fsdpck_error *err)
{
    rank_sum *sums;
    if (s->stage != 3 || s->frozen.count == 0)
        return FSDPCK_OK;
    sums = budget_alloc(s->req->metadata, s->world * sizeof *sums, err);
    if (sums == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t i = 0; i < s->world; i++)
        sums[i] = (rank_sum){.rank = (uint32_t)i};
    for (size_t i = 0; i < s->frozen.count; i++) {
        const ds_whole *w = VEC_AT(&s->frozen, const ds_whole, i);
        sums[w->rank].sum = sums[w->rank].sum * UINT64_C(0x9e3779b97f4a7c15) +
                            VEC_AT(&s->reader->pieces, const torch_shard, w->piece)->crc32;
    }
    qsort(sums, s->world, sizeof *sums, by_sum);
    warn_fragments(s, sums);
    budget_free(s->req->metadata, sums, s->world * sizeof *sums);
    return FSDPCK_OK;
}
