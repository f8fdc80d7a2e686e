/* Merges the results of several processes: each ends with the findings and checksums that a single
 * process would have. */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "check/check_internal.h"

fsdpck_status peers_agree(const check *c, fsdpck_status st, fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    return p == NULL ? st : p->agree(p->ctx, st, err);
}

/* ---- findings ---- */

void peers_mark_findings(const check *c, found_mark *m)
{
    const findings *f = c->found;
    *m = (found_mark){.kept = f->kept, .unsupported = f->unsupported};
    memcpy(m->counts, f->counts, sizeof m->counts);
}

/* As it goes over: this, then the findings themselves. */
typedef struct findings_header {
    uint64_t counts[FINDING_SEVERITIES], unsupported, kept;
} findings_header;

static fsdpck_status receive_findings(void *arg, unsigned rank, const uint8_t *bytes,
                                      uint64_t nbytes, fsdpck_error *err)
{
    findings *f = arg;
    findings_header head;
    (void)rank;
    (void)nbytes;
    (void)err;
    memcpy(&head, bytes, sizeof head);
    findings_append(f, bytes + sizeof head, head.kept);
    for (unsigned i = 0; i < FINDING_SEVERITIES; i++)
        f->counts[i] += head.counts[i];
    f->unsupported += head.unsupported;
    return FSDPCK_OK;
}

fsdpck_status peers_merge_findings(check *c, fsdpck_status st, const found_mark *m,
                                   fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    findings *f = c->found;
    text_buf bytes = {.limit_bytes = SIZE_MAX / 2};
    findings_header head = {.unsupported = f->unsupported - m->unsupported,
                            .kept = f->kept - m->kept};
    uint64_t any = head.kept;
    if (p == NULL)
        return st;
    for (unsigned i = 0; i < FINDING_SEVERITIES; i++)
        any += head.counts[i] = f->counts[i] - m->counts[i];
    if (any > 0) {
        text_append(&bytes, (const char *)&head, sizeof head);
        text_append(&bytes, (const char *)(f->list + m->kept), head.kept * sizeof *f->list);
    }
    if (st == FSDPCK_OK)
        st = text_check(&bytes, err);
    f->kept = m->kept;
    f->unsupported = m->unsupported;
    memcpy(f->counts, m->counts, sizeof f->counts);
    st = p->gather(p->ctx, st, bytes.text, bytes.nbytes, receive_findings, f, err);
    text_release(&bytes);
    return st;
}

/* ---- jobs ---- */

static uint64_t hash_extents(const check *c)
{
    uint64_t h = 0;
    for (size_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        const uint64_t numbers[] = {e->offset_bytes, e->nbytes, e->chunk,         e->at_bytes,
                                    e->file,         e->crc32,  e->chunk_extents, e->has_crc};
        h = crc64_update(h, numbers, sizeof numbers);
    }
    return h;
}

static uint64_t job_bytes(const check *c, const check_job *j)
{
    uint64_t nbytes = 0;
    for (uint32_t k = j->first; k < j->end; k++) {
        const extent *e = VEC_AT(&c->extents, const extent, k);
        nbytes += (j->end_bytes < e->nbytes ? j->end_bytes : e->nbytes) - j->begin_bytes;
    }
    return nbytes;
}

static fsdpck_status assign_listed(check *c, vec *jobs, check_work *shares, uint8_t *mine,
                                   fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    check_job *list = jobs->items;
    size_t kept = 0;
    for (size_t i = 0; i < jobs->count; i++)
        shares[i] = (check_work){job_bytes(c, &list[i]),
                                 VEC_AT(&c->extents, const extent, list[i].first)->file};
    RETURN_IF(p->assignment(p->ctx, shares, jobs->count, mine, err));
    for (size_t i = 0; i < jobs->count; i++)
        if (mine[i])
            list[kept++] = list[i];
    jobs->count = kept;
    return FSDPCK_OK;
}

fsdpck_status peers_assign_jobs(check *c, vec *jobs, fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    if (p == NULL)
        return FSDPCK_OK;
    RETURN_IF(p->same(p->ctx, hash_extents(c), "records", err));
    check_work *shares = calloc(jobs->count + 1, sizeof *shares);
    uint8_t *mine = calloc(jobs->count + 1, 1);
    const fsdpck_status st = shares == NULL || mine == NULL
                                 ? error_set_nomem(err, jobs->count * sizeof *shares)
                                 : assign_listed(c, jobs, shares, mine, err);
    free(shares);
    free(mine);
    return peers_agree(c, st, err);
}

/* ---- numbers ---- */

/* As they go over: this, then so many of each. */
typedef struct numbers_header {
    uint64_t sums, zeros, parts, counts;
} numbers_header;

typedef struct tensor_sums {
    uint64_t tensor;
    scan_counts sums;
} tensor_sums;

typedef struct counts_header {
    uint64_t tensor;
    uint32_t first, n; /* counts follow */
} counts_header;

static void put_sums(const check *c, numbers_header *head, text_buf *t)
{
    for (uint64_t i = 0; i < catalogue_tensor_count(c->r->cat); i++) {
        tensor_sums one;
        if (c->sums[i].nelems == 0)
            continue;
        memset(&one, 0, sizeof one);
        one.tensor = i;
        one.sums = c->sums[i];
        text_append(t, (const char *)&one, sizeof one);
        head->sums++;
    }
}

static void put_counts(const check *c, numbers_header *head, text_buf *t)
{
    for (uint64_t i = 0; c->result->numbers != NULL && i < c->result->ntensors; i++) {
        const check_statistics *s = &c->result->numbers[i];
        const counts_header one = {i, (uint32_t)(s->exponent_least - EXPONENT_MIN), s->exponents};
        if (s->exponents == 0)
            continue;
        text_append(t, (const char *)&one, sizeof one);
        text_append(t, (const char *)s->counts, s->exponents * sizeof *s->counts);
        head->counts++;
    }
}

static void put_numbers(const check *c, text_buf *t)
{
    numbers_header head = {.zeros = c->zero_runs.count, .parts = c->parts.count};
    text_append(t, (const char *)&head, sizeof head);
    put_sums(c, &head, t);
    text_append(t, c->zero_runs.items, head.zeros * sizeof(zero_run));
    text_append(t, c->parts.items, head.parts * sizeof(moments_part));
    put_counts(c, &head, t);
    if (!t->failed)
        memcpy(t->text, &head, sizeof head);
}

static void clear_numbers(check *c)
{
    memset(c->sums, 0, catalogue_tensor_count(c->r->cat) * sizeof *c->sums);
    c->zero_runs.count = 0;
    c->parts.count = 0;
    for (uint64_t i = 0; c->result->numbers != NULL && i < c->result->ntensors; i++) {
        free(c->result->numbers[i].counts);
        c->result->numbers[i] = (check_statistics){0};
    }
}

static fsdpck_status receive_list(vec *to, uint64_t count, const uint8_t **at, fsdpck_error *err)
{
    RETURN_IF(vec_add_n(to, *at, count, err));
    *at += count * to->item_nbytes;
    return FSDPCK_OK;
}

static fsdpck_status receive_counts(check *c, uint64_t count, const uint8_t *at, fsdpck_error *err)
{
    uint64_t counts[EXPONENTS];
    for (uint64_t i = 0; i < count; i++) {
        counts_header one;
        memcpy(&one, at, sizeof one);
        at += sizeof one;
        memcpy(counts, at, one.n * sizeof *counts);
        at += one.n * sizeof *counts;
        RETURN_IF(
            statistics_add_counts(&c->result->numbers[one.tensor], one.first, one.n, counts, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status receive_numbers(void *arg, unsigned rank, const uint8_t *bytes,
                                     uint64_t nbytes, fsdpck_error *err)
{
    check *c = arg;
    numbers_header head;
    const uint8_t *at = bytes + sizeof head;
    (void)rank;
    (void)nbytes;
    memcpy(&head, bytes, sizeof head);
    for (uint64_t i = 0; i < head.sums; i++) {
        tensor_sums one;
        memcpy(&one, at, sizeof one);
        at += sizeof one;
        scan_add(&c->sums[one.tensor], &one.sums);
    }
    RETURN_IF(receive_list(&c->zero_runs, head.zeros, &at, err));
    RETURN_IF(receive_list(&c->parts, head.parts, &at, err));
    return receive_counts(c, head.counts, at, err);
}

static fsdpck_status merge_numbers(check *c, fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    text_buf bytes = {.limit_bytes = SIZE_MAX / 2};
    put_numbers(c, &bytes);
    const fsdpck_status made = text_check(&bytes, err);
    clear_numbers(c);
    const fsdpck_status st =
        p->gather(p->ctx, made, bytes.text, bytes.nbytes, receive_numbers, c, err);
    text_release(&bytes);
    return st;
}

/* ---- the rest of the bytes' sums ---- */

/* A byte for each extent, file and chunk extent, and for the run. */
typedef struct flags {
    uint64_t extents, files, chunk_extents, nwords;
    uint8_t *bytes;
} flags;

static void put_flags(const check *c, flags *f)
{
    uint8_t *at = f->bytes;
    for (uint64_t i = 0; i < f->extents; i++)
        *at++ = VEC_AT(&c->extents, const extent, i)->unread;
    for (uint64_t i = 0; i < f->files; i++)
        *at++ = !c->r->files[i].done;
    if (f->chunk_extents > 0)
        memcpy(at, c->live, f->chunk_extents);
    at[f->chunk_extents] = c->stopped;
}

static void receive_flags(check *c, const flags *f)
{
    const uint8_t *at = f->bytes;
    for (uint64_t i = 0; i < f->extents; i++)
        VEC_AT(&c->extents, extent, i)->unread = *at++ != 0;
    for (uint64_t i = 0; i < f->files; i++)
        c->r->files[i].done = *at++ == 0;
    if (f->chunk_extents > 0)
        memcpy(c->live, at, f->chunk_extents);
    c->stopped = at[f->chunk_extents] != 0;
}

static fsdpck_status merge_flags(check *c, fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    flags f = {.extents = c->extents.count,
               .files = c->r->files == NULL ? 0 : catalogue_file_count(c->r->cat),
               .chunk_extents = c->live == NULL ? 0 : c->chunk_extents.count};
    f.nwords = (f.extents + f.files + f.chunk_extents + 1) / sizeof(uint64_t) + 1;
    f.bytes = calloc(f.nwords, sizeof(uint64_t));
    fsdpck_status st =
        f.bytes != NULL ? FSDPCK_OK : error_set_nomem(err, f.nwords * sizeof(uint64_t));
    st = peers_agree(c, st, err);
    if (st == FSDPCK_OK) {
        put_flags(c, &f);
        st = p->or_words(p->ctx, (uint64_t *)(void *)f.bytes, f.nwords, err);
        receive_flags(c, &f);
    }
    free(f.bytes);
    return st;
}

static fsdpck_status merge_files(check *c, fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    const uint64_t n = c->r->files == NULL ? 0 : catalogue_file_count(c->r->cat);
    uint64_t *words = calloc(n + 1, sizeof *words);
    fsdpck_status st = words != NULL ? FSDPCK_OK : error_set_nomem(err, n * sizeof *words);
    st = peers_agree(c, st, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < n; i++)
        words[i] = c->r->files[i].crc64;
    if (st == FSDPCK_OK)
        st = p->xor_words(p->ctx, words, n, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < n; i++)
        c->r->files[i].crc64 = words[i];
    free(words);
    return st;
}

static fsdpck_status receive_read_bytes(void *arg, unsigned rank, const uint8_t *bytes,
                                        uint64_t nbytes, fsdpck_error *err)
{
    check *c = arg;
    uint64_t some;
    (void)rank;
    (void)nbytes;
    (void)err;
    memcpy(&some, bytes, sizeof some);
    c->result->bytes_read += some;
    return FSDPCK_OK;
}

fsdpck_status peers_merge_bytes(check *c, fsdpck_status st, const found_mark *m, uint32_t *crcs,
                                fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    if (p == NULL)
        return st;
    const uint64_t had = c->result->bytes_read;
    RETURN_IF(peers_merge_findings(c, st, m, err));
    RETURN_IF(p->xor_words(p->ctx, (uint64_t *)(void *)crcs, (c->extents.count + 1) / 2, err));
    RETURN_IF(merge_flags(c, err));
    RETURN_IF(merge_files(c, err));
    c->result->bytes_read = 0;
    RETURN_IF(p->gather(p->ctx, FSDPCK_OK, &had, sizeof had, receive_read_bytes, c, err));
    return c->sums == NULL ? FSDPCK_OK : merge_numbers(c, err);
}

/* ---- the rest ---- */

static fsdpck_status receive_result(void *arg, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                    fsdpck_error *err)
{
    check *c = arg;
    check_statistics *const numbers = c->result->numbers;
    (void)rank;
    (void)err;
    memcpy(c->result, bytes, nbytes);
    c->result->numbers = numbers;
    return FSDPCK_OK;
}

fsdpck_status peers_merge_records(check *c, fsdpck_status st, const found_mark *m,
                                  fsdpck_error *err)
{
    const check_peers *p = c->r->peers;
    if (p == NULL)
        return st;
    RETURN_IF(peers_merge_findings(c, st, m, err));
    return p->gather(p->ctx, FSDPCK_OK, c->result, p->rank == 0 ? sizeof *c->result : 0,
                     receive_result, c, err);
}
