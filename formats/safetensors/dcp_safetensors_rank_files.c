/* Names of other files that contain the rank of their writer. */
#include <string.h>

#include "formats/safetensors/dcp_safetensors_check.h"
#include "formats/safetensors/shard_name.h"

enum { DIGITS_MOST = 6 };

static bool read_number(const char *text, uint64_t *number)
{
    size_t n = 0;
    *number = 0;
    while (text[n] >= '0' && text[n] <= '9' && n <= DIGITS_MOST)
        *number = *number * 10 + (uint64_t)(text[n++] - '0');
    return n > 0 && n <= DIGITS_MOST;
}

/* Files of verl, transformers and accelerate. */
static uint64_t ranks_of_name(const char *name)
{
    static const char *const before_rank[] = {"rng_state_", "random_states_", "rank_", "rank",
                                              "__"};
    static const char *const others[] = {"mp_rank", "pp_rank", "tp_rank", "lora", "adapter"};
    uint64_t number;
    if (shard_name_is_safetensors(name))
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(name, others[i]) != NULL)
            return 0;
    const char *at = strstr(name, "world_size_");
    if (at != NULL && read_number(at + strlen("world_size_"), &number))
        return number;
    for (size_t i = 0; i < sizeof before_rank / sizeof before_rank[0]; i++) {
        at = strstr(name, before_rank[i]);
        if (at != NULL && read_number(at + strlen(before_rank[i]), &number))
            return number + 1;
    }
    return 0;
}

uint64_t shards_ranks_of_others(const open_request *req, const char **name)
{
    uint64_t most = 0;
    *name = NULL;
    for (size_t i = 0; i < req->probe->entry_count; i++) {
        const uint64_t ranks = ranks_of_name(req->probe->entries[i]);
        if (ranks <= most)
            continue;
        most = ranks;
        *name = req->probe->entries[i];
    }
    return most;
}
