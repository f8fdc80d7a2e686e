/* report.h: results on stdout, failures on stderr, and the JSON envelope that both use with --json.
 *
 * Envelope (schema "fsdpck-1"): schema, command, exit_code, verdict, source, outputs, counts,
 * unchecked, findings, error, next, seconds, peak_rss; a command may add members of its own between
 * them.
 */
#ifndef FSDPCK_CLI_REPORT_H
#define FSDPCK_CLI_REPORT_H

#include "base/json.h"
#include "cmd.h"

/* Members that every envelope has, in this order where a command omits several. */
typedef enum report_member {
    REPORT_OUTPUTS,
    REPORT_COUNTS,
    REPORT_FINDINGS,
    REPORT_UNCHECKED,
    REPORT_NEXT,
    REPORT_ERROR,
    REPORT_MEMBERS
} report_member;

/* An envelope under construction. A long one is printed while it is written: begin it when nothing but
 * a lack of memory can fail.
 *
 *     json_writer *const w = report_begin(&r, c, 0, "none", info);
 *     json_member_u64(w, "world_size", k.world_size);
 *     report_list(&r, "tensors");
 *     for (...) {
 *         json_begin_line(w);
 *         ...
 *         json_end_line(w);
 *     }
 *     json_end_array(w);
 *     return report_end(&r);
 */
typedef struct json_report {
    json_writer w;
    text_buf text;    /* not printed yet */
    unsigned written; /* bits of report_member */
    int exit_code;
    report_page *page; /* NULL: stdout */
} json_report;

/* Begin an envelope; the caller adds members. The first leaves out the findings, the second leaves their
 * list open, after the warnings. Warnings make the verdict of the last two "findings". */
json_writer *report_begin_bare(json_report *r, const cli *c, int exit_code, const char *verdict,
                               const fsdpck_info *source);
json_writer *report_begin_findings(json_report *r, const cli *c, int exit_code, const char *verdict,
                                   const fsdpck_info *source);
json_writer *report_begin(json_report *r, const cli *c, int exit_code, const char *verdict,
                          const fsdpck_info *source);
/* Begins an object or a list that every envelope has. */
void report_begin_member(json_report *r, report_member member);
/* An object of numbers that every envelope has. */
#define REPORT_MEMBER_COUNTS(r, member, ...) \
    report_member_counts(r, member, JSON_COUNT_LIST(__VA_ARGS__))
void report_member_counts(json_report *r, report_member member, const json_count *counts);
/* Begins a long list, after all members that every envelope has. */
void report_list(json_report *r, const char *key);
/* Returns the exit code. */
int report_end(json_report *r);

/* Items of a list, collected before the envelope begins. */
typedef struct report_items {
    json_writer w;
    text_buf text;
} report_items;

void report_items_init(report_items *items);
/* Adds them to a list. */
void report_put_items(json_writer *w, const report_items *items);
void report_items_release(report_items *items);

/* Reports a failure, as text on stderr or as the envelope on stdout; source may be NULL. Returns the
 * exit code. */
int report_failure(const cli *c, const fsdpck_info *source, const fsdpck_error *err);

/* The text on stderr, unless --json is given: for reports that begin_failure begins. */
void report_failure_text(const cli *c, const fsdpck_error *err);
/* Begins the envelope of a failed run that has more members. */
json_writer *report_begin_failure(json_report *r, const cli *c, const fsdpck_info *source,
                                  const fsdpck_error *err);
/* Adds the members error and next of a failed run. */
void report_put_error(json_report *r, const fsdpck_error *err);

/* Reports that memory ran out for the text of a command. Returns the exit code. */
int report_no_memory(const cli *c);

/* Adds a name that may contain any byte, escaped. */
void report_name(json_writer *w, const char *key, const char *name, size_t nbytes);
/* Adds a path, not escaped, so that a program can open it: a byte that is not UTF-8 is U+0000 and two hexadecimal digits.
 * Nothing for "" and NULL. */
void report_path(json_writer *w, const char *key, const char *path);
/* A member of the form of "source". */
void report_put_source(json_writer *w, const char *key, const fsdpck_info *source);
/* report_steps.c: sets the step to the record that fsdpck_get_step gives first: all reports name that one. */
void report_set_step(fsdpck_checkpoint *ckpt, fsdpck_info *info);
/* A list of the training steps that a checkpoint records; the second, for a page alone, omits repetitions. */
void report_put_steps(json_writer *w, const char *key, fsdpck_checkpoint *ckpt);
void report_put_page_steps(const cli *c, json_writer *w, const char *key, fsdpck_checkpoint *ckpt);
/* Whether these are several steps; prints "3 (name of the folder)", all or the first, in one line. */
bool report_steps_differ(fsdpck_checkpoint *ckpt);
void report_print_steps(fsdpck_checkpoint *ckpt, bool all);
/* Adds it to a list. */
void report_put_path(json_writer *w, const char *path);
/* Adds a text to a list. */
void report_put_text(json_writer *w, const char *text);
/* Adds a list of texts. */
void report_texts(json_writer *w, const char *key, char *const *texts, size_t count);
void report_paths(json_writer *w, const char *key, char *const *paths, size_t count);
/* Sets the path of an error. */
void report_set_path(fsdpck_error *err, const char *path);

/* The members "files" and "tensors": all that the error is about, if their names are known. */
void report_all_names(const cli *c, json_writer *w, const fsdpck_error *what);

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
