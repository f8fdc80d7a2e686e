/* progress_line.h: one line of progress as text. It uses no clock and no terminal, for tests.
 *
 *     writing  [######--------]  43 %  1.6 of 3.7 GB  1.2 GB/s  2 s left
 *     writing  [######--------]  43 %  1.6 of 3.7 GB (1.1 GB checked)  400 MB/s  6 s left
 *
 * Checked are the bytes of an earlier run that this one continues; the rate is that of the others.
 * If the width is too small, the bar is omitted first, then the fields after the size.
 */
#ifndef FSDPCK_CLI_PROGRESS_LINE_H
#define FSDPCK_CLI_PROGRESS_LINE_H

#include <stddef.h>
#include <stdint.h>

enum { PROGRESS_LINE_MOST = 256 };

typedef struct progress_sample {
    const char *phase;    /* "writing" */
    uint64_t done, total; /* bytes; total 0: unknown */
    uint64_t kept;        /* of those done: written by an earlier run */
    double seconds;       /* since the phase began */
    double rate;          /* bytes per second; 0: not known yet */
} progress_sample;

/* Writes at most `width` columns (0: no limit, and no bar) and a NUL; `text` has PROGRESS_LINE_MOST
 * bytes. Returns the length. */
size_t progress_line(char *text, const progress_sample *s, unsigned width);

#endif
