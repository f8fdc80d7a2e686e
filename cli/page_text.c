#include "page_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS      79
#define INDENT       7
#define INDENT_LEAST 3 /* of subheadings */

typedef struct page {
    int column;   /* of the current line; 0: empty */
    int indent;   /* of its paragraph */
    int level;    /* of .RS */
    bool example; /* lines as they are */
    bool tag;     /* the next text is the tag of .TP */
    bool blank;   /* an empty line precedes the next text */
    bool started; /* text was printed */
} page;

static void end_line(page *p)
{
    if (p->column > 0)
        putchar('\n');
    p->column = 0;
}

static void begin_line(page *p)
{
    if (p->blank && p->started)
        putchar('\n');
    p->blank = false;
    p->started = true;
    p->column = printf("%*s", p->indent, "");
}

static void put_word(page *p, const char *word, size_t nbytes)
{
    if (p->column > p->indent && p->column + 1 + (int)nbytes > COLUMNS)
        end_line(p);
    if (p->column > p->indent)
        p->column += printf(" ");
    else if (p->column == 0)
        begin_line(p);
    p->column += printf("%.*s", (int)nbytes, word);
}

/* Replaces escapes by what they print, in place. */
static void unescape(char *text)
{
    char *to = text;
    while (*text != '\0') {
        if (*text != '\\') {
            *to++ = *text++;
            continue;
        }
        const char *at = text + 1;
        size_t n = 2;
        char shown = *at == 'e' ? '\\' : *at == '-' || *at == ' ' ? *at : '\0';
        if (*at == '(') {
            n = strlen(text) < 4 ? strlen(text) : 4;
            shown = strncmp(at, "(bu", 3) == 0   ? '*'
                    : strncmp(at, "(dq", 3) == 0 ? '"'
                    : strncmp(at, "(rs", 3) == 0 ? '\\'
                                                 : '\'';
        } else if (*at == 'f') {
            n = strlen(text) < 3 ? strlen(text) : 3;
        } else if (*at == '\0') {
            n = 1;
        }
        if (shown != '\0')
            *to++ = shown;
        text += n;
    }
    *to = '\0';
}

static void put_text(page *p, char *text)
{
    unescape(text);
    if (p->example) {
        begin_line(p);
        printf("%s\n", text);
        p->column = 0;
        return;
    }
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " ");
        const size_t n = strcspn(at, " ");
        if (n > 0)
            put_word(p, at, n);
        at += n;
    }
    if (p->tag) {
        end_line(p);
        p->indent += INDENT;
    }
    p->tag = false;
}

/* The arguments of a macro as one text: of .BR and the like without blanks between them. */
static char *join_arguments(char *arguments, bool alternates)
{
    char *to = arguments;
    bool quoted = false, begins = true; /* an argument */
    for (const char *at = arguments; *at != '\0'; at++) {
        if (*at == '\\' && at[1] == ' ') {
            *to++ = *at++;
            *to++ = *at;
        } else if (*at == '"' && (begins || quoted)) {
            quoted = !quoted;
        } else if (*at != ' ' || quoted || !alternates) {
            *to++ = *at;
        }
        begins = *at == ' ' && !quoted;
    }
    *to = '\0';
    return arguments;
}

static void begin_paragraph(page *p, int indent)
{
    end_line(p);
    p->indent = indent + p->level * INDENT;
    p->blank = true;
    p->tag = false;
}

static void put_heading(page *p, char *text, int indent)
{
    p->level = 0;
    begin_paragraph(p, indent);
    put_text(p, join_arguments(text, false));
    end_line(p);
    p->indent = INDENT;
}

/* .RS and .RE. */
static void set_level(page *p, int change)
{
    end_line(p);
    p->level += change;
    p->indent = INDENT + p->level * INDENT;
}

#define MACRO(a, b) ((a) << 8 | (b))

/* A line that begins with a dot; `text` follows the name of the macro. */
static void put_macro(page *p, int macro, char *text)
{
    switch (macro) {
    case MACRO('S', 'H'):
        put_heading(p, text, 0);
        break;
    case MACRO('S', 'S'):
        put_heading(p, text, INDENT_LEAST);
        break;
    case MACRO('P', 'P'):
        begin_paragraph(p, INDENT);
        break;
    case MACRO('T', 'P'):
        begin_paragraph(p, INDENT);
        p->tag = true;
        break;
    case MACRO('I', 'P'):
        begin_paragraph(p, INDENT);
        text[strcspn(text, " ")] = '\0'; /* without the width */
        put_text(p, text);
        break;
    case MACRO('R', 'S'):
        set_level(p, 1);
        break;
    case MACRO('R', 'E'):
        set_level(p, -1);
        break;
    case MACRO('E', 'X'):
    case MACRO('E', 'E'):
        end_line(p);
        p->example = macro == MACRO('E', 'X');
        break;
    case MACRO('b', 'r'):
        end_line(p);
        break;
    case MACRO('B', '\0'):
    case MACRO('I', '\0'):
        put_text(p, join_arguments(text, false));
        break;
    case MACRO('B', 'R'):
    case MACRO('B', 'I'):
    case MACRO('I', 'R'):
    case MACRO('R', 'B'):
    case MACRO('R', 'I'):
        put_text(p, join_arguments(text, true));
        break;
    default: /* .TH, .PD and comments */
        break;
    }
}

bool page_text_print(const char *path)
{
    page p = {.indent = INDENT};
    char *line = NULL;
    size_t capacity = 0;
    FILE *from = fopen(path, "r");
    if (from == NULL)
        return false;
    while (getline(&line, &capacity, from) > 0) {
        line[strcspn(line, "\n")] = '\0';
        const size_t n = strcspn(line, " ");
        char *text = line + n + strspn(line + n, " ");
        if (line[0] == '.' && n >= 2 && n <= 3)
            put_macro(&p, MACRO(line[1], n == 3 ? line[2] : '\0'), text);
        else
            put_text(&p, line);
    }
    end_line(&p);
    free(line);
    const bool ok = ferror(from) == 0;
    fclose(from);
    return ok;
}
