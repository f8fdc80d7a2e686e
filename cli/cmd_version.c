/* fsdpck version: the version, and the formats and engines that are built in. */
#include <stdio.h>
#include <string.h>

#include "command_options.h"
#include "report.h"

static const char *const kinds[] = {"reader", "writer", "engine", "group"};

#define KINDS (sizeof kinds / sizeof *kinds)

static void print_kind(const char *kind, int width)
{
    const char *name, *description;
    char state[256];
    for (size_t i = 0; (name = fsdpck_builtin(kind, i, &description)) != NULL; i++) {
        fsdpck_builtin_state(name, state, sizeof state);
        printf("  %-8s %-*s %s%s%s\n", i == 0 ? kind : "", width, name, description,
               state[0] == '\0' ? "" : "; ", state);
    }
}

static int print_kinds(void)
{
    const char *name;
    int width = 0;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; (name = fsdpck_builtin(kinds[k], i, NULL)) != NULL; i++)
            if ((int)strlen(name) > width)
                width = (int)strlen(name);
    for (size_t k = 0; k < KINDS; k++)
        print_kind(kinds[k], width);
    return 0;
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
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_string(w, "version", fsdpck_version());
    for (size_t i = 0; i < KINDS; i++)
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
        code = print_kinds();
    }
    opt_release(c, &spec);
    return code;
}
