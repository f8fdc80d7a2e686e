/* report.h: results on stdout, failures on stderr, and the JSON envelope that both use with --json.
 *
 * Envelope (schema "fsdpck-1"): schema, command, exit_code, verdict, source, outputs, counts,
 * unchecked, findings, error, next, seconds, peak_rss; a command may add members of its own between
 * them.
 */
#ifndef FSDPCK_CLI_REPORT_H
#define FSDPCK_CLI_REPORT_H

#include <cjson/cJSON.h>

#include "cmd.h"

/* The envelope of a success; the caller adds members, then calls report_json_print. NULL if memory runs
 * out. */
cJSON *report_json_begin(const cli *c, int exit_code, const char *verdict,
                         const fsdpck_info *source);
/* Prints and frees. Returns the exit code. */
int report_json_print(cJSON *envelope, int exit_code);

/* An envelope with long lists, written item by item and never kept in memory as a whole.
 *
 *     report_stream_begin(&s, envelope);
 *     report_stream_list(&s, "tensors");
 *     for (...) report_stream_item(&s, item);
 *     report_stream_list_end(&s);
 *     return report_stream_end(&s, 0);
 *
 * Begin and item free their arguments. End reports NULL items and a lack of memory, and returns the
 * exit code. */
typedef struct report_stream {
    bool first, failed;
} report_stream;

void report_stream_begin(report_stream *s, cJSON *envelope);
void report_stream_list(report_stream *s, const char *key);
void report_stream_item(report_stream *s, cJSON *item);
void report_stream_list_end(report_stream *s);
int report_stream_end(report_stream *s, int exit_code);

/* Reports a failure, as text on stderr or as the envelope on stdout; source may be NULL. Returns the
 * exit code. */
int report_failure(const cli *c, const fsdpck_info *source, const fsdpck_error *err);

/* Adds a name that may contain any byte, escaped. */
void report_json_name(cJSON *object, const char *key, const char *name, size_t nbytes);
/* Adds a list of numbers. */
void report_json_sizes(cJSON *object, const char *key, const uint64_t *sizes, unsigned count);
/* Adds a list of texts. */
void report_json_names(cJSON *object, const char *key, char *const *names, size_t count);
/* Appends a text to such a list. */
void report_json_add_name(cJSON *list, const char *name);

/* The next step: `next`, or if it is "" the one from the table of findings. */
const char *report_next(fsdpck_finding_id finding, const char *next);

/* "1.25 GB", "813 bytes"; decimal units, as disks and Hugging Face count. Returns text. */
char *report_bytes(char *text, size_t capacity, uint64_t nbytes);
/* "1,234,567". */
char *report_number(char *text, size_t capacity, uint64_t n);
/* "1 tensor", "1,234 tensors". */
char *report_count(char *text, size_t capacity, uint64_t n, const char *noun);
/* "[4, 3]". */
char *report_shape(char *text, size_t capacity, const uint64_t *sizes, unsigned ndim);

double report_seconds_since(double started);
double report_now(void);

#endif
