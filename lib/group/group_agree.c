/* Agreements of the ranks, and the few bytes that go with them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "group/group_internal.h"

bool group_is_broken(const group *g)
{
    int lost;
    return g != NULL && group_link_is_broken(g->link, &lost);
}

/* Names the lost rank; this rank's own failure is only a consequence of the loss. */
fsdpck_status group_do(group *g, const link_call *call, fsdpck_error *err)
{
    const fsdpck_status st = group_link_do(g->link, call, err);
    int lost = -1;
    if (st != FSDPCK_OK && group_link_is_broken(g->link, &lost) && lost >= 0) {
        FAIL_WITH(
            err, PEER, GROUP_LOST, ("rank %d on %s does not respond", lost, g->hellos[lost].host),
            (expected, "a heartbeat within %u s", atomic_load(&g->watch->peer_timeout_seconds)));
        if (err != NULL)
            err->rank = lost;
        return FSDPCK_PEER;
    }
    return st;
}

static fsdpck_status vote(const group *g, unsigned rank)
{
    uint64_t status;
    memcpy(&status, g->votes + rank * (sizeof status + g->gathered_nbytes), sizeof status);
    return (fsdpck_status)status;
}

const uint8_t *group_gathered(const group *g, unsigned rank)
{
    return g->votes + rank * (sizeof(uint64_t) + g->gathered_nbytes) + sizeof(uint64_t);
}

/* The cause: a cancelled rank was usually cancelled because of a different rank. */
static unsigned pick_cause(const group *g)
{
    unsigned cause = g->size;
    for (unsigned r = 0; r < g->size; r++)
        if (vote(g, r) != FSDPCK_OK && (cause == g->size || (vote(g, cause) == FSDPCK_CANCELLED &&
                                                             vote(g, r) != FSDPCK_CANCELLED)))
            cause = r;
    return cause;
}

/* All ranks failed alike: the message names no rank. */
static bool all_fail(const group *g)
{
    for (unsigned r = 0; r < g->size; r++)
        if (vote(g, r) != vote(g, 0))
            return false;
    return true;
}

/* Names the rank, unless all fail. */
static fsdpck_status report_cause(const group *g, unsigned cause, fsdpck_status own, bool named,
                                  const fsdpck_error *theirs, fsdpck_error *err)
{
    fsdpck_error e = *theirs;
    if (theirs->status == FSDPCK_CANCELLED) {
        if (own == FSDPCK_CANCELLED)
            return own;
        FAIL(err, PEER, NONE, "rank %u on %s was stopped", cause, g->hellos[cause].host);
        if (err != NULL)
            err->rank = (int)cause;
        return FSDPCK_PEER;
    }
    if (named && e.rank < 0 && !all_fail(g)) {
        e.rank = (int)cause;
        snprintf(e.message, sizeof e.message, "rank %u on %s: %.400s", cause, g->hellos[cause].host,
                 theirs->message);
    }
    if (err != NULL)
        *err = e;
    return e.status;
}

fsdpck_status group_gather_inline(group *g, fsdpck_status st, group_failure how, const void *bytes,
                                  uint64_t nbytes, fsdpck_error *err)
{
    const uint64_t status = (uint64_t)st, message_nbytes = sizeof status + nbytes;
    if (nbytes > g->inline_nbytes) /* of all ranks alike */
        return FAIL(err, INTERNAL, NONE, "too many bytes for an agreement");
    if (how == GROUP_STOPS && st != FSDPCK_OK && !group_is_broken(g))
        group_link_report_failed(g->link);
    if (group_is_broken(g) && st != FSDPCK_OK && st != FSDPCK_CANCELLED && st != FSDPCK_PEER)
        return st; /* no rank to agree with, and this rank has its own cause */
    uint8_t *own = g->votes + g->size * message_nbytes;
    g->gathered_nbytes = nbytes;
    memcpy(own, &status, sizeof status);
    if (nbytes > 0 && st == FSDPCK_OK) /* else they are not used */
        memcpy(own + sizeof status, bytes, nbytes);
    const link_call gather = {
        .kind = LINK_GATHER, .bytes = own, .all = g->votes, .nbytes = message_nbytes};
    RETURN_IF(group_do(g, &gather, err));
    const unsigned cause = pick_cause(g);
    if (cause == g->size)
        return FSDPCK_OK;
    fsdpck_error theirs = FSDPCK_ERROR_INIT;
    if (cause == g->rank && err != NULL)
        theirs = *err;
    theirs.status = vote(g, cause);
    const link_call tell = {
        .kind = LINK_BROADCAST, .root = cause, .bytes = &theirs, .nbytes = sizeof theirs};
    RETURN_IF(group_do(g, &tell, err));
    return report_cause(g, cause, st, how != GROUP_UNNAMED, &theirs, err);
}

fsdpck_status group_gather(group *g, fsdpck_status st, group_failure how, const void *bytes,
                           uint64_t nbytes, void *all, fsdpck_error *err)
{
    if (g == NULL && st == FSDPCK_OK && nbytes > 0)
        memcpy(all, bytes, nbytes);
    if (g == NULL)
        return st;
    RETURN_IF(group_gather_inline(g, st, how, bytes, nbytes, err));
    for (unsigned r = 0; r < g->size && nbytes > 0; r++)
        memcpy((uint8_t *)all + r * nbytes, group_gathered(g, r), nbytes);
    return FSDPCK_OK;
}

fsdpck_status group_sum(group *g, fsdpck_status st, group_failure how, uint64_t *words,
                        unsigned count, fsdpck_error *err)
{
    if (g == NULL)
        return st;
    RETURN_IF(group_gather_inline(g, st, how, words, count * sizeof *words, err));
    memset(words, 0, count * sizeof *words);
    for (unsigned r = 0; r < g->size; r++)
        for (unsigned i = 0; i < count; i++)
            words[i] += load_le64(group_gathered(g, r) + i * sizeof *words);
    return FSDPCK_OK;
}

fsdpck_status group_agree(group *g, fsdpck_status st, fsdpck_error *err)
{
    return g == NULL ? st : group_gather_inline(g, st, GROUP_STOPS, NULL, 0, err);
}

fsdpck_status group_agree_result(group *g, fsdpck_status st, bool named, fsdpck_error *err)
{
    return g == NULL
               ? st
               : group_gather_inline(g, st, named ? GROUP_GOES_ON : GROUP_UNNAMED, NULL, 0, err);
}

fsdpck_status group_agree_broadcast(group *g, fsdpck_status st, group_failure how, unsigned root,
                                    void *bytes, uint64_t nbytes, fsdpck_error *err)
{
    if (g == NULL)
        return st;
    RETURN_IF(group_gather_inline(g, st, how, bytes, nbytes, err));
    memcpy(bytes, group_gathered(g, root), nbytes);
    return FSDPCK_OK;
}

static uint64_t value_of(const group *g, unsigned rank)
{
    uint64_t value;
    memcpy(&value, group_gathered(g, rank), sizeof value);
    return value;
}

fsdpck_status group_is_same(group *g, fsdpck_status st, group_failure how, uint64_t value,
                            bool *same, fsdpck_error *err)
{
    *same = true;
    if (g == NULL)
        return st;
    RETURN_IF(group_gather_inline(g, st, how, &value, sizeof value, err));
    for (unsigned r = 1; r < g->size; r++)
        *same = *same && value_of(g, r) == value_of(g, 0);
    return FSDPCK_OK;
}

fsdpck_status group_check_same(group *g, fsdpck_status st, group_failure how, uint64_t value,
                               const char *what, fsdpck_error *err)
{
    bool same;
    RETURN_IF(group_is_same(g, st, how, value, &same, err));
    for (unsigned r = 1; !same && r < g->size; r++)
        if (value_of(g, r) != value_of(g, 0))
            return FAIL_WITH(
                err, BADINPUT, GROUP_SEES, ("ranks read different input: their %s differ", what),
                (expected, "%016" PRIx64 ", as on rank 0 on %s", value_of(g, 0), g->hellos[0].host),
                (found, "%016" PRIx64 " on rank %u on %s", value_of(g, r), r, g->hellos[r].host));
    return FSDPCK_OK;
}
