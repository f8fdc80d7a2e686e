#include "base/similar.h"

#include <string.h>

size_t similar_distance(const char *a, const char *b)
{
    size_t row[SIMILAR_NBYTES_MAX + 1];
    const size_t na = strlen(a), nb = strlen(b);
    if (na > SIMILAR_NBYTES_MAX || nb > SIMILAR_NBYTES_MAX)
        return SIMILAR_NBYTES_MAX;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const char x = a[i - 1] == '_' ? '-' : a[i - 1];
            const size_t changed = diagonal + (x != b[j - 1]);
            const size_t less = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = changed < less ? changed : less;
        }
    }
    return row[nb];
}

size_t similar_limit(const char *word)
{
    return strlen(word) < 6 ? 2 : 3;
}
