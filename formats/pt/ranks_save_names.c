/* Whether the names of two kinds of rank files are those of two saves: 'epoch_1_rank_0.pt' and
 * 'epoch_2_rank_0.pt', but not 'model_rank_0.pt' and 'optim_rank_0.pt'. */
#include <string.h>
#include <strings.h>

#include "formats/pt/ranks_internal.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_one_of(const char *const *words, size_t count, const char *text, size_t nbytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == nbytes && strncasecmp(words[i], text, nbytes) == 0)
            return true;
    return false;
}

/* Only these words, and their numbers, differ between saves. */
static bool is_of_save(const char *text, size_t nbytes)
{
    static const char *const words[] = {"best",   "batch",  "checkpoint", "ckpt",      "epoch",
                                        "final",  "global", "iter",       "iteration", "last",
                                        "latest", "step",   "steps"};
    return is_one_of(words, sizeof words / sizeof *words, text, nbytes);
}

/* Their number belongs to a part of one save: an optimizer, a stage, a place in a mesh. */
static bool is_of_part(const char *text, size_t nbytes)
{
    static const char *const words[] = {
        "bf",   "chunk", "cp",        "dp",   "ep",    "expert", "float", "fp", "int", "local",
        "node", "optim", "optimizer", "part", "shard", "pp",     "stage", "tp", "vp",  "world"};
    return is_one_of(words, sizeof words / sizeof *words, text, nbytes);
}

void ranks_save_stem(const char *key, char *stem, size_t capacity)
{
    size_t nbytes = 0;
    bool of_part = false;
    for (size_t at = 0; key[at] != '\0';) {
        size_t end = at + 1;
        if (is_letter(key[at])) {
            while (is_letter(key[end]))
                end++;
            of_part = is_of_part(key + at, end - at);
        } else if (is_digit(key[at])) {
            while (is_digit(key[end]))
                end++;
        }
        const bool kept = is_letter(key[at])
                              ? !is_of_save(key + at, end - at)
                              : !strchr("_-.=", key[at]) && (of_part || !is_digit(key[at]));
        of_part = of_part && !is_digit(key[at]);
        if (kept && nbytes + (end - at) + 2 <= capacity) {
            memcpy(stem + nbytes, key + at, end - at);
            nbytes += end - at;
            stem[nbytes++] = '_';
        }
        at = end;
    }
    stem[nbytes < capacity ? nbytes : capacity - 1] = '\0';
}

fsdpck_status ranks_check_saves(const ranks_list *l, fsdpck_error *err)
{
    for (size_t i = 0; i < l->families.count; i++) {
        const ranks_family *b = VEC_AT(&l->families, const ranks_family, i);
        for (size_t k = 0; b->trainer[0] == '\0' && k < i; k++) {
            const ranks_family *a = VEC_AT(&l->families, const ranks_family, k);
            if (strcmp(a->stem, b->stem) != 0)
                continue;
            return FAIL_WITH(
                err, BADINPUT, RANK_MIXED,
                ("rank files of two saves: their names differ only in a number or in words such as "
                 "last"),
                (found, "names like '%s{r}%s', and like '%s{r}%s'", a->prefix, a->suffix, b->prefix,
                 b->suffix),
                (next,
                 "give --source-rank-pattern '%s{r}%s' or '%s{r}%s', or move the files of one save",
                 a->prefix, a->suffix, b->prefix, b->suffix));
        }
    }
    return FSDPCK_OK;
}
