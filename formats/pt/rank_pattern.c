#include "formats/pt/rank_pattern.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

static fsdpck_status bad_pattern(const char *pattern, const char *expected, fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, NONE, ("rank pattern does not produce file names"),
                     (found, "%s", pattern), (expected, "%s", expected));
}

fsdpck_status rank_pattern_check(const char *pattern, uint64_t world_size, fsdpck_error *err)
{
    if (pattern[0] == '\0' || strchr(pattern, '/') != NULL || strcmp(pattern, ".") == 0 ||
        strcmp(pattern, "..") == 0)
        return bad_pattern(pattern, "a file name without a folder", err);
    if (world_size > 1 && strstr(pattern, "{r}") == NULL)
        return bad_pattern(pattern, "{r} in place of the rank, such as model_{W}_{r}.pt", err);
    return FSDPCK_OK;
}

fsdpck_status rank_pattern_name(const char *pattern, uint64_t rank, uint64_t world_size,
                                char name[RANK_FILE_NAME_NBYTES], fsdpck_error *err)
{
    text_buf out = {.limit_bytes = RANK_FILE_NAME_NBYTES - 1};
    for (const char *p = pattern; *p != '\0';) {
        const bool is_rank = strncmp(p, "{r}", 3) == 0;
        if (is_rank || strncmp(p, "{W}", 3) == 0) {
            text_printf(&out, "%" PRIu64, is_rank ? rank : world_size);
            p += 3;
        } else {
            text_append(&out, p++, 1);
        }
    }
    const bool fits = !out.failed;
    if (fits)
        memcpy(name, out.text, out.nbytes + 1);
    text_release(&out);
    return fits ? FSDPCK_OK : bad_pattern(pattern, "a shorter name", err);
}
