/* verify_nearness.c: cosines to the tensors of --like: roles as a table, tensors in the JSON report. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "table.h"
#include "verify_print.h"

/* Roles in the table; those with the lowest cosines come first. */
#define ROLES_SHOWN 40u
/* Tensors that are named as not judged. */
#define GROWN_SHOWN 3u

/* Why a tensor is not judged; in the order of fsdpck_near_state. */
static const char *state_name(fsdpck_near_state state)
{
    static const char *const names[] = {"judged",     "small",      "zero",  "grown",
                                        "compressed", "not_finite", "scaled"};
    return names[state];
}

static bool add_role(table *rows, const fsdpck_near_role *r)
{
    char numbers[2][32] = {"-", "-"}, counts[3][24];
    const double values[] = {r->cosine_minimum, r->cosine_median};
    const uint64_t totals[] = {r->tensors, r->judged, r->far};
    const size_t capacity = 4 * r->name_nbytes + 1;
    char *name = malloc(capacity);
    if (name == NULL)
        return false;
    for (unsigned i = 0; i < 2 && r->has_cosine; i++)
        snprintf(numbers[i], sizeof numbers[i], "%.4f", values[i]);
    for (unsigned i = 0; i < 3; i++)
        snprintf(counts[i], sizeof counts[i], "%" PRIu64, totals[i]);
    table_add(rows, (const char *const[]){fsdpck_escape(name, capacity, r->name, r->name_nbytes),
                                          counts[0], counts[1], counts[2], numbers[0], numbers[1]});
    free(name);
    return true;
}

bool verify_print_roles(const cli *c, const fsdpck_verify *v)
{
    static const table_column columns[] = {
        {"ROLE", TABLE_NAME},  {"TENSORS", TABLE_NUMBER},    {"JUDGED", TABLE_NUMBER},
        {"FAR", TABLE_NUMBER}, {"MIN COSINE", TABLE_NUMBER}, {"MEDIAN COSINE", TABLE_NUMBER},
    };
    fsdpck_nearness n = FSDPCK_INIT(fsdpck_nearness);
    fsdpck_near_role r = FSDPCK_INIT(fsdpck_near_role);
    bool whole = true;
    fsdpck_verify_get_nearness(v, &n);
    if (n.judged == 0)
        return true;
    table *rows = table_new(&c->out, columns, sizeof columns / sizeof *columns);
    for (uint64_t i = 0; i < ROLES_SHOWN && fsdpck_verify_get_near_role(v, i, &r); i++)
        whole = add_role(rows, &r) && whole;
    if (!table_print(rows) || !whole)
        return false;
    if (n.roles > ROLES_SHOWN)
        printf("... and %" PRIu64 " more role%s, with higher cosines; --json lists all\n",
               n.roles - ROLES_SHOWN, text_plural(n.roles - ROLES_SHOWN));
    return true;
}

static void print_not_finite(const fsdpck_verify *v)
{
    char elements[40], tensors[40];
    uint64_t count = 0, in = 0;
    fsdpck_near_tensor t = FSDPCK_INIT(fsdpck_near_tensor);
    for (uint64_t i = 0; fsdpck_verify_get_near_tensor(v, i, &t); i++) {
        count += t.not_finite;
        in += t.not_finite > 0;
    }
    if (count > 0)
        printf("  values     %s in %s not compared: not finite in one of the folders\n",
               report_count(elements, sizeof elements, count, "element"),
               report_count(tensors, sizeof tensors, in, "tensor"));
}

/* Their values may be a training's or noise: no cosine tells. */
static void print_grown(const fsdpck_verify *v)
{
    char name[1024];
    uint64_t count = 0;
    fsdpck_near_tensor t = FSDPCK_INIT(fsdpck_near_tensor);
    for (uint64_t i = 0; fsdpck_verify_get_near_tensor(v, i, &t); i++) {
        if (t.state != FSDPCK_NEAR_GROWN)
            continue;
        if (count < GROWN_SHOWN)
            printf("%s%s", count == 0 ? "  values     not judged, as the norm grew: " : ", ",
                   fsdpck_escape(name, sizeof name, t.name, t.name_nbytes));
        count++;
    }
    if (count > GROWN_SHOWN)
        printf(", and %" PRIu64 " more (--json lists all)", count - GROWN_SHOWN);
    if (count > 0)
        putchar('\n');
}

void verify_print_nearness(const fsdpck_verify *v)
{
    char tensors[40], roles[40];
    fsdpck_nearness n = FSDPCK_INIT(fsdpck_nearness);
    fsdpck_verify_get_nearness(v, &n);
    if (!n.asked)
        return;
    if (n.skipped != NULL) {
        printf("  values     not compared with the folder of --like: %s\n", n.skipped);
        return;
    }
    printf("  values     %s compared with the folder of --like",
           report_count(tensors, sizeof tensors, n.tensors - n.compressed, "tensor"));
    if (n.judged > 0)
        printf(", %" PRIu64 " judged in %s; median of the roles' median cosines %.4f\n", n.judged,
               report_count(roles, sizeof roles, n.judged_roles, "role"), n.cosine_median);
    else
        printf(", none judged: norms, biases, zeros or small\n");
    if (n.compressed > 0)
        printf("  values     %s not compared with the folder of --like: compressed\n",
               report_count(tensors, sizeof tensors, n.compressed, "tensor"));
    if (n.other_tensors > 0)
        printf("  values     %s not compared: integers, or quantized in only one of the folders\n",
               report_count(tensors, sizeof tensors, n.other_tensors, "tensor"));
    print_grown(v);
    print_not_finite(v);
}

static void put_role(json_writer *w, const fsdpck_near_role *r)
{
    json_begin_line(w);
    report_name(w, "role", r->name, r->name_nbytes);
    JSON_COUNTS(w, {"tensors", r->tensors}, {"judged", r->judged}, {"far", r->far});
    if (r->has_cosine) {
        json_member_double(w, "min", r->cosine_minimum);
        json_member_double(w, "median", r->cosine_median);
    }
    json_end_line(w);
}

static void put_tensor(json_writer *w, const fsdpck_near_tensor *t)
{
    json_begin_line(w);
    report_name(w, "name", t->name, t->name_nbytes);
    report_name(w, "role", t->role, t->role_nbytes);
    json_member_string(w, "state", state_name(t->state));
    json_member_bool(w, "far", t->far);
    if (t->has_cosine) {
        json_member_double(w, "cosine", t->cosine);
        json_member_double(w, "projection", t->projection);
    }
    JSON_COUNTS(w, {"not_finite", t->not_finite});
    json_end_line(w);
}

void verify_put_nearness(json_writer *w, const fsdpck_verify *v)
{
    fsdpck_nearness n = FSDPCK_INIT(fsdpck_nearness);
    fsdpck_verify_get_nearness(v, &n);
    if (!n.asked)
        return;
    json_member_object(w, "nearness");
    json_member_string(w, "skipped", n.skipped);
    JSON_COUNTS(w, {"tensors", n.tensors}, {"judged", n.judged}, {"judged_roles", n.judged_roles},
                {"other_tensors", n.other_tensors}, {"compressed", n.compressed});
    if (n.judged > 0)
        json_member_double(w, "median", n.cosine_median);
    json_end_object(w);
}

void verify_put_near_lists(json_report *r, const fsdpck_verify *v)
{
    fsdpck_nearness n = FSDPCK_INIT(fsdpck_nearness);
    fsdpck_near_role role = FSDPCK_INIT(fsdpck_near_role);
    fsdpck_near_tensor tensor = FSDPCK_INIT(fsdpck_near_tensor);
    json_writer *const w = &r->w;
    fsdpck_verify_get_nearness(v, &n);
    if (!n.asked || n.skipped != NULL)
        return;
    report_list(r, "near_roles");
    for (uint64_t i = 0; fsdpck_verify_get_near_role(v, i, &role); i++)
        put_role(w, &role);
    json_end_array(w);
    report_list(r, "near_tensors");
    for (uint64_t i = 0; fsdpck_verify_get_near_tensor(v, i, &tensor); i++)
        put_tensor(w, &tensor);
    json_end_array(w);
}
