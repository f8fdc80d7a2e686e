/* source.h: positional bytes in. What lib/exec sees of a checkpoint that is read.
 *
 * A reader fills this table; every function may be called from many threads at once.
 *
 * For each chunk that a plan needs, `locate` is called once before anything is written; then its
 * elements are read with read_at by whoever works on them, or, where the place says `stream`, by
 * opening the stream and reading it front to back.
 */
#ifndef FSDPCK_STATE_SOURCE_H
#define FSDPCK_STATE_SOURCE_H

#include "state/catalogue.h"

/* Where the elements of one chunk lie, after its head was read and checked. */
typedef struct place {
    uint32_t file;
    bool stream;  /* compressed: offset_bytes counts decoded bytes */
    bool swap;    /* stored big-endian */
    bool conj;    /* stored un-conjugated: negate the imaginary half */
    bool neg;     /* stored un-negated: negate */
    bool rows;    /* row-major without gaps: strides are those of the box */
    bool has_crc; /* crc32 covers [record_offset_bytes, +record_nbytes) */
    uint32_t crc32;
    uint64_t offset_bytes; /* of the box's first element */
    uint64_t record_offset_bytes;
    uint64_t record_nbytes;     /* the elements lie within: checked by locate */
    uint64_t strides[NDIM_MAX]; /* elements, ndim of them */
} place;

typedef struct source_stream source_stream;

/* Of the bytes of a chunk that comes as a stream. */
typedef enum stream_checksum {
    STREAM_CHECKSUM_UNKNOWN, /* or none of its bytes are in a file */
    STREAM_CHECKSUMMED,      /* stream_finish compares a checksum of them all */
    STREAM_NO_CHECKSUM       /* there is none */
} stream_checksum;

typedef struct source {
    void *ctx;
    const catalogue *cat;
    const char *root;  /* for messages: the folder or file that was opened; NULL: not said */
    bool root_is_file; /* the one file of the catalogue */

    /* Reads what is needed to know where chunk's elements lie, and checks dtype, shape and bounds
     * against the catalogue (DCP-PAYLOAD-DTYPE, DCP-PAYLOAD-SHAPE, TENSOR-BOUNDS, DCP-RANGE). Not for
     * LOCATION_EMPTY. */
    fsdpck_status (*locate)(void *ctx, uint64_t chunk, place *where, fsdpck_error *err);

    /* Exactly nbytes of a file of the catalogue. */
    fsdpck_status (*read_at)(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err);

    /* Decoded bytes of the record that a chunk with place.stream lies in, from decoded offset 0 on.
     * stream_read fills exactly nbytes. stream_finish reads to the end and checks it (sizes,
     * checksums); stream_close may be called at any time. */
    fsdpck_status (*stream_open)(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err);
    fsdpck_status (*stream_read)(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err);
    fsdpck_status (*stream_finish)(source_stream *s, fsdpck_error *err);
    void (*stream_close)(source_stream *s);
    /* Memory that the stream of a chunk takes until it is closed. NULL: little. */
    uint64_t (*stream_nbytes)(void *ctx, uint64_t chunk);
    /* NULL: untold, of all. */
    stream_checksum (*stream_checksum_of)(void *ctx, uint64_t chunk);

    /* The name of another tensor where the chunk is a replica of this one's as both are to be
     * equal; NULL. May be NULL itself. */
    const char *(*replica_of)(void *ctx, uint64_t chunk);

    /* Files that were read are what they were when opened; else CHANGED. */
    fsdpck_status (*check_unchanged)(void *ctx, fsdpck_error *err);
} source;

#endif
