#include "consolidate_report.h"

#include <stdio.h>
#include <string.h>

#include "report.h"

static void print_names(const char *lead, char *const *names, size_t count, uint64_t all)
{
    const size_t shown = count < 5 ? count : 5;
    printf("  %s", lead);
    for (size_t i = 0; i < shown; i++)
        printf("%s%s", i == 0 ? "" : ", ", names[i]);
    printf("%s\n", all > shown ? ", ..." : "");
}

static void print_left_out(const fsdpck_report *p)
{
    char a[32], n[32];
    if (p->left_out_tensors > 0 || p->left_out_objects > 0) {
        printf("left out: %s tensors (%s)", report_number(n, sizeof n, p->left_out_tensors),
               report_bytes(a, sizeof a, p->left_out_nbytes));
        printf(" and %s objects of other parts; --part all takes every tensor, a .pt takes "
               "everything\n",
               report_number(n, sizeof n, p->left_out_objects));
        print_names("", p->left_out_names, p->left_out_names_count,
                    p->left_out_tensors + p->left_out_objects);
    }
    if (p->sidecars_count > 0) {
        printf("not copied: %zu files beside the weights\n", p->sidecars_count);
        print_names("", p->sidecars, p->sidecars_count, p->sidecars_count);
    }
}

/* The sums alone, or with every tensor and where it comes from: the indented lines. */
static void print_plan(const char *text, bool whole)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n") + 1;
        if (whole || *text != ' ')
            printf("%.*s", (int)n, text);
        text += n;
    }
}

void consolidate_print_text(const cli *c, const fsdpck_info *info, const fsdpck_report *p,
                            bool dry_run)
{
    char a[32], b[32];
    const double seconds = report_seconds_since(c->started_seconds);
    if (dry_run && p->plan_text != NULL)
        print_plan(p->plan_text, c->verbose > 0);
    printf("%s%s -> %s: %s tensors", dry_run ? "would write " : "", info->format, p->format,
           report_number(a, sizeof a, p->tensors_out));
    if (p->objects_out > 0)
        printf(" and %s objects", report_number(a, sizeof a, p->objects_out));
    if (!dry_run)
        printf(", %s in %.2f s (%s/s)", report_bytes(a, sizeof a, p->bytes_written), seconds,
               report_bytes(b, sizeof b,
                            (uint64_t)((double)p->bytes_written / (seconds > 0 ? seconds : 1))));
    printf("\npart: %s%s%s%s\n", p->part, p->model_key[0] == '\0' ? "" : " (outer key '",
           p->model_key, p->model_key[0] == '\0' ? "" : "' dropped from the names)");
    if (p->cast > 0)
        printf("cast: %s tensors, %s values overflowed to infinity\n",
               report_number(a, sizeof a, p->cast), report_number(b, sizeof b, p->cast_overflows));
    if (p->renamed > 0)
        printf("renamed: %s tensors\n", report_number(a, sizeof a, p->renamed));
    if (p->tied > 0) {
        printf(
            "tied: %s tensors share the bytes of another%s\n", report_number(a, sizeof a, p->tied),
            p->tied_dropped > 0 ? "; only the first name was written" : "; every name was written");
        print_names("", p->tied_names, p->tied_names_count, p->tied);
    }
    print_left_out(p);
    for (size_t i = 0; i < p->outputs_count; i++) {
        char path[4200];
        printf("%s\n", fsdpck_escape(path, sizeof path, p->outputs[i], strlen(p->outputs[i])));
    }
}

static void json_counts(cJSON *e, const fsdpck_report *p)
{
    cJSON *n = cJSON_AddObjectToObject(e, "counts");
    cJSON_AddNumberToObject(n, "in", (double)p->tensors_in);
    cJSON_AddNumberToObject(n, "out", (double)p->tensors_out);
    cJSON_AddNumberToObject(n, "objects_out", (double)p->objects_out);
    cJSON_AddNumberToObject(n, "cast", (double)p->cast);
    cJSON_AddNumberToObject(n, "cast_overflows", (double)p->cast_overflows);
    cJSON_AddNumberToObject(n, "renamed", (double)p->renamed);
    cJSON_AddNumberToObject(n, "tied", (double)p->tied);
    cJSON_AddNumberToObject(n, "tied_dropped", (double)p->tied_dropped);
    cJSON_AddNumberToObject(n, "left_out", (double)p->left_out_tensors);
    cJSON_AddNumberToObject(n, "left_out_objects", (double)p->left_out_objects);
    cJSON_AddNumberToObject(n, "left_out_bytes", (double)p->left_out_nbytes);
    cJSON_AddNumberToObject(n, "bytes_read", (double)p->bytes_read);
    cJSON_AddNumberToObject(n, "bytes_written", (double)p->bytes_written);
    cJSON_AddNumberToObject(n, "bytes_written_direct", (double)p->direct_nbytes);
    cJSON_AddNumberToObject(n, "replicas_compared", (double)p->replicas_compared);
    cJSON_AddNumberToObject(n, "items", (double)p->items);
    cJSON_AddNumberToObject(n, "segments", (double)p->segments);
}

int consolidate_print_json(const cli *c, const fsdpck_info *info, const fsdpck_report *p,
                           bool dry_run)
{
    cJSON *e = report_json_begin(c, 0, "none", info);
    if (e == NULL)
        return FSDPCK_LIMIT;
    cJSON_AddStringToObject(e, "format", p->format);
    cJSON_AddStringToObject(e, "part", p->part);
    cJSON_AddStringToObject(e, "model_key", p->model_key);
    cJSON_AddBoolToObject(e, "dry_run", dry_run);
    report_json_names(e, "outputs", p->outputs, p->outputs_count);
    json_counts(e, p);
    report_json_names(e, "left_out", p->left_out_names, p->left_out_names_count);
    report_json_names(e, "tied", p->tied_names, p->tied_names_count);
    report_json_names(e, "sidecars", p->sidecars, p->sidecars_count);
    if (p->plan_text != NULL && c->verbose > 0)
        cJSON_AddStringToObject(e, "plan", p->plan_text);
    return report_json_print(e, 0);
}
