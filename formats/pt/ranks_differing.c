/* Reports objects that differ between ranks. State that is each rank's own by its nature (random
 * generators, data loaders, rank numbers, times) is a note; any other difference is a warning: the
 * files may be of two saves. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "formats/common/own_state.h"
#include "formats/pt/ranks_frame.h"

typedef struct differing {
    uint64_t count;
    uint32_t first; /* ranks_state.objects */
} differing;

static bool is_of_one_rank(const ranks_state *s, const ranks_object *o)
{
    return own_state_is(&s->cat->pool, o->path,
                        VEC_AT(&s->tensors, const ranks_tensor, o->entry)->of_model);
}

/* fairscale's description of each rank's shards, which is read by itself. */
static bool is_description(const ranks_state *s, const ranks_object *o)
{
    const value_pool *pool = &s->cat->pool;
    bool found = false;
    for (size_t i = 0; !found && i < value_count(pool, o->path); i++)
        found = value_is_str(pool, value_item(pool, o->path, i), "shard_metadata");
    return found;
}

/* The ranks whose value differs from that of the lowest rank. */
static void print_ranks(const ranks_state *s, uint32_t object, text_buf *out)
{
    uint32_t first = CAT_NONE;
    for (size_t i = 0; i < s->occurrences.count; i++) {
        const ranks_occurrence *seen = VEC_AT(&s->occurrences, const ranks_occurrence, i);
        if (seen->object != object)
            continue;
        if (first == CAT_NONE)
            first = seen->variant;
        else if (seen->variant != first)
            text_printf(out, "%s%u", out->nbytes > 0 ? ", " : "", (unsigned)seen->rank);
    }
}

static const char *name_of(const ranks_state *s, const differing *d)
{
    return strtab_text(&s->names, VEC_AT(&s->objects, const ranks_object, d->first)->entry);
}

static void report_own(const ranks_state *s, const differing *d)
{
    fsdpck_error what;
    if (d->count == 0 || s->req->found == NULL)
        return;
    fsdpck_error_init(&what);
    (void)error_set(&what, FSDPCK_BADINPUT, FSDPCK_FINDING_RANK_DIFFER,
                    "ranks have their own random states, loader states, rank numbers or times");
    error_path(&what, s->req->path);
    error_tensor(&what, name_of(s, d));
    error_found(&what, "%" PRIu64 " object%s", d->count, d->count == 1 ? "" : "s");
    error_next(&what, "choose how to handle such values: --per-rank keep, first or drop");
    s->req->found(s->req->found_ctx, FORMAT_NOTE, &what);
}

static void report_others(const ranks_state *s, const differing *d)
{
    text_buf ranks = {.limit_bytes = 160};
    if (d->count == 0)
        return;
    print_ranks(s, d->first, &ranks);
    log_warn(
        &s->req->log, FSDPCK_FINDING_RANK_DIFFER,
        "check that all files are from one save; if they are, give --per-rank keep, first or drop",
        "objects differ from those of the lowest rank: %" PRIu64
        " object%s, first '%s' of rank %s%s",
        d->count, d->count == 1 ? "" : "s", name_of(s, d), ranks.text == NULL ? "?" : ranks.text,
        ranks.failed ? ", ..." : "");
    text_release(&ranks);
}

void ranks_report_differing(const ranks_state *s, bool states_units)
{
    differing own = {0}, others = {0};
    for (uint32_t i = 0; i < s->objects.count; i++) {
        const ranks_object *o = VEC_AT(&s->objects, const ranks_object, i);
        if (o->use != RANK_COPIES_OBJECTS || o->is_of_stages ||
            (states_units && is_description(s, o)))
            continue;
        differing *d = is_of_one_rank(s, o) ? &own : &others;
        if (d->count++ == 0)
            d->first = i;
    }
    report_own(s, &own);
    report_others(s, &others);
    ranks_report_classes(s);
}
