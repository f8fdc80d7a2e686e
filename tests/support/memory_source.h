/* memory_source.h: a synthetic checkpoint in memory, for tests of code that reads one.
 *
 * Elements verify themselves: the bytes of an element are a hash of its tensor's name and its flat
 * index in the tensor (memory_element), whatever chunk, file, order or encoding stores it.
 *
 *     memory_source m;
 *     memory_source_init(&m, nfiles, &budget);
 *     tensor = memory_source_add_tensor(&m, "a", DTYPE_FLOAT32, 2, shape);
 *     memory_source_add_chunk(&m, tensor, offsets, sizes,
 *                             &(memory_layout){.file = 1, .permuted = true, .order = {1, 0}});
 *     memory_source_seal(&m);
 *     ... m.src ...
 *     memory_source_release(&m);
 *
 * Elements of a floating tensor whose name begins with "added" are multiples of 1/64 in [-2, 2), so that
 * 1 can be added and subtracted exactly.
 *
 * Aborts on failure.
 */
#ifndef FSDPCK_TESTS_MEMORY_SOURCE_H
#define FSDPCK_TESTS_MEMORY_SOURCE_H

#include <stdatomic.h>

#include "state/source.h"

typedef struct memory_layout {
    uint32_t file;
    uint32_t gap_nbytes; /* bytes before the chunk's record */
    bool permuted;       /* dims are stored in `order`, outermost first; else row-major */
    unsigned char order[NDIM_MAX];
    bool tilted; /* of 2 dims: strides that do not nest, although no two elements share a byte */
    uint32_t pad_elems; /* unused elements after each innermost row */
    bool stream;        /* readable only by decoding; gap_nbytes decoded bytes precede the chunk */
    bool boxes;         /* a stream that is also read box by box; without gap_nbytes */
    bool swap, conj, neg;
    int8_t add; /* stored without this constant: only of tensors whose name begins with "added" */
    bool crc;   /* the record has a checksum */
    bool wrong; /* one element is wrong */
} memory_layout;

typedef struct memory_source {
    catalogue cat;
    source src;
    vec *files; /* uint8_t each */
    uint32_t file_count;
    vec places;  /* place, by cat_chunk.aux */
    vec records; /* vec of uint8_t, by cat_chunk.aux: decoded bytes of streams */
    _Atomic uint64_t reads;
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t decoded_bytes; /* of streams */
    _Atomic uint64_t box_bytes;     /* of read_box */
    uint64_t fail_read;             /* number of the read that fails, from 1; 0: none */
    bool changed;                   /* makes check_unchanged fail */
    _Atomic int open_streams;
    _Atomic int most_streams; /* largest number open at once */
    uint64_t stream_nbytes;   /* result of source.stream_nbytes; not 0: they open slowly */
} memory_source;

/* Logical little-endian bytes of an element. bfloat16, float16 and float32 are always finite. */
void memory_element(const char *tensor, dtype type, uint64_t flat_index, uint8_t *bytes);

void memory_source_init(memory_source *m, uint32_t nfiles, budget *owner);
uint32_t memory_source_add_tensor(memory_source *m, const char *name, dtype type, unsigned ndim,
                                  const uint64_t *shape);
void memory_source_add_chunk(memory_source *m, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes, const memory_layout *layout);
void memory_source_seal(memory_source *m);
void memory_source_release(memory_source *m);

#endif
