/* Tiles by NCCL between ranks that are threads, each with a simulated GPU: digests are those of the
 * expected output; any failing call of a device or of NCCL ends all ranks alike; and rounds
 * (rounds.h) keep their guarantees. LD_LIBRARY_PATH must point to the library that replaces NCCL.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/gpu/rounds.h"
#include "group/remote_folder.h"
#include "tests/support/exec_harness.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/group_threads.h"
#include "tests/support/must.h"
#include "tests/support/random.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})
enum { RANKS_MAX = 5, FILES = 4 };

/* ---- rounds ---- */

typedef struct invented_case {
    unsigned size;
    uint64_t left[RANKS_MAX], most;
    uint64_t state;
} invented_case;

static fsdpck_status next_invented_case(void *ctx, unsigned rank, output_range *tile,
                                        uint64_t *nbytes_from, bool *there, fsdpck_error *err)
{
    invented_case *m = ctx;
    uint64_t room = m->most;
    (void)err;
    *there = m->left[rank] > 0;
    if (!*there)
        return FSDPCK_OK;
    *tile = (output_range){rank, m->left[rank], m->left[rank] + 1};
    m->left[rank]--;
    for (unsigned from = 0; from < m->size; from++) {
        const uint64_t n = random_below(&m->state, 3) == 0 ? 0 : random_below(&m->state, room + 1);
        nbytes_from[from] = from == rank ? 0 : n;
        room -= nbytes_from[from];
    }
    return FSDPCK_OK;
}

/* Messages between two ranks fill one transfer, in the order of the list, and there is no second one. */
static void check_transfer(const round_list *list, size_t number)
{
    const round_transfer *t = VEC_AT(&list->transfers, const round_transfer, number);
    uint64_t at = 0, data_nbytes = 0;
    MUST(t->from != t->to && t->at_from % ROUNDS_ALIGN == 0 && t->at_to % ROUNDS_ALIGN == 0);
    for (size_t i = 0; i < number; i++) {
        const round_transfer *before = VEC_AT(&list->transfers, const round_transfer, i);
        MUST(before->from != t->from || before->to != t->to);
    }
    for (size_t i = 0; i < list->needs.count; i++) {
        const round_need *n = VEC_AT(&list->needs, const round_need, i);
        const round_tile *tile = VEC_AT(&list->tiles, const round_tile, n->tile);
        if (n->from != t->from || tile->rank != t->to)
            continue;
        MUST(n->at_from == t->at_from + at && n->at_to == t->at_to + at);
        at += rounds_message_nbytes(n->nbytes);
        data_nbytes += n->nbytes;
    }
    MUST(at > 0 && at == t->nbytes && data_nbytes == t->data_nbytes);
}

/* Places of transfers do not overlap and lie within the capacity; all messages are in one. */
static void check_places(const round_list *list, unsigned size, uint64_t capacity)
{
    uint64_t total = 0;
    for (size_t i = 0; i < list->needs.count; i++) {
        const round_need *n = VEC_AT(&list->needs, const round_need, i);
        const round_tile *tile = VEC_AT(&list->tiles, const round_tile, n->tile);
        MUST(n->from != tile->rank && n->nbytes > 0);
        MUST(i >= tile->first_need && i < tile->first_need + tile->need_count);
        total += rounds_message_nbytes(n->nbytes);
    }
    for (size_t i = 0; i < list->transfers.count; i++) {
        check_transfer(list, i);
        total -= VEC_AT(&list->transfers, const round_transfer, i)->nbytes;
    }
    MUST(total == 0);
    for (unsigned rank = 0; rank < size; rank++) {
        uint64_t sent = 0, received = 0;
        for (size_t i = 0; i < list->transfers.count; i++) {
            const round_transfer *t = VEC_AT(&list->transfers, const round_transfer, i);
            MUST(t->from != rank || t->at_from >= sent);
            MUST(t->to != rank || t->at_to >= received);
            sent = t->from == rank ? t->at_from + t->nbytes : sent;
            received = t->to == rank ? t->at_to + t->nbytes : received;
        }
        MUST(sent <= capacity && received <= capacity);
    }
}

static void check_rounds(uint64_t seed)
{
    invented_case m = {.state = seed, .most = 1 + seed * 37 % 5000};
    uint64_t seen[RANKS_MAX];
    round_list list = {0};
    rounds r;
    m.size = 1 + (unsigned)(seed % RANKS_MAX);
    const unsigned each = 1 + (unsigned)(seed % 3);
    /* Room for all that a rank may take in a round, or for one tile of it. */
    const uint64_t capacity = rounds_capacity(m.size, seed % 2 == 0 ? each : 1, m.most);
    for (unsigned i = 0; i < m.size; i++)
        seen[i] = m.left[i] = random_below(&m.state, 20);
    MUST(rounds_init(&r, m.size, each, capacity, next_invented_case, &m, NULL) == FSDPCK_OK);
    do {
        unsigned taken[RANKS_MAX] = {0};
        MUST(rounds_next(&r, &list, NULL) == FSDPCK_OK);
        check_places(&list, m.size, capacity);
        for (size_t i = 0; i < list.tiles.count; i++) {
            const round_tile *t = VEC_AT(&list.tiles, const round_tile, i);
            MUST(t->range.file == t->rank && t->range.begin == seen[t->rank]--);
            MUST(++taken[t->rank] <= each);
        }
    } while (list.tiles.count > 0);
    for (unsigned i = 0; i < m.size; i++)
        MUST(seen[i] == 0);
    round_list_release(&list);
    rounds_release(&r);
}

static void check_no_room(void)
{
    invented_case m = {.size = 2, .most = 4000, .state = 1, .left = {9, 9}};
    round_list list = {0};
    rounds r;
    fsdpck_status st;
    MUST(rounds_init(&r, 2, 1, 512, next_invented_case, &m, NULL) == FSDPCK_OK);
    do
        st = rounds_next(&r, &list, NULL);
    while (st == FSDPCK_OK && list.tiles.count > 0);
    MUST(st == FSDPCK_INTERNAL);
    round_list_release(&list);
    rounds_release(&r);
}

/* ---- ranks ---- */

typedef struct case_of {
    unsigned size, nthreads;
    uint64_t tile_nbytes; /* 0: 65536 */
    bool alone;           /* one rank has all files */
    fake_mode mode;
    unsigned faulty;
    uint64_t fail_at, flip_at, flips;
} case_of;

typedef struct rank_run {
    const case_of *c;
    const char *folder;
    cancel_token cancel;
    progress progress;
    fsdpck_status st;
    fsdpck_error err;
    struct exec_stats sums;
    uint64_t calls, waits, rounds;
    unsigned rank;
} rank_run;

/* Rows and columns in four files, written unchanged, cast, and resharded. */
static exec_harness *make_world(void)
{
    const uint64_t rows = 3000;
    exec_harness *w = exec_harness_new(FILES, 2);
    const uint32_t a = memory_source_add_tensor(&w->source, "a", DTYPE_BFLOAT16, 2, BOX(rows, 120));
    for (uint32_t s = 0; s < FILES; s++)
        memory_source_add_chunk(&w->source, a, BOX(rows / 4 * s, 0), BOX(rows / 4, 120),
                                &(memory_layout){.file = s, .gap_nbytes = 33, .swap = s == 1});
    const uint32_t b = memory_source_add_tensor(&w->source, "b", DTYPE_FLOAT32, 2, BOX(rows, 48));
    for (uint32_t s = 0; s < FILES; s++)
        memory_source_add_chunk(&w->source, b, BOX(0, 12 * s), BOX(rows, 12),
                                &(memory_layout){.file = (s + 1) % FILES});
    const uint32_t one = memory_source_add_tensor(&w->source, "one", DTYPE_FLOAT32, 0, NULL);
    memory_source_add_chunk(&w->source, one, NULL, NULL, &(memory_layout){.file = 2});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, a, 0, DTYPE_BFLOAT16);
    const uint32_t cast = exec_harness_add_target(w, a, "cast", DTYPE_FLOAT32);
    exec_harness_add_chunk(w, cast, 1, BOX(0, 0), BOX(rows, 120));
    const uint32_t cut = exec_harness_add_target(w, b, "cut", DTYPE_FLOAT32);
    exec_harness_add_chunk(w, cut, 0, BOX(0, 0), BOX(rows / 3, 48));
    exec_harness_add_chunk(w, cut, 1, BOX(rows / 3, 0), BOX(rows - rows / 3, 48));
    exec_harness_add_whole(w, one, 1, DTYPE_FLOAT32);
    MUST(catalogue_seal(&w->to.cat, NULL) == FSDPCK_OK);
    exec_harness_place(w, 1001);
    exec_harness_expect(w);
    return w;
}

/* Files of the names that the source has. */
static void make_folder(const rank_run *r, unsigned rank, char *path, size_t capacity)
{
    (void)snprintf(path, capacity, "%s/rank%u", r->folder, rank);
    (void)mkdir(path, 0777);
    for (unsigned i = 0; i < FILES; i++) {
        char name[SCRATCH_BYTES + 40];
        if (rank != (r->c->alone ? 0 : i % r->c->size))
            continue;
        (void)snprintf(name, sizeof name, "%s/rank_%u.bin", path, i);
        FILE *f = fopen(name, "w");
        MUST(f != NULL && fclose(f) == 0);
    }
}

static void on_log(void *ctx, const log_line *line)
{
    const char *at = strstr(line->text, " bytes, in ");
    if (at != NULL && strncmp(line->text, "NCCL transferred", 16) == 0)
        ((rank_run *)ctx)->rounds = strtoull(at + strlen(" bytes, in "), NULL, 10);
}

static fsdpck_status run_world(rank_run *r, group *g, remote_folder *source_folder, gpu *device)
{
    exec_harness *w = make_world();
    const logger log = {on_log, r};
    const exec_harness_options o = {.log = &log,
                                    .nthreads = r->c->nthreads,
                                    .tile_nbytes =
                                        r->c->tile_nbytes != 0 ? r->c->tile_nbytes : 65536,
                                    .cancel = &r->cancel,
                                    .group = g,
                                    .source_folder = source_folder,
                                    .gpu = device,
                                    .gpu_required = true};
    const fsdpck_status st = exec_harness_digest(w, &o, &r->err);
    r->sums = w->sums;
    exec_harness_free(w);
    return st;
}

static void *run_rank(void *ctx)
{
    rank_run *r = ctx;
    group_watch watch = {.cancel = &r->cancel, .progress = &r->progress, .peer_timeout_seconds = 3};
    group *g = NULL;
    remote_folder *source_folder = NULL;
    folder here;
    fake_gpu f;
    char path[SCRATCH_BYTES + 16];
    MUST(group_join(&watch, &g, &r->err) == FSDPCK_OK);
    r->rank = group_rank(g);
    make_folder(r, r->rank, path, sizeof path);
    MUST(folder_open(&here, path, &r->err) == FSDPCK_OK);
    MUST(remote_folder_new(g, path, &here, 0, &source_folder, &r->err) == FSDPCK_OK);
    MUST((source_folder != NULL) == (r->c->size > 1));
    fake_gpu_init(&f);
    f.bodies = r->rank == 0;
    f.mode = r->c->mode;
    if (r->rank == r->c->faulty) {
        f.fail_at = r->c->fail_at;
        f.flip_at = r->c->flip_at;
        f.flips = r->c->flips;
    }
    r->st = run_world(r, g, source_folder, &f.base);
    r->calls = atomic_load(&f.calls);
    r->waits = atomic_load(&f.made[FAKE_WAIT]);
    fake_gpu_release(&f);
    remote_folder_free(source_folder);
    folder_close(&here);
    group_leave(&g, FSDPCK_OK);
    return NULL;
}

/* Status of all ranks. */
static fsdpck_status run_case(const case_of *c, rank_run *runs)
{
    pthread_t threads[RANKS_MAX];
    char scratch[SCRATCH_BYTES];
    scratch_make(scratch);
    group_threads_begin(c->size);
    memset(runs, 0, RANKS_MAX * sizeof *runs);
    for (unsigned i = 0; i < c->size; i++) {
        runs[i].c = c;
        runs[i].folder = scratch;
        MUST(pthread_create(&threads[i], NULL, run_rank, &runs[i]) == 0);
    }
    for (unsigned i = 0; i < c->size; i++)
        pthread_join(threads[i], NULL);
    group_threads_end();
    scratch_remove(scratch);
    for (unsigned i = 1; i < c->size; i++)
        MUST(runs[i].st == runs[0].st);
    return runs[0].st;
}

static void check_bytes(void)
{
    static const unsigned sizes[] = {1, 2, 3, 4, 5};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (unsigned k = 0; k < (sizes[i] == 3 ? 4u : 2u); k++) {
            const case_of c = {.size = sizes[i],
                               .nthreads = 2,
                               .alone = k == 1,
                               .mode = k < 2    ? FAKE_LAST
                                       : k == 2 ? FAKE_EAGER
                                                : FAKE_THREADS,
                               .faulty = 99};
            rank_run runs[RANKS_MAX];
            MUST(run_case(&c, runs) == FSDPCK_OK);
            MUST((runs[0].sums.bytes_exchanged > 0) == (c.size > 1));
            MUST(runs[0].sums.bytes_exchanged <= runs[0].sums.bytes_travelled);
        }
}

/* Sends of all ranks in the log of the library that replaces NCCL: rank, sends, receives, end. */
static uint64_t count_sends(const char *path)
{
    unsigned rank, sends, receives;
    char how[32];
    uint64_t total = 0;
    FILE *f = fopen(path, "r");
    MUST(f != NULL);
    while (fscanf(f, "%u %u %u %31s", &rank, &sends, &receives, how) == 4)
        total += sends;
    (void)fclose(f);
    return total;
}

/* A rank sends once to each other rank in a round, and waits once for the messages that it makes
 * together. */
static void check_counts(void)
{
    const case_of c = {.size = 4, .nthreads = 16, .tile_nbytes = 16384, .faulty = 99};
    rank_run runs[RANKS_MAX];
    char scratch[SCRATCH_BYTES], path[SCRATCH_BYTES + 16];
    uint64_t waits = 0, count = 0;
    scratch_make(scratch);
    (void)snprintf(path, sizeof path, "%s/log", scratch);
    MUST(setenv("FAKE_NCCL_LOG", path, 1) == 0);
    MUST(run_case(&c, runs) == FSDPCK_OK);
    MUST(unsetenv("FAKE_NCCL_LOG") == 0);
    for (unsigned i = 0; i < c.size; i++) {
        waits += runs[i].waits;
        count = runs[i].rounds > count ? runs[i].rounds : count;
    }
    const uint64_t sends = count_sends(path);
    printf("%u ranks, %" PRIu64 " tiles: %" PRIu64 " rounds, %" PRIu64 " sends, %" PRIu64
           " waits\n",
           c.size, runs[0].sums.gpu_tiles, count, sends, waits);
    MUST(count > 1 && sends > 0 && sends <= count * c.size * (c.size - 1));
    MUST(waits <= runs[0].sums.gpu_tiles * 7 / 2);
    scratch_remove(scratch);
}

static fake_mode next_mode(fake_mode mode)
{
    return (fake_mode)((mode + 1) % (FAKE_THREADS + 1));
}

static void check_failures(void)
{
    rank_run runs[RANKS_MAX];
    case_of c = {.size = 3, .nthreads = 1, .faulty = 99};
    MUST(run_case(&c, runs) == FSDPCK_OK);
    uint64_t calls = 0;
    c.faulty = 1;
    for (unsigned i = 0; i < c.size; i++)
        calls = runs[i].rank == c.faulty ? runs[i].calls : calls;
    MUST(calls > 50);
    for (uint64_t k = 1; k < calls; k += 1 + k * test_stride() / 6) {
        c.fail_at = k;
        c.mode = next_mode(c.mode);
        /* Memory for the exchange that is not there is none of the run's failures. */
        const fsdpck_status st = run_case(&c, runs);
        MUST(st == FSDPCK_DEVICE || (st == FSDPCK_OK && runs[0].sums.bytes_exchanged == 0));
    }
    c.fail_at = 0;
    for (uint64_t k = 1; k < 40; k += 3 * test_stride())
        for (c.flips = 1; c.flips <= 1000000; c.flips += 999999) {
            c.flip_at = k;
            c.mode = next_mode(c.mode);
            MUST(run_case(&c, runs) == (c.flips == 1 ? FSDPCK_OK : FSDPCK_DEVICE));
        }
}

static void check_faults_of_nccl(void)
{
    static const struct {
        const char *fault;
        fsdpck_status st;
    } rows[] = {
        {"join:1:2", FSDPCK_OK},           {"exchange:1:2:1", FSDPCK_DEVICE},
        {"exchange:0:6:3", FSDPCK_DEVICE}, {"exchange:2:-1:2", FSDPCK_DEVICE},
        {"flip:0:0:1", FSDPCK_OK},         {"flip:2:0:4", FSDPCK_OK},
    };
    rank_run runs[RANKS_MAX];
    case_of c = {.size = 3, .nthreads = 2, .faulty = 99};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        c.mode = next_mode(c.mode);
        MUST(setenv("FAKE_NCCL_FAULT", rows[i].fault, 1) == 0);
        MUST(run_case(&c, runs) == rows[i].st);
    }
    MUST(unsetenv("FAKE_NCCL_FAULT") == 0);
}

int main(void)
{
    const uint64_t seeds = 300 / test_stride();
    for (uint64_t seed = 0; seed < seeds; seed++)
        check_rounds(seed);
    check_no_room();
    check_bytes();
    check_counts();
    check_failures();
    check_faults_of_nccl();
    return 0;
}
