/* Combines the results of all ranks of a group. */
#include <string.h>

#include "exec/exec_internal.h"
#include "group/remote_folder.h"

static uint64_t word_count(uint64_t nbytes)
{
    return nbytes / sizeof(uint64_t) + (nbytes % sizeof(uint64_t) != 0);
}

typedef struct xor_array {
    void *bytes;
    uint64_t nbytes;
} xor_array;

/* XOR over all ranks of each array. Short ones, and what long ones have after their last whole word, go
 * in one step. */
static fsdpck_status xor_arrays(group *g, const xor_array *arrays, unsigned count,
                                fsdpck_error *err)
{
    enum { PACKED_WORDS = 1024, COUNT_MAX = 4 };
    uint64_t words[COUNT_MAX * PACKED_WORDS] = {0}, packed = 0;
    uint64_t direct[COUNT_MAX];
    for (unsigned i = 0; i < count; i++) {
        const uint64_t whole = arrays[i].nbytes / sizeof *words;
        direct[i] = whole > PACKED_WORDS - 1 ? whole * sizeof *words : 0;
        if (direct[i] > 0)
            RETURN_IF(group_xor(g, arrays[i].bytes, whole, err));
        memcpy(words + packed, (uint8_t *)arrays[i].bytes + direct[i],
               arrays[i].nbytes - direct[i]);
        packed += word_count(arrays[i].nbytes - direct[i]);
    }
    RETURN_IF(group_xor(g, words, packed, err));
    packed = 0;
    for (unsigned i = 0; i < count; i++) {
        memcpy((uint8_t *)arrays[i].bytes + direct[i], words + packed,
               arrays[i].nbytes - direct[i]);
        packed += word_count(arrays[i].nbytes - direct[i]);
    }
    return FSDPCK_OK;
}

fsdpck_status all_reduce_crcs(struct exec *x, fsdpck_error *err)
{
    const target *t = x->r.target;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    const uint64_t nfiles = catalogue_file_count(&t->cat);
    xor_array arrays[4];
    unsigned count = 0;
    if (x->r.group == NULL)
        return FSDPCK_OK;
    if (t->want_crc)
        arrays[count++] = (xor_array){t->chunk_crc, nchunks * sizeof *t->chunk_crc};
    if (t->want_digest)
        arrays[count++] = (xor_array){t->chunk_digest, nchunks * sizeof *t->chunk_digest};
    if (t->want_file_crc)
        arrays[count++] = (xor_array){t->file_crc, nfiles * sizeof *t->file_crc};
    /* Deferred bytes were filled by one rank each, or not yet. */
    if (x->deferred_count > 0)
        arrays[count++] = (xor_array){x->deferred_done, x->deferred_count};
    return xor_arrays(x->r.group, arrays, count, err);
}

fsdpck_status exec_all_reduce_stats(struct exec *x, fsdpck_status st, fsdpck_error *err)
{
    struct exec_stats s;
    if (x->r.group == NULL)
        return st;
    x->has_all_stats = false;
    exec_get_stats(x, &s);
    uint64_t words[] = {s.bytes_read,
                        s.reads,
                        s.bytes_written,
                        s.direct_bytes,
                        s.cast_overflows,
                        s.replicas_compared,
                        s.buffer_nbytes,
                        s.streams,
                        s.workers,
                        remote_folder_received_nbytes(x->r.source_folder) - x->travelled_before +
                            x->exchanged_nbytes,
                        s.gpu_tiles,
                        x->exchanged_nbytes,
                        s.kept_ranges,
                        s.kept_nbytes,
                        s.recorded_nbytes};
    RETURN_IF(group_sum(x->r.group, st, GROUP_STOPS, words, sizeof words / sizeof words[0], err));
    x->all_stats = s;
    x->all_stats.bytes_read = words[0];
    x->all_stats.reads = words[1];
    x->all_stats.bytes_written = words[2];
    x->all_stats.direct_bytes = words[3];
    x->all_stats.cast_overflows = words[4];
    x->all_stats.replicas_compared = words[5];
    x->all_stats.buffer_nbytes = words[6];
    x->all_stats.streams = words[7];
    x->all_stats.workers = (unsigned)words[8];
    x->all_stats.bytes_travelled = words[9];
    x->all_stats.gpu_tiles = words[10];
    x->all_stats.bytes_exchanged = words[11];
    x->all_stats.kept_ranges = words[12];
    x->all_stats.kept_nbytes = words[13];
    x->all_stats.recorded_nbytes = words[14];
    if (words[11] > 0)
        x->engine->note_exchanged(x, words[11]);
    x->has_all_stats = true;
    return FSDPCK_OK;
}
