/* similar.h: the known word that an unknown one may be a misspelling of.
 *
 *     size_t least = similar_limit(word);
 *     for each known word:
 *         if (similar_distance(word, known) < least) ...   // and lower `least` to that distance
 */
#ifndef FSDPCK_BASE_SIMILAR_H
#define FSDPCK_BASE_SIMILAR_H

#include <stddef.h>

/* Longer words are similar to none. */
#define SIMILAR_NBYTES_MAX 32u

/* Edits from a to b: insert, delete or replace a byte, or exchange two neighbours; '_' equals '-'. SIMILAR_NBYTES_MAX if
 * a word is longer than that. */
size_t similar_distance(const char *a, const char *b);
/* At this distance from `word`, a word is a different one. */
size_t similar_limit(const char *word);

#endif
