#include "formats/safetensors/shard_name.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define SAFETENSORS ".safetensors"

/* Of the rank; the other numbers may be written without zeros, as in "model-1-of-3". */
enum { RANK_DIGITS_LEAST = 5, PADDED_DIGITS = 5, DIGITS_MOST = 9 };

/* Takes `suffix` from the end of name[0..*nbytes). */
static bool take_suffix(const char *name, size_t *nbytes, const char *suffix)
{
    const size_t n = strlen(suffix);
    if (*nbytes < n || memcmp(name + *nbytes - n, suffix, n) != 0)
        return false;
    *nbytes -= n;
    return true;
}

static bool take_number(const char *name, size_t *nbytes, size_t digits_least, uint32_t *number)
{
    size_t at = *nbytes;
    uint32_t n = 0;
    uint32_t ten = 1;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9' && *nbytes - at < DIGITS_MOST) {
        n += ten * (uint32_t)(name[at - 1] - '0');
        ten *= 10;
        at--;
    }
    if (*nbytes - at < digits_least)
        return false;
    *nbytes = at;
    *number = n;
    return true;
}

bool shard_name_is_safetensors(const char *name)
{
    size_t n = strlen(name);
    return take_suffix(name, &n, SAFETENSORS);
}

bool shard_name_parse(const char *name, shard_name *parts)
{
    return shard_name_parse_as(name, SAFETENSORS, parts);
}

/* --- the forms --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "-of-", "_of_", ".of." or "of", also in capitals, between two digits: its bytes; 0 if it is not. */
static size_t of_nbytes(const char *name, size_t at)
{
    const size_t separators = name[at] != '\0' && strchr("-_.", name[at]) != NULL;
    const char *of = name + at + separators;
    if (at == 0 || !is_digit(name[at - 1]) ||
        (strncmp(of, "of", 2) != 0 && strncmp(of, "OF", 2) != 0) ||
        (separators > 0 && of[2] != name[at]) || !is_digit(of[2 + separators]))
        return 0;
    return 2 + 2 * separators;
}

/* Of the last one. */
static bool find_of(const char *name, size_t *at, size_t *nbytes)
{
    *nbytes = 0;
    for (size_t i = 0; name[i] != '\0'; i++) {
        const size_t n = of_nbytes(name, i);
        if (n == 0)
            continue;
        *at = i;
        *nbytes = n;
    }
    return *nbytes > 0;
}

/* Another separator than "-" only before a number with zeros. */
static bool take_separator(const char *name, size_t *nbytes, size_t digits)
{
    if (take_suffix(name, nbytes, "-"))
        return true;
    return digits >= PADDED_DIGITS &&
           (*nbytes == 0 || take_suffix(name, nbytes, "_") || take_suffix(name, nbytes, "."));
}

static void find_rank(const char *name, shard_name *parts, size_t digits)
{
    size_t n = parts->prefix_nbytes;
    uint32_t rank;
    if (parts->file_number > 0 && !parts->is_variant && name[n] == '-' &&
        digits >= RANK_DIGITS_LEAST && take_suffix(name, &n, "-model") &&
        take_number(name, &n, RANK_DIGITS_LEAST, &rank) && take_suffix(name, &n, "shard-") &&
        n == 0)
        parts->rank_number = rank;
}

/* model-00001-of-00003, model_1_of_3, part1of3 */
static bool parse_of(const char *name, const char *suffix, shard_name *parts)
{
    size_t n, of = 0, nbytes;
    if (!find_of(name, &of, &nbytes))
        return false;
    parts->count_at = of + nbytes;
    parts->tail_at = parts->count_at + strspn(name + parts->count_at, "0123456789");
    parts->is_variant = strcmp(name + parts->tail_at, suffix) != 0;
    n = parts->tail_at;
    if (name[n] != '.' || !take_number(name, &n, 1, &parts->file_count) || n != parts->count_at)
        return false;
    n = of;
    if (!take_number(name, &n, 1, &parts->file_number))
        return false;
    parts->number_at = n;
    const size_t digits = of - n;
    if (memcmp(name + of, "-of-", nbytes) == 0 && !take_separator(name, &n, digits))
        return false;
    parts->prefix_nbytes = n;
    find_rank(name, parts, digits);
    return parts->file_count > 0 && parts->file_number <= parts->file_count;
}

static bool take_word(const char *name, size_t *nbytes, const char *word, char separator)
{
    if (*nbytes == 0 || name[*nbytes - 1] != separator)
        return false;
    --*nbytes;
    return take_suffix(name, nbytes, word);
}

/* model_world_size_3_rank_0 */
static bool parse_rank(const char *name, size_t n, shard_name *parts)
{
    if (!take_number(name, &n, 1, &parts->file_number) || n == 0)
        return false;
    const char separator = name[n - 1];
    parts->number_at = n;
    if (strchr("-_.", separator) == NULL || !take_word(name, &n, "rank", separator) || n == 0 ||
        name[--n] != separator || !take_number(name, &n, 1, &parts->file_count))
        return false;
    parts->count_at = n;
    return take_word(name, &n, "size", separator) && take_word(name, &n, "world", separator);
}

/* model0-mp4 */
static bool parse_mp(const char *name, size_t n, shard_name *parts)
{
    if (!take_number(name, &n, 1, &parts->file_count))
        return false;
    parts->count_at = n;
    if (!take_suffix(name, &n, "-mp") || !take_number(name, &n, 1, &parts->file_number))
        return false;
    parts->number_at = n;
    return true;
}

/* The reader of rank files takes these names with other suffixes. */
static bool parse_numbered_from_zero(const char *name, const char *suffix, shard_name *parts)
{
    size_t n = strlen(name);
    if (strcmp(suffix, SAFETENSORS) != 0 || !take_suffix(name, &n, suffix))
        return false;
    *parts = (shard_name){.tail_at = n, .from_zero = true};
    if (!parse_rank(name, n, parts)) {
        *parts = (shard_name){.tail_at = n, .from_zero = true, .is_slice = true};
        if (!parse_mp(name, n, parts))
            return false;
    }
    parts->prefix_nbytes = parts->number_at < parts->count_at ? parts->number_at : parts->count_at;
    return parts->file_number < parts->file_count;
}

bool shard_name_parse_as(const char *name, const char *suffix, shard_name *parts)
{
    *parts = (shard_name){0};
    if (!text_ends_with(name, strlen(name), suffix))
        return false;
    if (parse_of(name, suffix, parts))
        return true;
    return parse_numbered_from_zero(name, suffix, parts);
}

/* --- ranks --- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A number after the word, which stands alone: not in "frank_7b". */
static bool rank_after(const char *name, size_t word_at, size_t word_nbytes, uint32_t *rank)
{
    const char *at = name + word_at + word_nbytes;
    if (word_at > 0 && (is_letter(name[word_at - 1]) || is_digit(name[word_at - 1])))
        return false;
    at += *at != '\0' && strchr("-_.=", *at) != NULL;
    size_t n = strspn(at, "0123456789");
    const char after = at[n];
    if (n == 0 || n > DIGITS_MOST || after == '\0' || strchr("-_.=", after) == NULL)
        return false;
    n += (size_t)(at - name);
    return take_number(name, &n, 1, rank);
}

bool shard_name_has_rank(const char *name, uint32_t *rank)
{
    static const char *const words[] = {"rank", "tp", "shard"};
    shard_name parts;
    /* The rank of a low-rank adapter is no process. */
    if (!shard_name_is_safetensors(name) || shard_name_parse(name, &parts) ||
        strstr(name, "lora") != NULL || strstr(name, "adapter") != NULL)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (const char *at = name; (at = strstr(at, words[i])) != NULL; at++)
            if (rank_after(name, (size_t)(at - name), strlen(words[i]), rank))
                return true;
    return false;
}

bool shard_name_same_text(const char *name, const shard_name *parts, const char *other,
                          const shard_name *of_other)
{
    const char *texts[2][3];
    size_t nbytes[2][3];
    for (unsigned i = 0; i < 2; i++) {
        const char *text = i == 0 ? name : other;
        const shard_name *p = i == 0 ? parts : of_other;
        const bool count_first = p->count_at < p->number_at;
        const size_t first = count_first ? p->count_at : p->number_at;
        const size_t second = count_first ? p->number_at : p->count_at;
        const size_t between = first + strspn(text + first, "0123456789");
        texts[i][0] = text;
        nbytes[i][0] = first;
        texts[i][1] = text + between;
        nbytes[i][1] = second - between;
        texts[i][2] = text + p->tail_at;
        nbytes[i][2] = strlen(text + p->tail_at);
    }
    for (unsigned k = 0; k < 3; k++)
        if (nbytes[0][k] != nbytes[1][k] || memcmp(texts[0][k], texts[1][k], nbytes[0][k]) != 0)
            return false;
    return true;
}

bool shard_name_same_set(const char *name, const shard_name *parts, const char *other,
                         const shard_name *of_other)
{
    return parts->file_count == of_other->file_count &&
           shard_name_same_text(name, parts, other, of_other);
}

bool shard_name_is_of_models(const char *name)
{
    static const char word[] = "model_";
    if (strncmp(name, word, sizeof word - 1) != 0)
        return false;
    name += sizeof word - 1;
    const size_t digits = strspn(name, "0123456789");
    return digits > 0 && strcmp(name + digits, ".safetensors") == 0;
}

/* "-00001-of-00002" at `at`, of 5 digits each. */
static bool is_numbers(const char *at)
{
    static const char digits[] = "0123456789", of[] = "-of-";
    return at[0] == '-' && strspn(at + 1, digits) == 5 && strncmp(at + 6, of, 4) == 0 &&
           strspn(at + 10, digits) == 5;
}

bool shard_name_index(const char *name, char *index, size_t capacity)
{
    enum { NUMBERS_NBYTES = 15 };
    static const char *const suffixes[] = {".safetensors", ".bin"};
    const char *at = name, *suffix = NULL;
    while (*at != '\0' && !is_numbers(at))
        at++;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (text_ends_with(name, strlen(name), suffixes[i]))
            suffix = name + strlen(name) - strlen(suffixes[i]);
    if (*at == '\0' || at == name || suffix == NULL || suffix < at + NUMBERS_NBYTES)
        return false;
    const char *variant = at + NUMBERS_NBYTES, *end = suffix;
    size_t prefix_nbytes = (size_t)(at - name);
    const char *dot = memchr(name, '.', prefix_nbytes);
    if (variant == end && dot != NULL) {
        variant = dot;
        end = at;
        prefix_nbytes = (size_t)(dot - name);
    }
    const int n = snprintf(index, capacity, "%.*s%s.index%.*s.json", (int)prefix_nbytes, name,
                           suffix, (int)(end - variant), variant);
    return n > 0 && (size_t)n < capacity && (variant == end || variant[0] == '.');
}
