#include "progress_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

/* Width of the bar with its brackets, in columns. */
enum { BAR_LEAST = 12, BAR_MOST = 42 };

/* Columns reserved for the numbers, so that the length of the bar is constant. */
enum { TEXT_COLUMNS = 46 };

/* "1.6 of 3.7 GB": a common unit is printed once. */
static void format_bytes(char *text, size_t capacity, const progress_sample *s, uint64_t done)
{
    char a[32], b[32], kept[32];
    report_bytes(a, sizeof a, done);
    report_bytes(b, sizeof b, s->total);
    report_bytes(kept, sizeof kept, s->kept);
    char *unit = strchr(a, ' ');
    if (unit != NULL && strchr(b, ' ') != NULL && strcmp(unit, strchr(b, ' ')) == 0)
        *unit = '\0';
    if (s->kept > 0)
        snprintf(text, capacity, "%s of %s (%s checked)", a, b, kept);
    else
        snprintf(text, capacity, "%s of %s", a, b);
}

static void format_left(char *text, size_t capacity, double seconds)
{
    const uint64_t s = seconds < 1 ? 1 : seconds > 8640000 ? 8640000 : (uint64_t)(seconds + 0.5);
    if (s < 60)
        snprintf(text, capacity, "  %" PRIu64 " s left", s);
    else if (s < 3600)
        snprintf(text, capacity, "  %" PRIu64 " min %02" PRIu64 " s left", s / 60, s % 60);
    else
        snprintf(text, capacity, "  %" PRIu64 " h %02" PRIu64 " min left", s / 3600, s % 3600 / 60);
}

static void draw_bar(char *text, double fraction, unsigned columns)
{
    const unsigned inside = columns - 2;
    const unsigned filled = (unsigned)(fraction * inside);
    text[0] = '[';
    memset(text + 1, '#', filled);
    memset(text + 1 + filled, '-', inside - filled);
    text[columns - 1] = ']';
    text[columns] = '\0';
}

/* Appends the field only if all of it fits. */
static void append_whole(char *text, size_t capacity, const char *field, unsigned width,
                         size_t lead)
{
    const size_t n = strlen(text);
    if (width == 0 || lead + n + strlen(field) <= width)
        snprintf(text + n, capacity - n, "%s", field);
}

size_t progress_line(char *text, const progress_sample *s, unsigned width)
{
    char behind[200], bytes[112], rate[32], left[48] = "", speed[40], drawn[BAR_MOST + 3] = "";
    if (s->total == 0) {
        snprintf(behind, sizeof behind, "  %.0f s", s->seconds);
    } else {
        const uint64_t done = s->done < s->total ? s->done : s->total;
        const double fraction = (double)done / (double)s->total;
        format_bytes(bytes, sizeof bytes, s, done);
        report_bytes(rate, sizeof rate, (uint64_t)s->rate);
        const size_t lead = strlen(s->phase);
        snprintf(behind, sizeof behind, "  %3u %%  %s", (unsigned)(100.0 * fraction), bytes);
        if (s->rate > 0) {
            snprintf(speed, sizeof speed, "  %s/s", rate);
            append_whole(behind, sizeof behind, speed, width, lead);
            if (done < s->total)
                format_left(left, sizeof left, (double)(s->total - done) / s->rate);
            append_whole(behind, sizeof behind, left, width, lead);
        }
        const size_t text_columns = strlen(behind) < TEXT_COLUMNS ? TEXT_COLUMNS : strlen(behind);
        const size_t used = lead + 2 + text_columns;
        if (width >= used + BAR_LEAST) {
            const size_t room = width - used;
            drawn[0] = drawn[1] = ' ';
            draw_bar(drawn + 2, fraction, room > BAR_MOST ? BAR_MOST : (unsigned)room);
        }
    }
    snprintf(text, PROGRESS_LINE_MOST, "%s%s%s", s->phase, drawn, behind);
    if (width > 0 && width < strlen(text))
        text[width] = '\0';
    return strlen(text);
}
