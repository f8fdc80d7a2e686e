#include "open/stated_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { PAIRS_MOST = 4, DIGITS_MOST = 6, TOTAL_MOST = 1 << 16 };

/* A number and its total in a name. */
typedef struct stated_pair {
    size_t at, nbytes; /* of the number's digits */
    uint64_t number, total;
    bool is_rank; /* after "rank" */
} stated_pair;

typedef struct stated_name {
    stated_pair pairs[PAIRS_MOST];
    unsigned count;
} stated_name;

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

static bool take_number(const char *text, uint64_t *number)
{
    const size_t n = digits(text);
    *number = strtoull(text, NULL, 10);
    return n > 0 && n <= DIGITS_MOST;
}

/* "-of-", "_of_", ".of." or "of", also in capitals: its bytes; 0 if it is not. */
static size_t of_nbytes(const char *at)
{
    const size_t separators = *at != '\0' && strchr("-_.", *at) != NULL;
    const char *of = at + separators;
    if ((strncmp(of, "of", 2) != 0 && strncmp(of, "OF", 2) != 0) ||
        (separators > 0 && of[2] != *at))
        return 0;
    return 2 + 2 * separators;
}

/* "rank_world_size=": picotron writes "0_2" after it. */
static bool follows_world_size(const char *name, size_t at)
{
    static const char word[] = "rank_world_size";
    const size_t n = sizeof word - 1;
    return at > n && strchr("=_-", name[at - 1]) != NULL &&
           strncmp(name + at - 1 - n, word, n) == 0;
}

static bool follows_rank(const char *name, size_t at)
{
    const size_t end = at > 0 && strchr("-_.=", name[at - 1]) != NULL ? at - 1 : at;
    return end >= 4 && strncmp(name + end - 4, "rank", 4) == 0;
}

/* The word before the number counts something else than files. */
static bool counts_other(const char *name, size_t at)
{
    static const char *const words[] = {"epoch", "ep",    "fold",  "step",  "iter", "iteration",
                                        "round", "trial", "split", "phase", "run",  "seed"};
    size_t end = at, begin;
    if (end > 0 && strchr("-_.=", name[end - 1]) != NULL)
        end--;
    begin = end;
    while (begin > 0 && ((name[begin - 1] >= 'a' && name[begin - 1] <= 'z') ||
                         (name[begin - 1] >= 'A' && name[begin - 1] <= 'Z')))
        begin--;
    return TEXT_IS_IN(name + begin, end - begin, words);
}

static void parse_name(const char *name, stated_name *s)
{
    *s = (stated_name){0};
    for (size_t at = 0; name[at] != '\0' && s->count < PAIRS_MOST;) {
        stated_pair p = {.at = at, .nbytes = digits(name + at)};
        if (p.nbytes == 0) {
            at++;
            continue;
        }
        const char *after = name + at + p.nbytes;
        const size_t between = follows_world_size(name, at) && *after == '_' ? 1 : of_nbytes(after);
        at += p.nbytes;
        if (between == 0 || !take_number(name + p.at, &p.number) ||
            !take_number(after + between, &p.total) || p.number > p.total || p.total > TOTAL_MOST ||
            counts_other(name, p.at))
            continue;
        p.is_rank = between == 1 || follows_rank(name, p.at);
        at += between + digits(after + between);
        s->pairs[s->count++] = p;
    }
}

uint64_t stated_file_count(const char *name)
{
    stated_name s;
    uint64_t total = 1;
    parse_name(name, &s);
    for (unsigned i = 0; i < s.count; i++)
        total = total > TOTAL_MOST ? total : total * s.pairs[i].total;
    return total > 1 ? total : 0;
}

/* ---- a folder ---- */

typedef struct stated_search {
    const char *path;    /* that was given */
    const char *to_read; /* its format, if it is a folder that a reader takes; otherwise NULL */
    strtab checked;      /* names without the number */
    uint64_t existing, total;
    char missing[512]; /* the first one */
} stated_search;

static fsdpck_status put_number(text_buf *text, const char *path, const stated_pair *p,
                                uint64_t number, fsdpck_error *err)
{
    text->nbytes = 0;
    text_append(text, path, p->at);
    text_printf(text, "%0*" PRIu64, (int)p->nbytes, number);
    text_puts(text, path + p->at + p->nbytes);
    return text_check(text, err);
}

static fsdpck_status exists(const char *path, const stated_pair *p, uint64_t number, bool *is,
                            fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    path_kind kind = PATH_ABSENT;
    fsdpck_status st = put_number(&text, path, p, number, err);
    if (st == FSDPCK_OK)
        st = path_probe(NULL, text.text, &kind, NULL, err);
    *is = kind != PATH_ABSENT;
    text_release(&text);
    return st;
}

/* Numbers begin with 0 or 1. The file itself, or another that exists, shows which; otherwise those of ranks begin with
 * 0. */
static fsdpck_status first_number(const char *path, const stated_pair *p, uint64_t *first,
                                  fsdpck_error *err)
{
    bool has_zero = p->number == 0, has_last = p->number == p->total;
    if (!has_zero && !has_last)
        RETURN_IF(exists(path, p, 0, &has_zero, err));
    if (!has_zero && !has_last)
        RETURN_IF(exists(path, p, p->total, &has_last, err));
    *first = has_last || (!has_zero && !p->is_rank) ? 1 : 0;
    return FSDPCK_OK;
}

static fsdpck_status count_files(stated_search *s, const char *path, const stated_pair *p,
                                 fsdpck_error *err)
{
    uint64_t first;
    RETURN_IF(first_number(path, p, &first, err));
    s->total = p->total;
    s->existing = 0;
    s->missing[0] = '\0';
    for (uint64_t i = first; i < first + p->total; i++) {
        bool is;
        RETURN_IF(exists(path, p, i, &is, err));
        s->existing += is;
        if (is || s->missing[0] != '\0')
            continue;
        text_buf text = {.limit_bytes = UINT32_MAX};
        RETURN_IF(put_number(&text, path, p, i, err));
        snprintf(s->missing, sizeof s->missing, "%s", text_file_name(text.text));
        text_release(&text);
    }
    return FSDPCK_OK;
}

static fsdpck_status fail_missing(const stated_search *s, const char *path, fsdpck_error *err)
{
    const uint64_t missing = s->total - s->existing;
    FAIL_WITH(err, BADINPUT, FILE_MISSING,
              ("files are missing: '%s'%s", s->missing, missing > 1 ? " and others" : ""),
              (path, s->path),
              (expected, "%" PRIu64 " files, by the name '%s'", s->total, text_file_name(path)),
              (found, "%" PRIu64 " of them", s->existing));
    if (s->to_read != NULL)
        error_next(err, "copy the missing files; to read the others, give --source-format %s",
                   s->to_read);
    else
        error_next(err, "copy the missing files; to read only '%s', give its path",
                   text_file_name(path));
    return FSDPCK_BADINPUT;
}

/* is_known: the reader of the files checks this total. */
static fsdpck_status check_pair(stated_search *s, const char *path, const stated_pair *p,
                                bool is_known, fsdpck_error *err)
{
    text_buf key = {.limit_bytes = UINT32_MAX};
    uint32_t id;
    if (p->total < 2 || is_known)
        return FSDPCK_OK;
    text_append(&key, path, p->at);
    text_puts(&key, "*");
    text_puts(&key, path + p->at + p->nbytes);
    const size_t before = strtab_count(&s->checked);
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&s->checked, key.text, key.nbytes, &id, err);
    text_release(&key);
    if (st != FSDPCK_OK || strtab_count(&s->checked) == before)
        return st;
    RETURN_IF(count_files(s, path, p, err));
    return s->existing < s->total ? fail_missing(s, path, err) : FSDPCK_OK;
}

static fsdpck_status check_path(stated_search *s, const char *path, fsdpck_error *err)
{
    const char *name = text_file_name(path);
    const uint64_t known = format_file_count(name);
    stated_name n;
    parse_name(name, &n);
    for (unsigned i = 0; i < n.count; i++) {
        stated_pair p = n.pairs[i];
        p.at += (size_t)(name - path);
        RETURN_IF(check_pair(s, path, &p, i + 1 == n.count && known == p.total, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_paths(stated_search *s, const fsdpck_checkpoint *c, fsdpck_error *err)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    if (!c->probe.is_folder)
        return check_path(s, c->probe.path, err);
    for (size_t i = 0; i < catalogue_file_count(read); i++) {
        char *path = folder_path_join(
            c->probe.path, catalogue_name(read, catalogue_file(read, (uint32_t)i)->path));
        const fsdpck_status st =
            path == NULL ? error_set_nomem(err, sizeof *path) : check_path(s, path, err);
        free(path);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

fsdpck_status stated_files_check(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    stated_search s = {.path = c->entered_from != NULL ? c->entered_from : c->path,
                       .to_read = c->probe.is_folder ? c->format->name : NULL};
    if (c->remote_files != NULL || (!c->probe.is_folder && c->entered_from == NULL))
        return FSDPCK_OK;
    strtab_init(&s.checked, NULL);
    const fsdpck_status st = check_paths(&s, c, err);
    strtab_release(&s.checked);
    return st;
}

fsdpck_status stated_file_check(const char *path, fsdpck_error *err)
{
    stated_search s = {.path = path};
    path_kind kind;
    RETURN_IF(path_probe(NULL, path, &kind, NULL, err));
    if (kind != PATH_FILE)
        return FSDPCK_OK;
    strtab_init(&s.checked, NULL);
    const fsdpck_status st = check_path(&s, path, err);
    strtab_release(&s.checked);
    return st;
}
