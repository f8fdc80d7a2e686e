#include "base/similar.h"

#include <string.h>

static char plain(char c)
{
    return c == '_' ? '-' : c;
}

size_t similar_distance(const char *a, const char *b)
{
    size_t rows[3][SIMILAR_NBYTES_MAX + 1];
    const size_t na = strlen(a), nb = strlen(b);
    if (na > SIMILAR_NBYTES_MAX || nb > SIMILAR_NBYTES_MAX)
        return SIMILAR_NBYTES_MAX;
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *const row = rows[i % 3];
        const size_t *const above = rows[(i - 1) % 3], *const before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const char x = plain(a[i - 1]), y = plain(b[j - 1]);
            size_t least = above[j - 1] + (x != y);
            least = above[j] + 1 < least ? above[j] + 1 : least;
            least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            if (i > 1 && j > 1 && x == plain(b[j - 2]) && plain(a[i - 2]) == y &&
                before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            row[j] = least;
        }
    }
    return rows[na % 3][nb];
}

size_t similar_limit(const char *word)
{
    return strlen(word) < 6 ? 2 : 3;
}

similar_search similar_to(const char *word)
{
    return (similar_search){.word = word, .least = similar_limit(word)};
}

bool similar_try(similar_search *s, const char *known)
{
    const size_t distance = similar_distance(s->word, known);
    if (distance >= s->least)
        return false;
    s->least = distance;
    s->best = known;
    return true;
}
