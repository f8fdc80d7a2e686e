/* Compares two checkpoints, and the files of a trainer's state beside them: each is a checkpoint of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"
#include "base/struct_copy.h"
#include "base/text.h"
#include "compare/diff.h"
#include "compare/diff_json_beside.h"
#include "compare/diff_metadata.h"
#include "open/other_files.h"
#include "open/state_files.h"

enum { LIST_NBYTES = 400 };

/* trainer_state.json is a log, and no checkpoint. */
static bool is_compared(const found_state_file *f)
{
    return strcmp(f->name, TRAINER_STATE_JSON) != 0;
}

static const found_state_file *find_file(const vec *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(VEC_AT(files, const found_state_file, i)->name, name) == 0)
            return VEC_AT(files, const found_state_file, i);
    return NULL;
}

/* Files that are not compared. */
typedef struct files_left {
    uint64_t of_a, of_b;
    text_buf names;
} files_left;

static void leave(files_left *l, const found_state_file *f, bool in_a, bool in_b)
{
    l->of_a += in_a;
    l->of_b += in_b;
    char name[256];
    text_printf(&l->names, "%s'%s'", l->names.nbytes > 0 ? ", " : "",
                escape_text(name, sizeof name, f->name, strlen(f->name)));
}

static void close_file(diff_file *f)
{
    if (f->diff != NULL)
        diff_free_one(f->diff);
    fsdpck_close(f->a);
    fsdpck_close(f->b);
}

/* Reads a file as verify does. A damaged one ends the run; *is_read: false for one of a kind that is not read. */
static fsdpck_status open_file(fsdpck_checkpoint *of, const found_state_file *f,
                               fsdpck_checkpoint **out, bool *is_read, fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    fsdpck_status st = state_file_open(of, f, out, &why);
    if (st == FSDPCK_BADINPUT && why.finding == FSDPCK_FINDING_NO_CHECKPOINT) /* of pickle.dump */
        st = FSDPCK_UNSUPPORTED;
    if (st != FSDPCK_OK && err != NULL)
        *err = why;
    if (st == FSDPCK_BADINPUT)
        error_path(err, f->path);
    *is_read = *is_read && st == FSDPCK_OK;
    return st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT || st == FSDPCK_USAGE ? FSDPCK_OK : st;
}

static fsdpck_status compare_file(fsdpck_diff *d, const found_state_file *a,
                                  const found_state_file *b, const fsdpck_diff_options *o,
                                  files_left *left, fsdpck_error *err)
{
    fsdpck_checkpoint *of_a = d->a.src, *of_b = d->b.src;
    diff_file f = {.name = a->name};
    bool is_read = true;
    fsdpck_status st = open_file(of_a, a, &f.a, &is_read, err);
    if (st == FSDPCK_OK)
        st = open_file(of_b, b, &f.b, &is_read, err);
    if (st == FSDPCK_OK && is_read)
        st = diff_make(of_a->ctx, f.a, f.b, o, &f.diff, err);
    if (st == FSDPCK_UNSUPPORTED)
        st = FSDPCK_OK;
    if (st == FSDPCK_OK && f.diff != NULL)
        st = vec_add(&d->beside, &f, err);
    else if (st == FSDPCK_OK)
        leave(left, a, true, true);
    if (st != FSDPCK_OK || f.diff == NULL)
        close_file(&f);
    return st;
}

static uint64_t count_rows(const fsdpck_diff *d)
{
    uint64_t rows = d->rows.count;
    for (size_t i = 0; i < d->beside.count; i++)
        rows += VEC_AT(&d->beside, const diff_file, i)->diff->rows.count;
    return rows;
}

static fsdpck_status compare_files(fsdpck_diff *d, const fsdpck_diff_options *o, bool selected,
                                   files_left *left, fsdpck_error *err)
{
    const vec *a = &d->a.src->state_files, *b = &d->b.src->state_files;
    for (size_t i = 0; i < a->count; i++) {
        const found_state_file *f = VEC_AT(a, const found_state_file, i);
        const found_state_file *other = find_file(b, f->name);
        if (!is_compared(f))
            continue;
        if (other == NULL || selected)
            leave(left, f, true, other != NULL);
        else if (!d->brief || count_rows(d) == 0)
            RETURN_IF(compare_file(d, f, other, o, left, err));
    }
    for (size_t i = 0; i < b->count; i++) {
        const found_state_file *f = VEC_AT(b, const found_state_file, i);
        if (is_compared(f) && find_file(a, f->name) == NULL)
            leave(left, f, false, true);
    }
    return FSDPCK_OK;
}

/* ---- files of other names ---- */

static bool have_same_bytes(const found_state_file *a, const found_state_file *b)
{
    file of_a = FILE_CLOSED, of_b = FILE_CLOSED;
    const bool same = file_open_read(&of_a, NULL, a->path, 0, NULL) == FSDPCK_OK &&
                      file_open_read(&of_b, NULL, b->path, 0, NULL) == FSDPCK_OK &&
                      file_has_same_bytes(&of_a, &of_b);
    file_abandon(&of_a);
    file_abandon(&of_b);
    return same;
}

/* One that is not read, or damaged, is named: it may be no checkpoint. */
static fsdpck_status compare_other(fsdpck_diff *d, const found_state_file *a,
                                   const found_state_file *b, const fsdpck_diff_options *o,
                                   files_left *left, fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    const fsdpck_status st = compare_file(d, a, b, o, left, &why);
    if (st == FSDPCK_BADINPUT || st == FSDPCK_IO)
        leave(left, a, true, true);
    else if (st != FSDPCK_OK && err != NULL)
        *err = why;
    return st == FSDPCK_BADINPUT || st == FSDPCK_IO ? FSDPCK_OK : st;
}

/* The same bytes are equal, whatever they are. */
static fsdpck_status compare_others(fsdpck_diff *d, const fsdpck_diff_options *o, bool selected,
                                    files_left *left, fsdpck_error *err)
{
    const vec *a = &d->a.src->other_files, *b = &d->b.src->other_files;
    for (size_t i = 0; i < a->count; i++) {
        const found_state_file *f = VEC_AT(a, const found_state_file, i);
        const found_state_file *other = find_file(b, f->name);
        if (other != NULL && have_same_bytes(f, other))
            continue;
        if (other == NULL || selected)
            leave(left, f, true, other != NULL);
        else if (!d->brief || count_rows(d) == 0)
            RETURN_IF(compare_other(d, f, other, o, left, err));
    }
    for (size_t i = 0; i < b->count; i++) {
        const found_state_file *f = VEC_AT(b, const found_state_file, i);
        if (find_file(a, f->name) == NULL)
            leave(left, f, false, true);
    }
    left->of_a += d->a.src->other_files_more;
    left->of_b += d->b.src->other_files_more;
    return FSDPCK_OK;
}

static void warn_others_left(const logger *log, const files_left *l)
{
    if (l->of_a + l->of_b > 0)
        log_warn(log, FSDPCK_FINDING_STATE_BESIDE,
                 "compare these files one by one: fsdpck diff A/ema.pt B/ema.pt",
                 "not compared: %" PRIu64 " other file%s beside the weights of A, %" PRIu64
                 " of B: %s%s",
                 l->of_a, text_plural(l->of_a), l->of_b, l->names.text == NULL ? "" : l->names.text,
                 l->names.failed ? ", ..." : "");
}

/* A file alone has nothing beside it. */
static bool has_beside(const fsdpck_checkpoint *c)
{
    return c->probe.is_folder || c->entered_from != NULL;
}

static fsdpck_status diff_others(fsdpck_diff *d, const fsdpck_diff_options *o, bool selected,
                                 fsdpck_error *err)
{
    files_left left = {.names = {.limit_bytes = LIST_NBYTES}};
    const size_t count = d->beside.count;
    const logger *log = &d->a.ctx->log;
    if (!has_beside(d->a.src) || !has_beside(d->b.src))
        return FSDPCK_OK;
    RETURN_IF(other_files_list(d->a.src, err));
    RETURN_IF(other_files_list(d->b.src, err));
    const fsdpck_status st = compare_others(d, o, selected, &left, err);
    if (st == FSDPCK_OK && group_rank(d->a.ctx->group) == 0)
        warn_others_left(log, &left);
    text_release(&left.names);
    if (st == FSDPCK_OK && d->beside.count > count)
        log_write(log, LOG_NOTE,
                  "comparing also %zu file%s of other names beside the weights, such as '%s'",
                  d->beside.count - count, text_plural(d->beside.count - count),
                  VEC_AT(&d->beside, const diff_file, count)->name);
    return st;
}

/* ---- */

static void warn_left(const logger *log, const files_left *l)
{
    if (l->of_a + l->of_b > 0)
        log_warn(log, FSDPCK_FINDING_STATE_BESIDE,
                 "compare these files one by one: fsdpck diff A/optimizer.pt B/optimizer.pt",
                 "not compared: %" PRIu64 " file%s of the trainer's state beside the weights of A, "
                 "%" PRIu64 " of B: %s%s",
                 l->of_a, text_plural(l->of_a), l->of_b, l->names.text == NULL ? "" : l->names.text,
                 l->names.failed ? ", ..." : "");
}

/* The files of a folder that is_state are compared; those of_consolidation are the same weights. */
static size_t count_nested(const nested_folders *l, const nested_folder **first)
{
    size_t count = 0;
    for (size_t i = 0; i < l->list.count; i++) {
        const nested_folder *f = VEC_AT(&l->list, const nested_folder, i);
        if (f->is_state || f->of_consolidation)
            continue;
        count++;
        *first = *first == NULL ? f : *first;
    }
    return count;
}

static void warn_nested_left(const logger *log, size_t of_a, size_t of_b, const char *first)
{
    char in_a[160], in_b[160], word[2][300], next[700];
    snprintf(in_a, sizeof in_a, "A/%.120s", first);
    snprintf(in_b, sizeof in_b, "B/%.120s", first);
    snprintf(next, sizeof next, "compare these folders one by one: fsdpck diff %s %s",
             shell_word(word[0], sizeof word[0], in_a), shell_word(word[1], sizeof word[1], in_b));
    log_warn(log, FSDPCK_FINDING_STATE_BESIDE, next,
             "not compared: %zu folder%s below A with checkpoints of their own, %zu below B, "
             "such as '%s'",
             of_a, text_plural(of_a), of_b, first);
}

static fsdpck_status warn_nested(const fsdpck_diff *d, fsdpck_error *err)
{
    nested_folders a, b;
    nested_folders_init(&a);
    nested_folders_init(&b);
    fsdpck_status st = nested_folders_add(&a, d->a.src, err);
    if (st == FSDPCK_OK)
        st = nested_folders_add(&b, d->b.src, err);
    const nested_folder *first = NULL;
    const size_t of_a = count_nested(&a, &first), of_b = count_nested(&b, &first);
    if (st == FSDPCK_OK && of_a + of_b > 0)
        warn_nested_left(&d->a.ctx->log, of_a, of_b, text_file_name(first->path));
    nested_folders_warn_unread(&a, &d->a.ctx->log);
    nested_folders_warn_unread(&b, &d->a.ctx->log);
    nested_folders_release(&a);
    nested_folders_release(&b);
    return st;
}

static void note_compared(const logger *log, const fsdpck_diff *d)
{
    if (d->beside.count > 0)
        log_write(
            log, LOG_NOTE,
            "comparing also %zu file%s of the trainer's state beside the weights, such as '%s'",
            d->beside.count, text_plural(d->beside.count),
            VEC_AT(&d->beside, const diff_file, 0)->name);
}

/* Options of names are for the weights; ranks of a group may have other files on their hosts. */
static bool is_selected(const fsdpck_context *ctx, const fsdpck_select_options *s)
{
    return ctx->group != NULL || s->keys_count > 0 || s->exclude_count > 0 || s->rename_count > 0 ||
           s->strip_prefix_count > 0 || s->dtype_count > 0 || s->part == FSDPCK_PART_MODEL ||
           s->part == FSDPCK_PART_OTHER;
}

static fsdpck_status diff_beside(fsdpck_diff *d, const fsdpck_diff_options *options,
                                 fsdpck_error *err)
{
    fsdpck_diff_options o = FSDPCK_INIT(fsdpck_diff_options);
    fsdpck_select_options select = FSDPCK_INIT(fsdpck_select_options);
    files_left left = {.names = {.limit_bytes = LIST_NBYTES}};
    fsdpck_context *ctx = d->a.ctx;
    RETURN_IF(STRUCT_COPY_IN(&o, options, fsdpck_diff_options, err));
    if (o.select != NULL)
        RETURN_IF(STRUCT_COPY_IN(&select, o.select, fsdpck_select_options, err));
    RETURN_IF(trainer_state_list(d->a.src, err));
    RETURN_IF(trainer_state_list(d->b.src, err));
    const bool selected = is_selected(ctx, &select);
    const fsdpck_select_options rest = {
        .struct_nbytes = sizeof rest, .part = -1, .objects = select.objects};
    o.select = &rest;
    const fsdpck_status st = compare_files(d, &o, selected, &left, err);
    if (st == FSDPCK_OK && group_rank(ctx->group) == 0)
        warn_left(&ctx->log, &left);
    text_release(&left.names);
    RETURN_IF(st);
    if (group_rank(ctx->group) == 0) {
        if (!selected) {
            diff_json_beside(d->a.src, d->b.src, &ctx->log);
            diff_metadata_warn(d->a.src, d->b.src, &ctx->log);
        }
        RETURN_IF(warn_nested(d, err));
    }
    note_compared(&ctx->log, d);
    return diff_others(d, &o, selected, err);
}

fsdpck_status fsdpck_diff_new(fsdpck_context *ctx, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                              const fsdpck_diff_options *options, fsdpck_diff **out,
                              fsdpck_error *err)
{
    RETURN_IF(diff_make(ctx, a, b, options, out, err));
    checkpoint_warn_lost_whole(a);
    checkpoint_warn_lost_whole(b);
    const fsdpck_status st = group_agree(ctx->group, diff_beside(*out, options, err), err);
    if (st != FSDPCK_OK) {
        fsdpck_diff_free(*out);
        *out = NULL;
    }
    return st;
}

void fsdpck_diff_free(fsdpck_diff *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->beside.count; i++)
        close_file(VEC_AT(&d->beside, diff_file, i));
    diff_free_one(d);
}

void fsdpck_diff_get_info(const fsdpck_diff *d, fsdpck_diff_info *info)
{
    fsdpck_diff_info all;
    diff_get_info_one(d, &all);
    all.state_files = d->beside.count;
    for (size_t i = 0; i < d->beside.count; i++) {
        fsdpck_diff_info one;
        diff_get_info_one(VEC_AT(&d->beside, const diff_file, i)->diff, &one);
        all.tensors_a += one.tensors_a;
        all.tensors_b += one.tensors_b;
        all.tensors_compared += one.tensors_compared;
        all.nbytes_compared += one.nbytes_compared;
        all.objects_compared += one.objects_compared;
        all.bytes_read += one.bytes_read;
        all.rows += one.rows;
        all.by_digest += one.by_digest;
        all.has_checksums = all.has_checksums || one.has_checksums;
        all.stopped = all.stopped || one.stopped;
    }
    struct_copy_out(info, &all, sizeof all);
}

/* 0: values were not compared. */
static uint64_t compared_count(const fsdpck_diff *d)
{
    return d->values_skipped ? 0 : d->pairs.count;
}

int fsdpck_diff_get_compared(const fsdpck_diff *d, uint64_t i, fsdpck_diff_row *row)
{
    fsdpck_diff_row all = {.struct_nbytes = sizeof all};
    const fsdpck_diff *of = d;
    for (size_t k = 0; i >= compared_count(of) && k < d->beside.count; k++) {
        const diff_file *f = VEC_AT(&d->beside, const diff_file, k);
        i -= compared_count(of);
        of = f->diff;
        all.file = f->name;
    }
    const bool equal = i < compared_count(of) && diff_fill_compared(of, i, &all);
    struct_copy_out(row, &all, sizeof all);
    return equal;
}

void fsdpck_diff_get_row(const fsdpck_diff *d, uint64_t i, fsdpck_diff_row *row)
{
    fsdpck_diff_row all = {.struct_nbytes = sizeof all};
    const fsdpck_diff *of = d;
    for (size_t k = 0; i >= of->rows.count && k < d->beside.count; k++) {
        const diff_file *f = VEC_AT(&d->beside, const diff_file, k);
        i -= of->rows.count;
        of = f->diff;
        all.file = f->name;
    }
    if (i < of->rows.count)
        diff_fill_row(of, i, &all);
    struct_copy_out(row, &all, sizeof all);
}
