#include "map_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

void map_print_text(const fsdpck_info *info)
{
    char name[1200];
    if (info->dequantized > 0)
        printf("dequantized: %s\n", report_count(name, sizeof name, info->dequantized, "tensor"));
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
    if (info->map[0] == '\0')
        return;
    json_member_object(w, "map");
    report_name(w, "name", info->map, strlen(info->map));
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
