/* Rank files that torch itself writes, whose names differ from those of trainers. */
#include <inttypes.h>
#include <string.h>

#include "formats/pt/ranks_internal.h"

enum { HEAD_NBYTES = 16384 };

/* The number at *at, without leading zeros; *at becomes its end. */
static bool number_at(const char **at, uint64_t *number)
{
    const char *digits = *at;
    const size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 9 || (n > 1 && digits[0] == '0'))
        return false;
    *number = 0;
    for (size_t i = 0; i < n; i++)
        *number = *number * 10 + (uint64_t)(digits[i] - '0');
    *at += n;
    return true;
}

/* _ReplicationStager: rank R writes the state of its partner (R + W/2) % W, and W is even. */
bool ranks_replica_name(const char *name, ranks_replica *replica)
{
    static const char first[] = "rank_", second[] = "_replica_partner_";
    uint64_t holder, partner;
    const char *at = name + sizeof first - 1;
    if (strncmp(name, first, sizeof first - 1) != 0 || !number_at(&at, &holder) ||
        strncmp(at, second, sizeof second - 1) != 0)
        return false;
    at += sizeof second - 1;
    replica->rank_at = (size_t)(at - name);
    if (!number_at(&at, &partner) || strcmp(at, ".pt") != 0)
        return false;
    replica->rank = partner;
    replica->rank_nbytes = (size_t)(at - name) - replica->rank_at;
    replica->world =
        holder == partner ? 1 : 2 * (holder > partner ? holder - partner : partner - holder);
    return true;
}

bool ranks_bytes_hold(const uint8_t *bytes, size_t nbytes, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i + n <= nbytes; i++)
        if (memcmp(bytes + i, word, n) == 0)
            return true;
    return false;
}

/* The pickle is the first record of the file. */
static bool holds_shards(const probe_input *in, const char *name)
{
    static const char *const modules[] = {"torch.distributed.tensor", "torch.distributed._tensor",
                                          "torch.distributed._shard"};
    uint8_t head[HEAD_NBYTES];
    file f = FILE_CLOSED;
    bool found = false;
    if (file_open_read(&f, &in->dir, name, 0, NULL) != FSDPCK_OK)
        return false;
    const size_t n = f.nbytes < sizeof head ? (size_t)f.nbytes : sizeof head;
    const bool is_read = file_read_at(&f, 0, head, n, NULL) == FSDPCK_OK;
    file_abandon(&f);
    for (size_t i = 0; is_read && i < sizeof modules / sizeof *modules; i++)
        found = found || ranks_bytes_hold(head, n, modules[i]);
    return found;
}

/* torch.distributed.checkpoint._experimental. The number of other files checkpoint_N.pt is that of an epoch or a step:
 * only files of DTensors or ShardedTensors are those of ranks. */
const char *ranks_experimental_pattern(const probe_input *in)
{
    static const char prefix[] = "checkpoint_";
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++) {
        const char *at = in->entries[i] + sizeof prefix - 1;
        uint64_t rank;
        if (strncmp(in->entries[i], prefix, sizeof prefix - 1) == 0 && number_at(&at, &rank) &&
            strcmp(at, ".pt") == 0)
            return holds_shards(in, in->entries[i]) ? "checkpoint_{r}.pt" : NULL;
    }
    return NULL;
}
