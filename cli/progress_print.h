/* progress_print.h: prints the progress of the library on stderr: on a terminal a line that is redrawn,
 * elsewhere a line every 30 seconds.
 *
 *     progress_display *v = progress_start(c, mode);   // NULL is fine: nothing is drawn
 *     ... library call ...
 *     progress_stop(v);
 */
#ifndef FSDPCK_CLI_PROGRESS_PRINT_H
#define FSDPCK_CLI_PROGRESS_PRINT_H

#include "cmd.h"

typedef enum progress_mode { PROGRESS_AUTO, PROGRESS_ALWAYS, PROGRESS_NEVER } progress_mode;

typedef struct progress_display progress_display;

progress_display *progress_start(const cli *c, progress_mode mode);
void progress_stop(progress_display *v);

#endif
