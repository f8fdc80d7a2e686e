#include "formats/safetensors/shard_name.h"

#include <string.h>

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
    return take_suffix(name, &n, ".safetensors");
}

bool shard_name_parse(const char *name, shard_name *parts)
{
    return shard_name_parse_as(name, ".safetensors", parts);
}

/* End of the count: the text after it is `suffix`, or a variant (".fp16") and `suffix`. */
static bool find_count_end(const char *name, const char *suffix, size_t *end)
{
    size_t n = strlen(name);
    if (!take_suffix(name, &n, suffix))
        return false;
    const char *count = NULL;
    for (const char *at = strstr(name, "-of-"); at != NULL; at = strstr(at + 1, "-of-"))
        count = at + strlen("-of-");
    if (count == NULL)
        return false;
    *end = (size_t)(count - name) + strspn(count, "0123456789");
    return *end == n || (*end < n && name[*end] == '.');
}

/* Another separator than "-" only before a number with zeros. */
static bool take_separator(const char *name, size_t *nbytes, size_t digits)
{
    if (take_suffix(name, nbytes, "-"))
        return true;
    return digits >= PADDED_DIGITS &&
           (*nbytes == 0 || take_suffix(name, nbytes, "_") || take_suffix(name, nbytes, "."));
}

bool shard_name_parse_as(const char *name, const char *suffix, shard_name *parts)
{
    size_t n;
    *parts = (shard_name){0};
    if (!find_count_end(name, suffix, &n))
        return false;
    parts->tail_at = n;
    parts->is_variant = strcmp(name + n, suffix) != 0;
    if (!take_number(name, &n, 1, &parts->file_count) || !take_suffix(name, &n, "-of-"))
        return false;
    const size_t end = n;
    if (!take_number(name, &n, 1, &parts->file_number))
        return false;
    parts->number_at = n;
    if (!take_separator(name, &n, end - n) || parts->file_count == 0 ||
        parts->file_number > parts->file_count)
        return false;
    parts->prefix_nbytes = n;
    uint32_t rank;
    if (parts->file_number > 0 && !parts->is_variant && name[n] == '-' &&
        end - n > RANK_DIGITS_LEAST && take_suffix(name, &n, "-model") &&
        take_number(name, &n, RANK_DIGITS_LEAST, &rank) && take_suffix(name, &n, "shard-") &&
        n == 0)
        parts->rank_number = rank;
    return true;
}

bool shard_name_same_text(const char *name, const shard_name *parts, const char *other,
                          const shard_name *of_other)
{
    return parts->number_at == of_other->number_at && memcmp(name, other, parts->number_at) == 0 &&
           strcmp(name + parts->tail_at, other + of_other->tail_at) == 0;
}

bool shard_name_same_set(const char *name, const shard_name *parts, const char *other,
                         const shard_name *of_other)
{
    return parts->file_count == of_other->file_count &&
           shard_name_same_text(name, parts, other, of_other);
}
