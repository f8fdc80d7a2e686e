#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_CAPACITY 2048u

static void write_line(const logger *l, log_line *line, const char *fmt, va_list args)
{
    if (l == NULL || l->fn == NULL)
        return;
    char raw[LINE_CAPACITY];
    char text[LINE_CAPACITY];
    if (vsnprintf(raw, sizeof raw, fmt, args) < 0)
        return;
    line->text = escape_text(text, sizeof text, raw, strlen(raw));
    l->fn(l->ctx, line);
}

void log_write(const logger *l, log_level level, const char *fmt, ...)
{
    log_line line = {.level = level, .next = ""};
    va_list args;
    va_start(args, fmt);
    write_line(l, &line, fmt, args);
    va_end(args);
}

void log_warn(const logger *l, fsdpck_finding_id finding, const char *next, const char *fmt, ...)
{
    log_line line = {.level = LOG_WARNING, .finding = finding, .next = next};
    va_list args;
    va_start(args, fmt);
    write_line(l, &line, fmt, args);
    va_end(args);
}

void log_missing_file(const logger *l, const char *folder, const char *name)
{
    char raw[LINE_CAPACITY];
    char text[LINE_CAPACITY];
    if (l == NULL || l->fn == NULL)
        return;
    snprintf(raw, sizeof raw, "missing file '%s'", name);
    const log_line line = {.level = LOG_DETAIL,
                           .text = escape_text(text, sizeof text, raw, strlen(raw)),
                           .next = "",
                           .folder = folder,
                           .missing = name};
    l->fn(l->ctx, &line);
}
