#include "group_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"
#include "table.h"

/* Most ranks that are listed without -v. */
#define RANKS_SHOWN 16u

/* ---- options ---- */

/* One of the rates, "net=25GB/s". */
static bool parse_rate(const cli *c, const char *text, size_t nbytes, job_options *t)
{
    const struct {
        const char *name;
        uint64_t *rate;
    } rates[] = {{"read=", &t->dry_run.model_read},
                 {"write=", &t->dry_run.model_write},
                 {"net=", &t->dry_run.model_net}};
    char value[32];
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const size_t n = strlen(rates[i].name);
        if (nbytes <= n || nbytes - n >= sizeof value || strncmp(text, rates[i].name, n) != 0)
            continue;
        snprintf(value, sizeof value, "%.*s", (int)(nbytes - n), text + n);
        char *const per_second = strstr(value, "/s");
        if (per_second != NULL && per_second[2] == '\0')
            *per_second = '\0';
        if (value[strspn(value, "0123456789.")] != '\0')
            return opt_size(c, "--model-bandwidth", value, 1, rates[i].rate);
        opt_usage_error(c, "--model-bandwidth: '%.*s' has no unit, as in 500GB/s", (int)nbytes,
                        text);
        return false;
    }
    opt_usage_error(c, "--model-bandwidth: '%.*s' is not read=RATE, write=RATE or net=RATE",
                    (int)nbytes, text);
    return false;
}

bool group_parse_bandwidth(const cli *c, const char *text, job_options *t)
{
    for (;;) {
        const size_t n = strcspn(text, ",");
        if (!parse_rate(c, text, n, t))
            return false;
        if (text[n] == '\0')
            return true;
        text += n + 1;
    }
}

/* ---- load of each rank ---- */

typedef enum load_kind {
    LOAD_ITEMS,
    LOAD_READ,
    LOAD_WRITTEN,
    LOAD_SENT,
    LOAD_RECEIVED,
    LOAD_MESSAGES,
    LOAD_MEMORY,
    LOADS
} load_kind;

static const struct {
    const char *head, *member;
    bool count;
} kinds[LOADS] = {
    [LOAD_ITEMS] = {"ITEMS", "items", true},
    [LOAD_READ] = {"READ", "bytes_read", false},
    [LOAD_WRITTEN] = {"WRITTEN", "bytes_written", false},
    [LOAD_SENT] = {"SENT", "bytes_sent", false},
    [LOAD_RECEIVED] = {"RECEIVED", "bytes_received", false},
    [LOAD_MESSAGES] = {"MESSAGES", "messages", true},
    [LOAD_MEMORY] = {"MEMORY", "memory", false},
};

static uint64_t load_of(const fsdpck_rank_load *l, load_kind kind)
{
    const uint64_t all[LOADS] = {
        [LOAD_ITEMS] = l->items,
        [LOAD_READ] = l->read_nbytes,
        [LOAD_WRITTEN] = l->written_nbytes,
        [LOAD_SENT] = l->sent_nbytes,
        [LOAD_RECEIVED] = l->received_nbytes,
        [LOAD_MESSAGES] = l->messages,
        [LOAD_MEMORY] = l->memory_nbytes,
    };
    return all[kind];
}

typedef struct load_totals {
    uint64_t least[LOADS], mean[LOADS], most[LOADS], total[LOADS];
    unsigned most_rank[LOADS];
} load_totals;

static void total_loads(const fsdpck_group_plan *g, load_totals *s)
{
    memset(s, 0, sizeof *s);
    for (int k = 0; k < LOADS; k++) {
        s->least[k] = UINT64_MAX;
        for (unsigned r = 0; r < g->size; r++) {
            const uint64_t n = load_of(&g->ranks[r], (load_kind)k);
            s->total[k] += n;
            s->least[k] = n < s->least[k] ? n : s->least[k];
            if (n > s->most[k]) {
                s->most[k] = n;
                s->most_rank[k] = r;
            }
        }
        s->mean[k] = s->total[k] / g->size;
    }
}

static void add_row(table *rows, const char *name, unsigned host, bool has_host,
                    const uint64_t *loads)
{
    char texts[LOADS][40], at[16] = "";
    const char *cells[2 + LOADS] = {name, at};
    if (has_host)
        snprintf(at, sizeof at, "%u", host);
    for (int k = 0; k < LOADS; k++)
        cells[2 + k] = kinds[k].count ? report_number(texts[k], sizeof texts[k], loads[k])
                                      : report_bytes(texts[k], sizeof texts[k], loads[k]);
    table_add(rows, cells);
}

static void add_rank(table *rows, const fsdpck_group_plan *g, unsigned rank)
{
    char name[24];
    uint64_t loads[LOADS];
    snprintf(name, sizeof name, "%u", rank);
    for (int k = 0; k < LOADS; k++)
        loads[k] = load_of(&g->ranks[rank], (load_kind)k);
    add_row(rows, name, g->ranks[rank].host, true, loads);
}

static void print_table(const cli *c, const fsdpck_group_plan *g, const load_totals *s, bool each)
{
    table_column columns[2 + LOADS] = {{"RANK", TABLE_TEXT}, {"HOST", TABLE_NUMBER}};
    for (int k = 0; k < LOADS; k++)
        columns[2 + k] = (table_column){kinds[k].head, TABLE_NUMBER};
    table *rows = table_new(&c->out, columns, 2 + LOADS);
    for (unsigned r = 0; each && r < g->size; r++)
        add_rank(rows, g, r);
    if (g->size > 1) {
        add_row(rows, "min", 0, false, s->least);
        add_row(rows, "mean", 0, false, s->mean);
        add_row(rows, "max", 0, false, s->most);
    }
    if (!each)
        add_rank(rows, g, g->worst);
    (void)table_print(rows);
}

static void print_prediction(const command_request *r, const fsdpck_group_plan *g)
{
    const job_options *t = &r->job;
    const char *before = "";
    if (t->dry_run.model_read == 0 && t->dry_run.model_write == 0 && t->dry_run.model_net == 0)
        return;
    printf("predicted: %.1f s (", g->overlapped_seconds);
    if (t->dry_run.model_read > 0)
        printf("reading %.1f s", g->read_seconds), before = ", ";
    if (t->dry_run.model_write > 0)
        printf("%swriting %.1f s", before, g->write_seconds), before = ", ";
    if (t->dry_run.model_net > 0)
        printf("%snetwork %.1f s", before, g->net_seconds);
    printf(")");
    if (t->dry_run.model_read > 0 && t->dry_run.model_write > 0)
        printf("; %.1f s if reading and writing share one path", g->serial_seconds);
    putchar('\n');
}

void group_print_text(const cli *c, const command_request *r, const fsdpck_group_plan *g)
{
    char a[40], b[40];
    load_totals s;
    total_loads(g, &s);
    printf("group: %s on %s, source %s\n", report_count(a, sizeof a, g->size, "rank"),
           report_count(b, sizeof b, g->hosts, "host"),
           r->job.dry_run.group_local ? "on local disks of the hosts that saved it"
                                      : "on a shared file system");
    print_table(c, g, &s, g->size <= RANKS_SHOWN || c->verbose > 0);
    if (s.total[LOAD_RECEIVED] > 0)
        printf("sent between ranks: %s of %s\n", report_bytes(a, sizeof a, s.total[LOAD_RECEIVED]),
               report_bytes(b, sizeof b, s.total[LOAD_READ]));
    print_prediction(r, g);
}

/* ---- JSON ---- */

static void put_rank_json(json_writer *w, const fsdpck_group_plan *g, unsigned rank)
{
    json_begin_object(w);
    JSON_COUNTS(w, {"rank", rank}, {"host", g->ranks[rank].host});
    for (int k = 0; k < LOADS; k++)
        json_member_u64(w, kinds[k].member, load_of(&g->ranks[rank], (load_kind)k));
    json_end_object(w);
}

static void put_seconds_json(const command_request *r, const fsdpck_group_plan *g, json_writer *w)
{
    const job_options *t = &r->job;
    if (t->dry_run.model_read == 0 && t->dry_run.model_write == 0 && t->dry_run.model_net == 0)
        return;
    json_member_object(w, "predicted_seconds");
    json_member_double(w, "reading", g->read_seconds);
    json_member_double(w, "writing", g->write_seconds);
    json_member_double(w, "network", g->net_seconds);
    json_member_double(w, "overlapped", g->overlapped_seconds);
    json_member_double(w, "one_path", g->serial_seconds);
    json_end_object(w);
}

void group_put_json(const cli *c, const command_request *r, const fsdpck_group_plan *g,
                    json_writer *w)
{
    load_totals s;
    total_loads(g, &s);
    json_member_object(w, "group_plan");
    JSON_COUNTS(w, {"ranks", g->size}, {"hosts", g->hosts});
    json_member_bool(w, "local", r->job.dry_run.group_local != 0);
    json_member_u64(w, "worst", g->worst);
    json_member_object(w, "loads");
    for (int k = 0; k < LOADS; k++) {
        JSON_MEMBER_COUNTS(w, kinds[k].member, {"min", s.least[k]}, {"mean", s.mean[k]},
                           {"max", s.most[k]}, {"max_rank", s.most_rank[k]});
    }
    json_end_object(w);
    put_seconds_json(r, g, w);
    if (g->size <= RANKS_SHOWN || c->verbose > 0) {
        json_member_array(w, "each");
        for (unsigned i = 0; i < g->size; i++)
            put_rank_json(w, g, i);
        json_end_array(w);
    }
    json_end_object(w);
}
