/* fsdpck maps: the tensor maps that are built in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/similar.h"
#include "command_options.h"
#include "pager.h"
#include "report.h"

#define SOURCE "# Source: "

/* The rest of the line after `skip` bytes. */
static char *line_copy(const char *line, size_t skip)
{
    const size_t nbytes = strcspn(line, "\n");
    return nbytes < skip ? strdup("") : strndup(line + skip, nbytes - skip);
}

/* What a map says of itself: its first line, and the code that it was compared with. */
static void describe(const char *text, char **title, char **source)
{
    const char *at = strstr(text, "\n" SOURCE);
    *title = line_copy(text, strlen("# "));
    *source = at == NULL ? strdup("") : line_copy(at + 1, strlen(SOURCE));
}

static const char *find_map(const char *wanted)
{
    const char *name, *text = NULL;
    for (size_t i = 0; (name = fsdpck_builtin_map(i, &text)) != NULL; i++)
        if (strcmp(name, wanted) == 0)
            return text;
    return NULL;
}

static void print_list(void)
{
    const char *name, *text;
    for (size_t i = 0; (name = fsdpck_builtin_map(i, &text)) != NULL; i++) {
        char *title, *source;
        describe(text, &title, &source);
        printf("%s\n  %s\n  from %s\n", name, title == NULL ? "" : title,
               source == NULL ? "" : source);
        free(title);
        free(source);
    }
}

static void put_map(json_writer *w, const char *name, const char *text, bool with_text)
{
    char *title, *source;
    describe(text, &title, &source);
    json_begin_object(w);
    json_member_string(w, "name", name);
    json_member_string(w, "title", title == NULL ? "" : title);
    json_member_string(w, "source", source == NULL ? "" : source);
    if (with_text)
        json_member_string(w, "text", text);
    json_end_object(w);
    free(title);
    free(source);
}

static int print_json(const cli *c, const char *wanted)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    const char *name, *text;
    json_member_array(w, "maps");
    for (size_t i = 0; (name = fsdpck_builtin_map(i, &text)) != NULL; i++)
        if (wanted == NULL || strcmp(name, wanted) == 0)
            put_map(w, name, text, wanted != NULL);
    json_end_array(w);
    return report_end(&r);
}

static const opt_row rows[] = {
    {"json", .kind = OPT_FLAG, .help = "report as JSON"},
    {0},
};

static int fail_unknown(const cli *c, const char *wanted)
{
    const char *name, *best = NULL;
    char next[128] = "";
    size_t least = similar_limit(wanted);
    for (size_t i = 0; (name = fsdpck_builtin_map(i, NULL)) != NULL; i++) {
        const size_t distance = similar_distance(wanted, name);
        best = distance < least ? name : best;
        least = distance < least ? distance : least;
    }
    if (best != NULL)
        snprintf(next, sizeof next, "did you mean '%s'? ", best);
    const size_t n = strlen(next);
    snprintf(next + n, sizeof next - n, "%s the maps with: fsdpck maps", n > 0 ? "List" : "list");
    return opt_usage_error_next(c, next, "unknown map '%s'", wanted);
}

static int run(cli *c, const char *wanted)
{
    const char *text = wanted == NULL ? NULL : find_map(wanted);
    if (wanted != NULL && text == NULL)
        return fail_unknown(c, wanted);
    if (c->json)
        return print_json(c, wanted);
    pager_start(c);
    if (text != NULL)
        fputs(text, stdout);
    else
        print_list();
    return 0;
}

int cmd_maps(cli *c, int argc, const char **argv)
{
    int json = 0;
    const opt_group groups[] = {{"Options:", rows, &json}, {"", options_terminal, c}, {0}};
    const opt_spec spec = {
        .usage = "maps [OPTION]... [NAME]",
        .about = "Lists the tensor maps that are built in, with the code that each was compared\n"
                 "with, or prints map NAME. consolidate, reshard and digest apply a map with\n"
                 "--map; fsdpck-map(5) describes how to write one.",
        .groups = groups,
        .examples = "  fsdpck maps\n"
                    "  fsdpck maps torchtitan-llama3 >my.map\n",
        .operands_optional = true,
        .operand_words = OPT_WORDS_MAPS,
    };
    const char *operands[1] = {NULL};
    int code = opt_parse(c, &spec, argc, argv, operands, 1);
    if (code < 0) {
        c->json = json != 0;
        code = run(c, operands[0]);
    }
    opt_release(c, &spec);
    return code;
}
