#include "formats/dcp/dcp_condense.h"

#include <pthread.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_condense_internal.h"

/* Fits the processor's cache, so that bytes are parsed where they were read, and holds four of
 * Python's frames. */
#define ROOM_NBYTES       ((size_t)280 << 10)
#define THREADS_MOST      4u
#define BLOCKS_PER_THREAD 3u

typedef struct condenser {
    dcp_condensed *c;
    dcp_recorder r;
    dcp_frames frames;
    dcp_window w;
    dcp_roles roles;
    size_t kept_from; /* in the window: opcodes from here on are to be kept */
    bool in_part;     /* the opcodes before w.at are of the last part */
    bool stopped;
    bool has_index; /* the last entry has no info yet */
    /* Of the opcodes that are kept. */
    uint8_t last_op;
    dcp_role attribute, named; /* that the last str names: an attribute, a class */
    dcp_role callee;           /* the class that was made or fetched last */
    dcp_ahead *now;            /* in the window; NULL before the first */
    fsdpck_status status;
    /* Blocks by their number modulo nblocks. */
    dcp_ahead *blocks;
    size_t nblocks;
    pthread_mutex_t lock; /* guards the members below, frames, roles, and `ready` of blocks */
    pthread_cond_t changed;
    uint64_t current; /* number of the block in the window, + 1 */
    uint64_t planned; /* blocks; each is matched or under way */
    bool odd;         /* no more can be planned */
    bool ended;
} condenser;

/* --- opcodes that are kept --- */

static fsdpck_status keep(condenser *t, size_t end)
{
    return vec_add_n(&t->c->kept, t->w.bytes + t->kept_from, end - t->kept_from, NULL);
}

/* `part` has no records yet; they are the next ones. */
static fsdpck_status begin_part(condenser *t, const dcp_part *part)
{
    if (t->c->parts.count >= DCP_NONE)
        return DCP_ODD;
    RETURN_IF(keep(t, t->w.at));
    RETURN_IF(vec_add(&t->c->kept, &(uint8_t){PICKLE_GAP}, NULL));
    RETURN_IF(vec_add(&t->c->gaps.gaps, &(pickle_gap){.pairs = part->pairs}, NULL));
    return vec_add(&t->c->parts, part, NULL);
}

static vec *records_of(condenser *t, bool pairs)
{
    return pairs ? &t->r.m->entries : &t->r.m->chunks;
}

/* The part may begin only where a batch of items may be under way: after MARK, or after another
 * object. */
static bool can_take(const condenser *t)
{
    return t->in_part || t->last_op == OP_MARK || t->last_op == OP_BUILD;
}

/* `count` records of the last part were put; they end at `to`. */
static void note_taken(condenser *t, uint32_t count, size_t to)
{
    dcp_part *part = VEC_AT(&t->c->parts, dcp_part, t->c->parts.count - 1);
    const uint64_t memoized = (uint64_t)count * part->per_record;
    part->count += count;
    VEC_AT(&t->c->gaps.gaps, pickle_gap, t->c->gaps.gaps.count - 1)->memoized += memoized;
    t->r.memoized += memoized;
    if (part->pairs)
        t->has_index = false;
    t->w.at = t->kept_from = to;
    t->in_part = true;
}

static const dcp_part *last_part(const condenser *t)
{
    return t->in_part ? VEC_AT(&t->c->parts, dcp_part, t->c->parts.count - 1) : NULL;
}

/* The record at w.at, if it has a known form. */
static fsdpck_status take_record(condenser *t, bool *taken)
{
    dcp_raw_record r;
    const size_t from = t->w.at;
    const size_t n = dcp_record_match(&t->roles, t->w.bytes + from, &r);

    *taken = n > 0 && can_take(t);
    if (!*taken)
        return FSDPCK_OK;
    const vec *records = records_of(t, r.pairs);
    if (records->count >= DCP_NONE - 1)
        return DCP_ODD;
    const dcp_part *last = last_part(t);
    if (last == NULL || !dcp_part_continues(last, &r)) {
        const dcp_part part = dcp_part_begin(&r, (uint32_t)records->count);
        RETURN_IF(begin_part(t, &part));
    }
    RETURN_IF(r.pairs ? dcp_record_entry(&t->r, &r) : dcp_record_chunk(&t->r, &r));
    note_taken(t, 1, from + n);
    return dcp_window_passed(&t->w, from) ? FSDPCK_OK : DCP_ODD;
}

/* The records at w.at, if a thread has matched them with the same roles. */
static fsdpck_status take_ahead(condenser *t, bool *taken)
{
    const dcp_span *span =
        t->now->nroles == t->c->roles.count && can_take(t) ? dcp_ahead_find(t->now, t->w.at) : NULL;
    *taken = span != NULL;
    if (!*taken)
        return FSDPCK_OK;
    dcp_part part = span->part;
    const vec *records = records_of(t, part.pairs);
    if (part.count >= DCP_NONE - 1 - records->count)
        return DCP_ODD;
    const dcp_part *last = last_part(t);
    if (last == NULL || last->pairs != part.pairs || last->per_record != part.per_record ||
        memcmp(last->places, part.places, sizeof part.places) != 0) {
        part.first = (uint32_t)records->count;
        part.count = 0;
        RETURN_IF(begin_part(t, &part));
    }
    RETURN_IF(dcp_ahead_take(t->now, span, &t->r));
    note_taken(t, span->part.count, span->to);
    dcp_window_drop_ends(&t->w);
    return FSDPCK_OK;
}

static fsdpck_status add_role(condenser *t, dcp_role role)
{
    size_t i = t->r.memoized % DCP_ROLE_SLOTS;
    if (t->c->roles.count >= DCP_ROLES_MAX || t->r.memoized >= UINT32_MAX)
        return DCP_ODD;
    RETURN_IF(vec_add(&t->c->gaps.fetched, &(uint64_t){t->r.memoized}, NULL));
    pthread_mutex_lock(&t->lock);
    while (t->roles.memo1[i] != 0)
        i = (i + 1) % DCP_ROLE_SLOTS;
    t->roles.memo1[i] = (uint32_t)t->r.memoized + 1;
    t->roles.role[i] = (uint8_t)role;
    const fsdpck_status st = vec_add(&t->c->roles, &(dcp_named){t->r.memoized, role}, NULL);
    pthread_mutex_unlock(&t->lock);
    return st;
}

static fsdpck_status note_memoize(condenser *t)
{
    dcp_role role = DCP_ROLE_NONE;
    if (t->last_op == OP_SHORT_BINUNICODE) {
        role = t->attribute;
    } else if (t->last_op == OP_STACK_GLOBAL) {
        role = t->callee = t->named;
    }
    if (role != DCP_ROLE_NONE)
        RETURN_IF(add_role(t, role));
    t->r.memoized++;
    return FSDPCK_OK;
}

/* A record that is made by opcodes that are kept: its place. */
static fsdpck_status note_newobj(condenser *t)
{
    dcp_metadata *m = t->r.m;
    switch (t->callee) {
    case DCP_ROLE_CHUNK:
        return vec_push(&m->chunks, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    case DCP_ROLE_INFO:
        if (t->has_index) {
            t->has_index = false;
            return FSDPCK_OK;
        }
        return dcp_entry_add(m, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    case DCP_ROLE_INDEX:
        t->has_index = true;
        return dcp_entry_add(m, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    default:
        return FSDPCK_OK;
    }
}

/* Notes what one opcode tells of classes and names. */
static fsdpck_status note_opcode(condenser *t, const uint8_t *p)
{
    const uint8_t op = p[0];
    switch (op) {
    case OP_MEMOIZE:
        return note_memoize(t);
    case OP_SHORT_BINUNICODE:
        t->attribute = dcp_role_by_name(p + 2, p[1], false);
        t->named = dcp_role_by_name(p + 2, p[1], true);
        return FSDPCK_OK;
    case OP_BINGET:
    case OP_LONG_BINGET:
        t->callee = dcp_role_of(&t->roles, op == OP_BINGET ? p[1] : load_le32(p + 1));
        return FSDPCK_OK;
    case OP_NEWOBJ:
        return t->last_op == OP_EMPTY_TUPLE ? note_newobj(t) : FSDPCK_OK;
    case OP_STOP:
        t->stopped = true;
        return FSDPCK_OK;
    default:
        return FSDPCK_OK;
    }
}

/* One opcode that is kept. */
static fsdpck_status pass_opcode(condenser *t)
{
    const uint8_t *p = t->w.bytes + t->w.at;
    const size_t n = dcp_opcode_nbytes(p);
    if (n == 0 || n > t->w.end - t->w.at)
        return DCP_ODD;
    RETURN_IF(note_opcode(t, p));
    t->last_op = p[0];
    t->in_part = false;
    t->w.at += n;
    return dcp_window_passed_one(&t->w) ? FSDPCK_OK : DCP_ODD;
}

/* --- blocks --- */

/* Whether a block is left, and has room. */
static bool can_read(const condenser *t)
{
    return !t->odd && !t->frames.whole && t->planned + 1 < t->current + t->nblocks;
}

/* With the lock, which it leaves meanwhile. The taker matches the block that it waits for itself, when
 * it takes the records. */
static void read_block(condenser *t)
{
    const bool ahead = t->planned >= t->current; /* it is not the next one */
    dcp_ahead *a = &t->blocks[t->planned % t->nblocks];
    if (dcp_block_plan(&t->frames, &a->block) != FSDPCK_OK) {
        t->odd = true;
        return;
    }
    t->planned++;
    a->ready = false;
    a->roles = t->roles;
    a->nroles = ahead ? t->c->roles.count : 0;
    pthread_mutex_unlock(&t->lock);
    dcp_ahead_match(a, t->frames.from);
    pthread_mutex_lock(&t->lock);
    a->ready = true;
    pthread_cond_broadcast(&t->changed);
}

/* Until the taker has ended; it has to find roles first. */
static void read_ahead(condenser *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->ended)
        if (t->c->roles.count > 0 && can_read(t))
            read_block(t);
        else
            pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* The next one, or NULL. */
static dcp_ahead *get_block(condenser *t)
{
    dcp_ahead *a = &t->blocks[t->current % t->nblocks];
    pthread_mutex_lock(&t->lock);
    t->current++;
    pthread_cond_broadcast(&t->changed);
    while (t->planned < t->current || !a->ready) {
        if (can_read(t))
            read_block(t);
        else if (t->planned < t->current)
            break;
        else
            pthread_cond_wait(&t->changed, &t->lock);
    }
    const bool is = t->planned >= t->current && !a->failed;
    pthread_mutex_unlock(&t->lock);
    return is ? a : NULL;
}

static fsdpck_status next_block(condenser *t)
{
    if (t->now != NULL)
        dcp_window_leave(&t->w);
    t->now = get_block(t);
    if (t->now == NULL)
        return DCP_ODD;
    RETURN_IF(dcp_window_enter(&t->w, &t->now->block));
    t->kept_from = t->w.at;
    return FSDPCK_OK;
}

static fsdpck_status condense(condenser *t)
{
    while (!t->stopped) {
        RETURN_IF(next_block(t));
        while (!t->stopped && !dcp_window_is_low(&t->w)) {
            const uint8_t op = t->w.bytes[t->w.at];
            bool taken = false;
            if (op == OP_BINGET || op == OP_LONG_BINGET) {
                RETURN_IF(take_ahead(t, &taken));
                if (!taken)
                    RETURN_IF(take_record(t, &taken));
            }
            if (!taken)
                RETURN_IF(pass_opcode(t));
        }
        RETURN_IF(keep(t, t->w.at));
    }
    /* STOP is the last byte, also of the last frame. */
    return t->w.whole && t->w.at == t->w.end && t->w.ncuts == 0 ? FSDPCK_OK : DCP_ODD;
}

static void init_condensed(dcp_condensed *c, budget *owner, uint64_t whole_nbytes)
{
    *c = (dcp_condensed){
        .kept = VEC_OF(uint8_t, owner),
        .gaps = {.gaps = VEC_OF(pickle_gap, owner),
                 .fetched = VEC_OF(uint64_t, owner),
                 .whole_nbytes = whole_nbytes},
        .parts = VEC_OF(dcp_part, owner),
        .roles = VEC_OF(dcp_named, owner),
        .fetched_words = VEC_OF(uint64_t, owner),
    };
    strtab_init(&c->texts, owner);
}

/* Job 0 takes the blocks; the others read them ahead. */
static fsdpck_status do_job(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    condenser *t = ctx;
    (void)worker, (void)err;
    if (job > 0) {
        read_ahead(t);
        return FSDPCK_OK;
    }
    t->status = condense(t);
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return FSDPCK_OK;
}

static fsdpck_status condense_blocks(condenser *t, const dcp_bytes *from, unsigned nthreads)
{
    for (size_t i = 0; i < t->nblocks; i++)
        dcp_ahead_init(&t->blocks[i], t->r.m->owner,
                       from->window_nbytes > 0 ? from->window_nbytes : ROOM_NBYTES);
    RETURN_IF(dcp_frames_open(&t->frames, from));
    t->status = DCP_ODD;
    if (pthread_mutex_init(&t->lock, NULL) != 0)
        return DCP_ODD;
    fsdpck_status st = DCP_ODD;
    if (pthread_cond_init(&t->changed, NULL) == 0) {
        st = pool_run(nthreads, nthreads, do_job, t, from->cancel, NULL);
        pthread_cond_destroy(&t->changed);
    }
    pthread_mutex_destroy(&t->lock);
    return st == FSDPCK_OK ? t->status : st;
}

/* Not more threads than the file has blocks for. */
static unsigned count_threads(const dcp_bytes *from)
{
    const uint64_t nblocks =
        from->nbytes / (from->window_nbytes > 0 ? from->window_nbytes : ROOM_NBYTES);
    const unsigned nthreads = from->nthreads < THREADS_MOST ? from->nthreads : THREADS_MOST;
    return nthreads < 2 || nblocks < 2 * (uint64_t)nthreads ? 1 : nthreads;
}

fsdpck_status dcp_condense(const dcp_bytes *from, dcp_metadata *m, dcp_condensed *c)
{
    budget *const owner = m->owner;
    const unsigned nthreads = count_threads(from);
    const size_t nblocks = nthreads < 2 ? 1 : (size_t)nthreads * BLOCKS_PER_THREAD;
    init_condensed(c, owner, from->nbytes);
    condenser *t = budget_alloc(owner, sizeof *t, NULL);
    dcp_ahead *blocks = budget_alloc(owner, nblocks * sizeof *blocks, NULL);
    fsdpck_status st = DCP_ODD;
    if (t != NULL && blocks != NULL) {
        t->c = c;
        t->blocks = blocks;
        t->nblocks = nblocks;
        dcp_recorder_init(&t->r, m);
        t->r.texts = &c->texts;
        t->r.fetched_words = &c->fetched_words;
        t->r.fetched = &c->gaps.fetched;
        st = condense_blocks(t, from, nthreads);
        for (size_t i = 0; i < nblocks; i++)
            dcp_ahead_release(&blocks[i]);
        dcp_recorder_release(&t->r);
    }
    budget_free(owner, t, sizeof *t);
    budget_free(owner, blocks, nblocks * sizeof *blocks);
    return st == FSDPCK_OK ? FSDPCK_OK : DCP_ODD;
}

pickle_input dcp_condensed_input(const dcp_condensed *c)
{
    return (pickle_input){.bytes = c->kept.items, .nbytes = c->kept.count, .gaps = &c->gaps};
}

void dcp_condensed_release(dcp_condensed *c)
{
    VEC_RELEASE_ALL(&c->kept, &c->gaps.gaps, &c->gaps.fetched, &c->parts, &c->roles,
                    &c->fetched_words);
    strtab_release(&c->texts);
}
