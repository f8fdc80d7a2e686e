/* fsdpck version: the version, and the formats and engines that are built in. */
#include <stdio.h>

#include "opt.h"
#include "report.h"

static void print_kind(const char *kind)
{
    const char *name, *description;
    char state[256];
    for (size_t i = 0; (name = fsdpck_builtin(kind, i, &description)) != NULL; i++) {
        fsdpck_builtin_state(name, state, sizeof state);
        printf("  %-8s %-16s %s%s%s\n", i == 0 ? kind : "", name, description,
               state[0] == '\0' ? "" : "; ", state);
    }
}

static void add_kind(cJSON *e, const char *kind)
{
    const char *name;
    cJSON *list = cJSON_AddArrayToObject(e, kind);
    for (size_t i = 0; (name = fsdpck_builtin(kind, i, NULL)) != NULL; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(name));
}

static int print_json(const cli *c)
{
    static const char *const kinds[] = {"reader", "writer", "engine", "group"};
    cJSON *e = report_json_begin(c, 0, "none", NULL);
    if (e == NULL)
        return FSDPCK_LIMIT;
    cJSON_AddStringToObject(e, "version", fsdpck_version());
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        add_kind(e, kinds[i]);
    return report_json_print(e, 0);
}

static const opt_row rows[] = {
    {"json", .kind = OPT_FLAG, .help = "report as JSON"},
    {0},
};

int cmd_version(cli *c, int argc, const char **argv)
{
    int json = 0;
    const opt_group groups[] = {{"Options:", rows, &json}, {0}};
    const opt_spec spec = {
        .usage = "version [OPTION]...",
        .about = "Shows the version and the formats and engines that are built in.",
        .groups = groups,
    };
    unsigned count;
    const char *operands[1];
    int code = opt_parse(c, &spec, argc, argv, operands, 0, 0, &count);
    if (code < 0 && json) {
        code = print_json(c);
    } else if (code < 0) {
        printf("fsdpck %s\n", fsdpck_version());
        print_kind("reader");
        print_kind("writer");
        print_kind("engine");
        print_kind("group");
        code = 0;
    }
    opt_release(c, &spec);
    return code;
}
