/* Checks that the files of all ranks exist and are from one save, by their names and contents. */
#include <inttypes.h>
#include <string.h>

#include "formats/common/renamed_file.h"
#include "formats/pt/ranks_internal.h"

typedef struct census {
    uint8_t *expected; /* by rank */
    uint8_t *present;
    uint64_t count; /* entries of both */
    uint64_t expected_count;
} census;

static uint64_t highest_rank(const ranks_list *l)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < l->files.count; i++)
        if (VEC_AT(&l->files, const ranks_file, i)->rank > highest)
            highest = VEC_AT(&l->files, const ranks_file, i)->rank;
    return highest;
}

static uint64_t world_of_names(const ranks_list *l)
{
    uint64_t world = 0;
    for (size_t i = 0; i < l->families.count; i++)
        if (VEC_AT(&l->families, const ranks_family, i)->world > world)
            world = VEC_AT(&l->families, const ranks_family, i)->world;
    return world;
}

/* The expected ranks: from --source-ranks, otherwise the names, otherwise the contents of the
 * files, otherwise all up to the highest. */
static void expect(const ranks_state *s, census *c)
{
    const uint64_t world = world_of_names(s->list);
    const uint64_t stated = s->req->expect_ranks > 0 ? s->req->expect_ranks : world;
    for (uint64_t r = 0; r < c->count; r++) {
        if (stated > 0)
            c->expected[r] = r < stated;
        else if (s->members.count > 0 || s->group_world > 0)
            c->expected[r] = r < s->group_world ||
                             (r < s->members.count && *VEC_AT(&s->members, const uint8_t, r) != 0);
        else
            c->expected[r] = r <= highest_rank(s->list);
        c->expected_count += c->expected[r];
    }
}

static void note_present(const ranks_list *l, uint32_t family, census *c)
{
    memset(c->present, 0, c->count);
    for (size_t i = 0; i < l->files.count; i++) {
        const ranks_file *f = VEC_AT(&l->files, const ranks_file, i);
        if (f->family == family)
            c->present[f->rank] = 1;
    }
}

/* --source-ranks may be smaller than the real number: replicas may suffice, and the plan finds
 * gaps. */
static void list_missing(const ranks_state *s, census *c, text_buf *names, uint64_t *missing)
{
    const uint64_t stated = s->req->expect_ranks;
    char name[512];
    *missing = 0;
    for (uint32_t i = 0; i < s->list->families.count; i++) {
        const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, i);
        uint64_t there = 0;
        note_present(s->list, i, c);
        for (uint64_t r = 0; r < c->count; r++)
            there += c->present[r];
        if (stated > 0 && there == stated)
            continue;
        for (uint64_t r = 0; r < c->count; r++) {
            if (!c->expected[r] || c->present[r])
                continue;
            ranks_file_name(f, r, name, sizeof name);
            log_missing_file(&s->req->log, s->req->path, name);
            text_printf(names, "%s%s", names->nbytes > 0 ? ", " : "", name);
            (*missing)++;
        }
    }
}

static const char *suffix_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL ? dot : "";
}

static bool is_listed_or_other(const void *ctx, const char *entry)
{
    const ranks_list *l = ctx;
    bool alike = false;
    for (size_t i = 0; i < l->files.count; i++) {
        const char *name = VEC_AT(&l->files, const ranks_file, i)->name;
        if (strcmp(name, entry) == 0)
            return true;
        alike = alike || strcmp(suffix_of(name), suffix_of(entry)) == 0;
    }
    return !alike;
}

static fsdpck_status error_missing(const ranks_state *s, const census *c, const text_buf *names,
                                   uint64_t missing, fsdpck_error *err)
{
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, FILE_MISSING,
                  ("files of ranks are missing: %s%s", names->text == NULL ? "" : names->text,
                   names->failed ? ", ..." : ""),
                  (path, s->req->path),
                  (expected, "files of %" PRIu64 " rank%s", c->expected_count,
                   text_plural(c->expected_count)),
                  (found, "%zu file%s, %" PRIu64 " missing", s->list->files.count,
                   text_plural(s->list->files.count), missing));
    const char *other =
        renamed_file_find(s->req->probe, RENAMED_FILE_ANY_SIZE, is_listed_or_other, s->list);
    error_next(err,
               "%s%s%scopy them from the machines that wrote them; if the other files are complete "
               "(HSDP), read only N ranks with --source-ranks N",
               other != NULL ? "rename '" : "", other != NULL ? other : "",
               other != NULL ? "' if it is one of them; otherwise " : "");
    return st;
}

static fsdpck_status too_many(const ranks_state *s, uint64_t there, fsdpck_error *err)
{
    const uint64_t stated = s->req->expect_ranks;
    const uint64_t expected = stated > 0 ? stated : world_of_names(s->list);
    return FAIL_WITH(
        err, BADINPUT, RANK_MIXED,
        ("folder holds files of more ranks than %s", stated > 0 ? "stated" : "their names show"),
        (path, s->req->path),
        (expected, "%" PRIu64 " rank%s%s", expected, text_plural(expected),
         stated > 0 ? " (--source-ranks)" : ""),
        (found, "rank %" PRIu64, there));
}

static fsdpck_status check_worlds(const ranks_state *s, fsdpck_error *err)
{
    const uint64_t world = world_of_names(s->list);
    for (size_t i = 0; i < s->list->families.count; i++) {
        const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, i);
        if (f->world == 0 || f->world == world)
            continue;
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("folder holds files of different numbers of ranks"), (path, s->req->path),
                         (found, "%" PRIu64 " and %" PRIu64, world, f->world));
    }
    const uint64_t highest = highest_rank(s->list);
    if (world > 0 && highest >= world)
        return too_many(s, highest, err);
    return FSDPCK_OK;
}

/* verl's files of the scheduler and of random states, without a model or an optimizer. */
static fsdpck_status check_extra_alone(const ranks_state *s, fsdpck_error *err)
{
    static const char extra[] = "extra_state_world_size_";
    const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, 0);
    if (s->list->families.count != 1 || s->req->rank_pattern != NULL || f->trainer[0] == '\0' ||
        strncmp(f->prefix, extra, strlen(extra)) != 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, FILE_MISSING, ("files of the model and the optimizer are missing"),
        (path, s->req->path), (expected, "model_world_size_%" PRIu64 "_rank_{r}.pt", f->world),
        (found, "only extra_state files"),
        (next, "copy them from the machines that wrote them, or read the existing files with "
               "--source-rank-pattern 'extra_state_world_size_{W}_rank_{r}.pt'"));
}

/* transformers gives the file of random states a rank if there are several processes. */
static bool is_of_one_process(const ranks_state *s)
{
    return s->req->probe != NULL && highest_rank(s->list) == 0 &&
           probe_has_entry(s->req->probe, "rng_state.pth");
}

bool ranks_is_count_unknown(const ranks_state *s)
{
    return !is_of_one_process(s) && s->req->expect_ranks == 0 && world_of_names(s->list) == 0 &&
           s->members.count == 0 && s->group_world == 0;
}

fsdpck_status ranks_check_complete(ranks_state *s, fsdpck_error *err)
{
    const uint64_t world = world_of_names(s->list);
    census c = {.count = highest_rank(s->list) + 1};
    text_buf names = {.limit_bytes = 300};
    uint64_t missing;

    RETURN_IF(check_worlds(s, err));
    RETURN_IF(check_extra_alone(s, err));
    const uint64_t others[] = {world, s->req->expect_ranks, s->members.count, s->group_world};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        c.count = others[i] > c.count ? others[i] : c.count;
    if (c.count > MESH_RANKS_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "more than %u ranks", MESH_RANKS_MAX);
    c.expected = budget_alloc(s->req->metadata, 2 * c.count, err);
    if (c.expected == NULL)
        return FSDPCK_LIMIT;
    c.present = c.expected + c.count;
    expect(s, &c);
    list_missing(s, &c, &names, &missing);
    fsdpck_status st = FSDPCK_OK;
    fsdpck_error lost = FSDPCK_ERROR_INIT;
    if (missing > 0)
        st = error_missing(s, &c, &names, missing, &lost);
    if (missing > 0 && err != NULL)
        *err = lost;
    if (open_request_tolerate(s->req, st, &lost))
        st = FSDPCK_OK;
    else if (missing == 0 && s->req->expect_ranks > 0 &&
             s->list->files.count > s->req->expect_ranks * s->list->families.count)
        st = too_many(s, highest_rank(s->list), err);
    text_release(&names);
    budget_free(s->req->metadata, c.expected, 2 * c.count);
    return st;
}
