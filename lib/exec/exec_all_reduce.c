/* Combines the results of all ranks of a group. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "group/remote_folder.h"

/* Words per transfer, if an array is not of words. */
#define BLOCK_WORDS 8192u

/* XOR over all ranks of any bytes. */
static fsdpck_status xor_bytes(group *g, void *bytes, uint64_t nbytes, fsdpck_error *err)
{
    uint64_t *words = calloc(BLOCK_WORDS, sizeof *words);
    fsdpck_status st =
        words != NULL ? FSDPCK_OK : error_set_nomem(err, BLOCK_WORDS * sizeof *words);
    RETURN_IF(group_agree(g, st, err));
    for (uint64_t at = 0; at < nbytes && st == FSDPCK_OK; at += BLOCK_WORDS * sizeof *words) {
        const uint64_t left = nbytes - at;
        const uint64_t n = left < BLOCK_WORDS * sizeof *words ? left : BLOCK_WORDS * sizeof *words;
        memset(words, 0, BLOCK_WORDS * sizeof *words);
        memcpy(words, (uint8_t *)bytes + at, n);
        st = group_xor(g, words, BLOCK_WORDS, err);
        memcpy((uint8_t *)bytes + at, words, n);
    }
    free(words);
    return st;
}

fsdpck_status all_reduce_crcs(struct exec *x, fsdpck_error *err)
{
    const target *t = x->r.target;
    group *g = x->r.group;
    if (g == NULL)
        return FSDPCK_OK;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    if (t->want_crc)
        RETURN_IF(xor_bytes(g, t->chunk_crc, nchunks * sizeof *t->chunk_crc, err));
    if (t->want_digest)
        RETURN_IF(group_xor(g, t->chunk_digest, nchunks, err));
    if (t->want_file_crc)
        RETURN_IF(group_xor(g, t->file_crc, catalogue_file_count(&t->cat), err));
    /* Deferred bytes were filled by one rank each, or not yet. */
    return x->deferred_count > 0 ? xor_bytes(g, x->deferred_done, x->deferred_count, err)
                                 : FSDPCK_OK;
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
