/* flat_writer_pickle.h: a flat parameter as FSDP1's LOCAL state holds it: a 1-dim ShardedTensor,
 * which lists the shards of all ranks and has the data of one.
 *
 *     flat_put_begin(w, &s);
 *     flat_put_local(w, &s);      // differs between ranks
 *     flat_put_shards(w, &s);
 *     flat_put_group(w, &s);      // also differs between ranks
 *     flat_put_end(w, &s);
 *
 * Source: torch 1.13 to 2.15, torch/distributed/_shard/sharded_tensor (api.py, metadata.py), and
 * files that they wrote. TensorProperties get the five items of every release; 2.15 writes a sixth,
 * strides, which is None there. The device is always the CPU: loading copies into the model's.
 */
#ifndef FSDPCK_FLAT_WRITER_PICKLE_H
#define FSDPCK_FLAT_WRITER_PICKLE_H

#include "formats/common/pickle.h"
#include "state/dtype.h"

typedef struct flat_shard {
    dtype dtype;
    uint64_t total;      /* elements of the flat parameter */
    uint64_t shard_size; /* of every rank but the last that has any; later ones have none */
    uint64_t world_size;
    uint64_t rank;
    const char *key; /* record of this rank's elements; unused if it has none */
} flat_shard;

/* Number of elements of a rank; the first has index rank * shard_size. */
uint64_t flat_shard_nelems(const flat_shard *s, uint64_t rank);

void flat_put_begin(pickle_writer *w, const flat_shard *s);
void flat_put_local(pickle_writer *w, const flat_shard *s);
void flat_put_shards(pickle_writer *w, const flat_shard *s);
void flat_put_group(pickle_writer *w, const flat_shard *s);
void flat_put_end(pickle_writer *w, const flat_shard *s);

#endif
