#include "similar_option.h"

#include <stdio.h>
#include <string.h>

#include "base/similar.h"

static bool has_row(const opt_row *const *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i]->name, name) == 0)
            return true;
    return false;
}

const char *similar_option(const opt_row *const *rows, size_t count, const char *word)
{
    static const struct {
        const char *other, *option, *text;
    } others[] = {
        {"gpus", "world-size", "world-size"},
        {"num-gpus", "world-size", "world-size"},
        {"nproc", "world-size", "world-size"},
        {"ranks", "world-size", "world-size"},
        {"num-ranks", "world-size", "world-size"},
        {"shards", "world-size", "world-size"},
        {"ranks", "source-ranks", "source-ranks"},
        {"num-ranks", "source-ranks", "source-ranks"},
        {"tp", "mesh", "mesh"},
        {"precision", "dtype", "dtype"},
        {"cast", "dtype", "dtype"},
        {"filter", "keys", "keys"},
        {"include", "keys", "keys"},
        {"ignore", "exclude", "exclude"},
        {"overwrite", "force", "force"},
        {"yes", "force", "force"},
        {"jobs", "threads", "threads"},
        {"workers", "threads", "threads"},
        {"shard-size", "max-shard-size", "max-shard-size"},
        {"output-format", "format", "format"},
        {"input-format", "source-format", "source-format"},
        {"tolerance", "atol", "atol"},
        {"checksum", "level", "level checksum"},
        {"checksums", "level", "level checksum"},
        {"full", "level", "level checksum"},
        {"quick", "level", "level quick"},
        {"compare", "expect", "expect"},
    };
    char name[SIMILAR_NBYTES_MAX + 2];
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (similar_distance(name, others[i].other) == 0 && has_row(rows, count, others[i].option))
            return others[i].text;
    similar_search search = similar_to(name);
    for (size_t i = 0; i < count; i++)
        (void)similar_try(&search, rows[i]->name);
    return search.best;
}

bool similar_choice(const char *text, const char *choices, char *word, size_t capacity)
{
    char choice[32];
    if (text[strspn(text, "0123456789.")] ==
        '\0') /* a release of torch is no misspelling of another */
        return false;
    similar_search search = similar_to(text);
    for (const char *at = choices; *at != '\0'; at += *at == '|') {
        const size_t n = strcspn(at, "|");
        snprintf(choice, sizeof choice, "%.*s", (int)n, at);
        if (similar_try(&search, choice))
            snprintf(word, capacity, "%s", choice);
        at += n;
    }
    return search.best != NULL;
}
