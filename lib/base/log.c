#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void log_write(const logger *l, log_level level, const char *fmt, ...)
{
    if (l == NULL || l->fn == NULL)
        return;
    char raw[2048];
    char line[2048];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    if (n < 0)
        return;
    l->fn(l->ctx, level, escape_text(line, sizeof(line), raw, strlen(raw)));
}
