/* A file of one model-parallel rank (Meta's consolidated.01.pth, mp_rank_01_model_states.pt of
 * DeepSpeed and Megatron): the files of the other ranks are missing, or are not read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "open/checkpoint.h"

enum { NUMBERS_MAX = 4, DIGITS_MAX = 5 };

/* A number of a rank in a path. */
typedef struct rank_number {
    size_t at, nbytes;
    unsigned rank;
} rank_number;

typedef struct rank_numbers {
    rank_number list[NUMBERS_MAX];
    unsigned count;
} rank_numbers;

static size_t add_number(rank_numbers *n, const char *path, size_t at)
{
    rank_number number = {.at = at};
    number.nbytes = strspn(path + at, "0123456789");
    for (size_t i = 0; i < number.nbytes && i < DIGITS_MAX; i++)
        number.rank = number.rank * 10 + (unsigned)(path[at + i] - '0');
    if (number.nbytes > 0 && number.nbytes <= DIGITS_MAX && n->count < NUMBERS_MAX)
        n->list[n->count++] = number;
    return at + number.nbytes;
}

/* consolidated.01.pth */
static void find_consolidated(rank_numbers *n, const char *path, size_t name_at)
{
    static const char prefix[] = "consolidated.";
    if (strncmp(path + name_at, prefix, sizeof prefix - 1) != 0)
        return;
    const size_t end = add_number(n, path, name_at + sizeof prefix - 1);
    if (strcmp(path + end, ".pth") != 0)
        n->count = 0;
}

/* mp_rank_01, mp_rank_01_003 (the second: pipeline stage), zero_pp_rank_1_mp_rank_00. */
static void find_ranks(rank_numbers *n, const char *path, size_t begin, size_t end)
{
    static const char *const prefixes[] = {"mp_rank_", "zero_pp_rank_", "bf16_zero_pp_rank_"};
    bool known = false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        known = known || strncmp(path + begin, prefixes[i], strlen(prefixes[i])) == 0;
    for (const char *word = path + begin;
         known && (word = strstr(word, "pp_rank_")) != NULL && (size_t)(word - path) < end; word++)
        (void)add_number(n, path, (size_t)(word - path) + strlen("pp_rank_"));
    for (const char *word = path + begin;
         known && (word = strstr(word, "mp_rank_")) != NULL && (size_t)(word - path) < end;
         word++) {
        const size_t at = add_number(n, path, (size_t)(word - path) + strlen("mp_rank_"));
        if (path[at] == '_' && path[at + 1] >= '0' && path[at + 1] <= '9')
            (void)add_number(n, path, at + 1);
    }
}

static void find_numbers(rank_numbers *n, const char *path)
{
    size_t name_at = 0, parent_at = 0;
    for (size_t i = 0; path[i] != '\0'; i++)
        if (path[i] == '/' && path[i + 1] != '/') {
            parent_at = name_at;
            name_at = i + 1;
        }
    *n = (rank_numbers){0};
    find_consolidated(n, path, name_at);
    find_ranks(n, path, name_at, strlen(path));
    if (n->count == 0 && parent_at < name_at)
        find_ranks(n, path, parent_at, name_at);
}

static bool put_sibling(text_buf *sibling, const char *path, const rank_number *n, unsigned rank)
{
    sibling->nbytes = 0;
    text_append(sibling, path, n->at);
    text_printf(sibling, "%0*u", (int)n->nbytes, rank);
    text_puts(sibling, path + n->at + n->nbytes);
    return !sibling->failed && sibling->text != NULL;
}

typedef struct sibling_counts {
    uint64_t missing, ignored;
    char first_missing[512], first_ignored[512];
} sibling_counts;

static void count_one(sibling_counts *s, const char *sibling, bool exists)
{
    uint64_t *const count = exists ? &s->ignored : &s->missing;
    if (++*count == 1)
        snprintf(exists ? s->first_ignored : s->first_missing, sizeof s->first_missing, "%s",
                 sibling);
}

/* All lower ranks, and higher ones as far as they exist. */
static fsdpck_status count_siblings(const char *path, const rank_number *n, sibling_counts *s,
                                    fsdpck_error *err)
{
    text_buf sibling = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    bool exists = true;
    for (unsigned rank = 0; st == FSDPCK_OK && (rank <= n->rank || exists); rank++) {
        path_kind kind = PATH_ABSENT;
        if (rank == n->rank)
            continue;
        st = put_sibling(&sibling, path, n, rank) ? path_probe(NULL, sibling.text, &kind, NULL, err)
                                                  : text_check(&sibling, err);
        exists = kind != PATH_ABSENT;
        if (st == FSDPCK_OK && (exists || rank < n->rank))
            count_one(s, sibling.text, exists);
    }
    text_release(&sibling);
    return st;
}

fsdpck_status checkpoint_check_model_parallel(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    const char *const path = c->probe.path;
    sibling_counts s = {0};
    rank_numbers n;
    if (c->probe.is_folder)
        return FSDPCK_OK;
    find_numbers(&n, path);
    for (unsigned i = 0; i < n.count; i++)
        RETURN_IF(count_siblings(path, &n.list[i], &s, err));
    if (s.missing > 0)
        return FAIL_WITH(
            err, BADINPUT, FILE_MISSING, ("files of model-parallel ranks are missing"),
            (path, path), (expected, "'%s'", s.first_missing),
            (found, "%" PRIu64 " missing file%s", s.missing, s.missing == 1 ? "" : "s"),
            (next, "to read only this file, give its path and --source-format %s",
             c->format->name));
    bool read_together = false; /* FILE-OF-SET */
    (void)format_is_rank_file(text_file_name(path), &read_together);
    if (s.ignored > 0 && !read_together)
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_BESIDE,
                 "merge the files of all ranks with the program that wrote them",
                 "reading the file of one model-parallel rank, '%s'; ignoring '%s'%s beside it",
                 path, s.first_ignored, s.ignored > 1 ? " and others" : "");
    return FSDPCK_OK;
}
