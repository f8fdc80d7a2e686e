/* similar.h: the known word that an unknown one may be a misspelling of.
 *
 *     similar_search s = similar_to(word);
 *     for each known word:
 *         similar_try(&s, known);
 *     if (s.best != NULL) ...
 */
#ifndef FSDPCK_BASE_SIMILAR_H
#define FSDPCK_BASE_SIMILAR_H

#include <stdbool.h>
#include <stddef.h>

/* Longer words are similar to none. */
#define SIMILAR_NBYTES_MAX 32u

/* Edits from a to b: insert, delete or replace a byte, or exchange two neighbours; '_' equals '-'. SIMILAR_NBYTES_MAX if
 * a word is longer than that. */
size_t similar_distance(const char *a, const char *b);
/* At this distance from `word`, a word is a different one. */
size_t similar_limit(const char *word);

typedef struct similar_search {
    const char *word, *best; /* best: borrowed from similar_try; NULL: none is similar */
    size_t least;
} similar_search;

similar_search similar_to(const char *word);
/* Returns whether `known` is now the best. */
bool similar_try(similar_search *s, const char *known);

#endif
