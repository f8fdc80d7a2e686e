/* inspect_partials.c: inspect --partials: unfinished outputs in a folder. */
#include <inttypes.h>
#include <stdio.h>

#include "fsdpck_partials.h"
#include "inspect_print.h"
#include "report.h"
#include "table.h"

static const char *const kinds[] = {"output", "journal", "replaced"};
static const char *const holders[] = {"no", "yes", "unknown"};
/* By obstacle, as in the report. */
static const char *const obstacles[] = {"none",      "in use",  "recent",    "no locks",
                                        "only copy", "foreign", "no journal"};
enum { OBSTACLES = sizeof obstacles / sizeof obstacles[0] };

/* Why objects were kept, and what to do. */
static void print_kept(const uint64_t counts[OBSTACLES])
{
    static const char *const reasons[OBSTACLES] = {
        [FSDPCK_PARTIAL_IN_USE] = "a process uses it: end that run first",
        [FSDPCK_PARTIAL_RECENT] =
            "changed in the last 10 seconds, a run may be starting: clean again later",
        [FSDPCK_PARTIAL_NO_LOCKS] =
            "the file system has no locks: remove it if no process on any host uses it",
        [FSDPCK_PARTIAL_ONLY_COPY] = "the only copy of a replaced output: rename it",
        [FSDPCK_PARTIAL_FOREIGN] = "of another user: ask its owner to remove it",
        [FSDPCK_PARTIAL_NO_JOURNAL] = "named as a journal, but fsdpck did not write it: inspect it",
    };
    char n[40];
    for (size_t i = FSDPCK_PARTIAL_NO_OBSTACLE + 1; i < OBSTACLES; i++)
        if (counts[i] > 0)
            printf("kept: %s, %s\n", report_count(n, sizeof n, counts[i], "object"), reasons[i]);
}

static const char *state_text(char *text, size_t capacity, const fsdpck_partial *p)
{
    if (p->removed)
        return "removed";
    if (p->is_only_copy)
        return "the only copy: rename it";
    if (!p->resumable || p->holder == FSDPCK_PARTIAL_HELD)
        return "-";
    if (p->ranks == 1)
        return "can be continued with --resume";
    snprintf(text, capacity, "can be continued with --resume by %u ranks", p->ranks);
    return text;
}

static const char *age_text(char *text, size_t capacity, int64_t seconds)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    size_t i = 0;
    while (i < 3 && seconds < units[i].seconds)
        i++;
    snprintf(text, capacity, "%" PRId64 " %s", seconds / units[i].seconds, units[i].unit);
    return text;
}

static int print_text(const cli *c, const fsdpck_partials *list, bool clean)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},       {"OF", TABLE_NAME},
                                           {"KIND", TABLE_TEXT},       {"SIZE", TABLE_NUMBER},
                                           {"AGE", TABLE_NUMBER},      {"IN USE", TABLE_TEXT},
                                           {"FINISHED", TABLE_NUMBER}, {"STATE", TABLE_TEXT}};
    fsdpck_partial p = FSDPCK_INIT(fsdpck_partial);
    table *rows = table_new(&c->out, columns, sizeof columns / sizeof columns[0]);
    uint64_t nbytes = 0, removed_nbytes = 0, removed = 0, kept[OBSTACLES] = {0};
    size_t count = 0;
    char name[1024], of[1024], size[32], age[32], finished[32], state[64];
    for (; fsdpck_get_partial(list, count, &p); count++) {
        nbytes += p.nbytes;
        removed += p.removed != 0;
        kept[p.obstacle]++;
        removed_nbytes += p.removed ? p.nbytes : 0;
        const char *const cells[] = {
            fsdpck_escape(name, sizeof name, p.name, strlen(p.name)),
            fsdpck_escape(of, sizeof of, p.of, strlen(p.of)),
            kinds[p.kind],
            report_bytes(size, sizeof size, p.nbytes),
            age_text(age, sizeof age, p.age_seconds),
            holders[p.holder],
            p.resumable ? report_bytes(finished, sizeof finished, p.finished_nbytes) : "-",
            state_text(state, sizeof state, &p)};
        table_add(rows, cells);
    }
    if (count == 0)
        table_print(rows);
    else if (!table_print(rows))
        return FSDPCK_LIMIT;
    char n[40], m[40];
    if (!c->quiet)
        printf("%s, %s\n", report_count(n, sizeof n, count, "object"),
               report_bytes(size, sizeof size, nbytes));
    if (clean) {
        if (!c->quiet)
            printf("removed: %s, %s\n", report_count(m, sizeof m, removed, "object"),
                   report_bytes(size, sizeof size, removed_nbytes));
        print_kept(kept);
    }
    return 0;
}

static int print_json(const cli *c, const fsdpck_partials *list)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    fsdpck_partial p = FSDPCK_INIT(fsdpck_partial);
    json_member_array(w, "partials");
    for (size_t i = 0; fsdpck_get_partial(list, i, &p); i++) {
        json_begin_object(w);
        report_path(w, "name", p.name);
        report_path(w, "of", p.of);
        json_member_string(w, "kind", kinds[p.kind]);
        json_member_string(w, "in_use", holders[p.holder]);
        json_member_u64(w, "bytes", p.nbytes);
        json_member_u64(w, "age_seconds", (uint64_t)p.age_seconds);
        json_member_bool(w, "resumable", p.resumable != 0);
        json_member_u64(w, "finished_ranges", p.finished_ranges);
        json_member_u64(w, "finished_bytes", p.finished_nbytes);
        json_member_bool(w, "only_copy", p.is_only_copy != 0);
        json_member_bool(w, "removed", p.removed != 0);
        json_member_string(w, "obstacle", obstacles[p.obstacle]);
        json_member_u64(w, "ranks", p.ranks);
        json_end_object(w);
    }
    json_end_array(w);
    return report_end(&r);
}

int inspect_print_partials(const cli *c, const char *path, const char *of, bool clean)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_partials *list = NULL;
    if (fsdpck_partials_new(c->ctx, path, of, clean, &list, &err) != FSDPCK_OK)
        return report_failure(c, NULL, &err);
    const int code = c->json ? print_json(c, list) : print_text(c, list, clean);
    fsdpck_partials_free(list);
    return code;
}
