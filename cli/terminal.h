/* terminal.h: colours and the width of a terminal.
 *
 *     printf("%swarning:%s ...", paint(&c->out, PAINT_WARNING), paint(&c->out, PAINT_END));
 */
#ifndef FSDPCK_CLI_TERMINAL_H
#define FSDPCK_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* In the order of the choices of --color. */
typedef enum color_mode { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color_mode;

/* An output, such as stdout. */
typedef struct terminal {
    unsigned columns; /* width; 0: not a terminal, or not to be limited */
    bool colored;
} terminal;

/* Words that have a colour: levels, headings and differences. */
typedef enum paint_kind {
    PAINT_END,
    PAINT_ERROR,
    PAINT_WARNING,
    PAINT_NOTE,
    PAINT_OK,
    PAINT_HEADING,
    PAINT_REMOVED,
    PAINT_ADDED,
    PAINT_CHANGED
} paint_kind;

/* The output of a file descriptor. COLOR_AUTO means colours on a terminal that has a size, unless NO_COLOR is set and not
 * empty, or TERM is unset or "dumb". The width is COLUMNS, else that of the terminal. */
terminal terminal_of(int fd, color_mode mode);

/* The control sequence that begins a colour, or PAINT_END; "" without colours. */
const char *paint(const terminal *to, paint_kind kind);
/* The colour of a severity: "error", "warning" or "note". */
paint_kind paint_of_severity(const char *severity);

/* The mode of the last --color in argv, for messages about argv itself; COLOR_AUTO without one. */
color_mode terminal_find_color(int argc, const char **argv);

#endif
