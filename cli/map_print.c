#include "map_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static void print_merged(const fsdpck_info *info)
{
    char name[1200], n[40];
    for (size_t i = 0; info->merged != NULL && i < info->merged->adapter_count; i++) {
        const fsdpck_merged_adapter *a = info->merged->adapters[i];
        printf("merged: adapter %s, %s", fsdpck_escape(name, sizeof name, a->name, strlen(a->name)),
               report_count(n, sizeof n, a->modules, "module"));
        if (a->modules > 0 && a->least_scale == a->largest_scale)
            printf(", scaling %g", a->least_scale);
        else if (a->modules > 0)
            printf(", scaling %g to %g", a->least_scale, a->largest_scale);
        if (a->replaced > 0)
            printf(", %s replaced", report_count(n, sizeof n, a->replaced, "tensor"));
        putchar('\n');
    }
}

static void put_merged(json_writer *w, const fsdpck_info *info)
{
    if (info->merged == NULL)
        return;
    json_member_object(w, "merged_adapters");
    json_member_u64(w, "tensors", info->merged->tensors);
    json_member_array(w, "adapters");
    for (size_t i = 0; i < info->merged->adapter_count; i++) {
        const fsdpck_merged_adapter *a = info->merged->adapters[i];
        json_begin_object(w);
        report_name(w, "name", a->name, strlen(a->name));
        json_member_u64(w, "modules", a->modules);
        json_member_u64(w, "replaced", a->replaced);
        json_put_key(w, "least_scaling", strlen("least_scaling"));
        json_put_double(w, a->least_scale);
        json_put_key(w, "largest_scaling", strlen("largest_scaling"));
        json_put_double(w, a->largest_scale);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

void map_print_text(const fsdpck_info *info)
{
    char name[1200];
    if (info->dequantized > 0)
        printf("dequantized: %s\n", report_count(name, sizeof name, info->dequantized, "tensor"));
    print_merged(info);
    if (info->map[0] == '\0')
        return;
    printf("map: %s%s", fsdpck_escape(name, sizeof name, info->map, strlen(info->map)),
           info->map_import ? ", import" : "");
    if (info->map_variables[0] != '\0')
        printf(" (%s)", info->map_variables);
    if (info->map_chosen_for[0] != '\0')
        printf(
            ", chosen for model type '%s'",
            fsdpck_escape(name, sizeof name, info->map_chosen_for, strlen(info->map_chosen_for)));
    putchar('\n');
    if (info->map_tied[0] != '\0')
        printf("tied: %s\n",
               fsdpck_escape(name, sizeof name, info->map_tied, strlen(info->map_tied)));
    if (info->map_import && info->map_not_made[0] != '\0')
        printf("not created: %s, which the map drops on export\n",
               fsdpck_escape(name, sizeof name, info->map_not_made, strlen(info->map_not_made)));
}

void map_put_json(json_writer *w, const fsdpck_info *info)
{
    if (info->dequantized > 0)
        json_member_u64(w, "dequantized", info->dequantized);
    put_merged(w, info);
    if (info->map[0] == '\0')
        return;
    json_member_object(w, "map");
    report_path(w, "name", info->map);
    json_member_object(w, "variables");
    /* "heads=32, kv_heads=8" */
    for (const char *at = info->map_variables; *at != '\0';) {
        const size_t nbytes = strcspn(at, "=");
        char *end;
        json_put_key(w, at, nbytes);
        json_put_u64(w, strtoull(at + nbytes + 1, &end, 10));
        at = end + strspn(end, ", ");
    }
    json_end_object(w);
    if (info->map_chosen_for[0] != '\0')
        report_name(w, "chosen_for", info->map_chosen_for, strlen(info->map_chosen_for));
    if (info->map_import)
        json_member_bool(w, "import", true);
    if (info->map_import && info->map_not_made[0] != '\0')
        report_name(w, "not_made", info->map_not_made, strlen(info->map_not_made));
    if (info->map_tied[0] != '\0')
        report_name(w, "tied", info->map_tied, strlen(info->map_tied));
    json_end_object(w);
}
