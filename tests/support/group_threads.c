#include "tests/support/group_threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "group/group_link.h"

enum { SIZE_MAX_RANKS = 16 };

struct group_link {
    unsigned rank;
    group_watch *watch;
    const link_call *call;
    group_serve_fn serve;
    void *serve_ctx;
};

static struct {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    unsigned size, joined;
    group_link *links[SIZE_MAX_RANKS];
} all;

void group_threads_begin(unsigned size)
{
    if (size > SIZE_MAX_RANKS || setenv("PMI_SIZE", size > 1 ? "2" : "1", 1) != 0)
        abort();
    pthread_barrier_init(&all.barrier, NULL, size);
    pthread_mutex_init(&all.lock, NULL);
    all.size = size;
    all.joined = 0;
}

void group_threads_end(void)
{
    pthread_barrier_destroy(&all.barrier);
    pthread_mutex_destroy(&all.lock);
}

static void meet(void)
{
    (void)pthread_barrier_wait(&all.barrier);
}

fsdpck_status group_link_open(group_watch *watch, group_link **out, fsdpck_error *err)
{
    (void)err;
    group_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        abort();
    l->watch = watch;
    pthread_mutex_lock(&all.lock);
    l->rank = all.joined++;
    all.links[l->rank] = l;
    pthread_mutex_unlock(&all.lock);
    *out = l;
    return FSDPCK_OK;
}

unsigned group_link_rank(const group_link *l)
{
    return l->rank;
}

unsigned group_link_size(const group_link *l)
{
    (void)l;
    return all.size;
}

static uint64_t *combine(const link_call *call)
{
    const uint64_t count = call->nbytes / sizeof(uint64_t);
    uint64_t *words = calloc(count + 1, sizeof *words);
    if (words == NULL)
        abort();
    for (unsigned r = 0; r < all.size; r++) {
        const uint64_t *theirs = all.links[r]->call->bytes;
        for (uint64_t i = 0; i < count; i++)
            words[i] = call->kind == LINK_XOR ? words[i] ^ theirs[i] : words[i] | theirs[i];
    }
    return words;
}

/* All ranks read the data of the others before any rank changes or frees it. */
fsdpck_status group_link_do(group_link *l, const link_call *call, fsdpck_error *err)
{
    (void)err;
    uint64_t *words = NULL;
    l->call = call;
    meet();
    for (unsigned r = 0; call->kind == LINK_GATHER && r < all.size; r++)
        memcpy(call->all + r * call->nbytes, all.links[r]->call->bytes, call->nbytes);
    if (call->kind == LINK_BROADCAST && call->root != l->rank)
        memcpy(call->bytes, all.links[call->root]->call->bytes, call->nbytes);
    if (call->kind == LINK_XOR || call->kind == LINK_OR)
        words = combine(call);
    meet();
    if (words != NULL)
        memcpy(call->bytes, words, call->nbytes);
    free(words);
    return FSDPCK_OK;
}

fsdpck_status group_link_read(group_link *l, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err)
{
    (void)l;
    const group_link *o = all.links[owner];
    return o->serve(o->serve_ctx, what, dst, err);
}

void group_link_serve(group_link *l, group_serve_fn fn, void *ctx)
{
    l->serve = fn;
    l->serve_ctx = ctx;
}

void group_link_report_failed(group_link *l)
{
    (void)l;
    for (unsigned r = 0; r < all.size; r++)
        atomic_store(&all.links[r]->watch->cancel->set, 1);
}

bool group_link_is_broken(group_link *l, int *lost)
{
    (void)l;
    *lost = -1;
    return false;
}

void group_link_free(group_link *l)
{
    free(l);
}

void group_link_abort(group_link *l, int status)
{
    (void)l;
    (void)status;
    abort();
}

const char *group_link_name(void)
{
    return "threads";
}

const char *group_link_description(void)
{
    return "threads of a test";
}
