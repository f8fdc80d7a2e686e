/* fsdpck version: the version, and the formats and engines that are built in. */
#include <stdio.h>

#include "command_options.h"
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

static void put_kind(json_writer *w, const char *kind)
{
    const char *name;
    json_member_array(w, kind);
    for (size_t i = 0; (name = fsdpck_builtin(kind, i, NULL)) != NULL; i++)
        json_put_cstr(w, name);
    json_end_array(w);
}

static int print_json(const cli *c)
{
    static const char *const kinds[] = {"reader", "writer", "engine", "group"};
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_string(w, "version", fsdpck_version());
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        put_kind(w, kinds[i]);
    return report_end(&r);
}

static const opt_row rows[] = {
    {"json", .kind = OPT_FLAG, .help = "report as JSON"},
    {0},
};

int cmd_version(cli *c, int argc, const char **argv)
{
    int json = 0;
    const opt_group groups[] = {{"Options:", rows, &json}, {"", options_terminal, c}, {0}};
    const opt_spec spec = {
        .usage = "version [OPTION]...",
        .about = "Shows the version and the formats and engines that are built in.",
        .groups = groups,
    };
    const char *operands[1];
    int code = opt_parse(c, &spec, argc, argv, operands, 0);
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
