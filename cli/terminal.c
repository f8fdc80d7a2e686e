#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MAX 10000u

/* 0: not a terminal. mpirun gives its processes a pseudo-terminal without a size, and passes on what they print. */
static unsigned width_of(int fd)
{
    const char *text = getenv("COLUMNS");
    const unsigned long given = text == NULL ? 0 : strtoul(text, NULL, 10);
    struct winsize size;
    if (isatty(fd) != 1 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 0;
    return given > 0 && given <= COLUMNS_MAX ? (unsigned)given : size.ws_col;
}

static bool allows_color(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return (no_color == NULL || no_color[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

terminal terminal_of(int fd, color_mode mode)
{
    const unsigned columns = width_of(fd);
    return (terminal){
        .columns = columns,
        .colored = mode == COLOR_ALWAYS || (mode == COLOR_AUTO && columns > 0 && allows_color()),
    };
}

const char *paint(const terminal *to, paint_kind kind)
{
    static const char *const sequences[] = {
        [PAINT_END] = "\033[m",       [PAINT_ERROR] = "\033[1;31m", [PAINT_WARNING] = "\033[1;35m",
        [PAINT_NOTE] = "\033[1;36m",  [PAINT_OK] = "\033[32m",      [PAINT_HEADING] = "\033[1m",
        [PAINT_REMOVED] = "\033[31m", [PAINT_ADDED] = "\033[32m",   [PAINT_CHANGED] = "\033[33m",
    };
    return to->colored ? sequences[kind] : "";
}

paint_kind paint_of_severity(const char *severity)
{
    if (strcmp(severity, "error") == 0)
        return PAINT_ERROR;
    return strcmp(severity, "warning") == 0 ? PAINT_WARNING : PAINT_NOTE;
}

color_mode terminal_find_color(int argc, const char **argv)
{
    static const char option[] = "--color";
    const size_t n = sizeof option - 1;
    color_mode mode = COLOR_AUTO;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], option, n) != 0)
            continue;
        const char *value = argv[i][n] == '='                    ? argv[i] + n + 1
                            : argv[i][n] == '\0' && i + 1 < argc ? argv[i + 1]
                                                                 : "";
        if (strcmp(value, "always") == 0)
            mode = COLOR_ALWAYS;
        else if (strcmp(value, "never") == 0)
            mode = COLOR_NEVER;
    }
    return mode;
}
