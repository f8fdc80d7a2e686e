/* text.h: comparisons of names, which need not end with NUL (a text of 0 bytes may be NULL), and the plural. */
#ifndef FSDPCK_BASE_TEXT_H
#define FSDPCK_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool text_ends_with(const char *text, size_t nbytes, const char *end)
{
    const size_t n = strlen(end);
    return nbytes >= n && memcmp(text + nbytes - n, end, n) == 0;
}

/* Whether a dotted text ends with the word. */
static inline bool text_is_last_word(const char *text, size_t nbytes, const char *word)
{
    const size_t n = strlen(word);
    return text_ends_with(text, nbytes, word) && (nbytes == n || text[nbytes - n - 1] == '.');
}

static inline bool text_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether the name is the key, or below it: "model" and "model.w" of "model". */
static inline bool text_has_key(const char *name, const char *key)
{
    const size_t n = strlen(key);
    return strncmp(name, key, n) == 0 && (name[n] == '.' || name[n] == '\0');
}

/* Parts of a relative path: 0 for "", 2 for "a/b". */
static inline unsigned text_path_depth(const char *path)
{
    unsigned depth = path[0] != '\0';
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/'))
        depth++;
    return depth;
}

/* The last part of a path. */
static inline const char *text_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static inline bool text_equal(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    return a_nbytes == b_nbytes && (a_nbytes == 0 || memcmp(a, b, a_nbytes) == 0);
}

static inline bool text_is(const char *text, size_t nbytes, const char *word)
{
    return text_equal(text, nbytes, word, strlen(word));
}

static inline bool text_is_one_of(const char *text, size_t nbytes, const char *const *words,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text_is(text, nbytes, words[i]))
            return true;
    return false;
}

/* The same for an array of words. */
#define TEXT_IS_IN(text, nbytes, words) \
    text_is_one_of(text, nbytes, words, sizeof(words) / sizeof *(words))

/* Below, equal to or above 0, as strcmp orders texts without NUL. */
static inline int text_order(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const size_t shorter = a_nbytes < b_nbytes ? a_nbytes : b_nbytes;
    const int order = shorter == 0 ? 0 : memcmp(a, b, shorter);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

/* The ending of a noun after its count: "%zu tensor%s". */
static inline const char *text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* For qsort and bsearch over `const char *`. */
static inline int text_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
