/* source.h: positional input, the interface between lib/exec and a source checkpoint.
 *
 * A reader fills this table; many threads may call every function at once.
 *
 * For each chunk of a plan, `locate` is called once before anything is written. Workers then read
 * its elements with read_at, or, if the location has `stream` set, open the stream and read it
 * sequentially. Elements that are computed in any order (`boxes`) are read with read_box.
 */
#ifndef FSDPCK_STATE_SOURCE_H
#define FSDPCK_STATE_SOURCE_H

#include "state/catalogue.h"

/* Location of a chunk's elements, after its header was read and checked. */
typedef struct place {
    uint32_t file;
    bool stream; /* compressed: offset_bytes counts decoded bytes */
    bool swap;   /* stored big-endian */
    bool conj;   /* stored un-conjugated: negate the imaginary part */
    bool neg;    /* stored un-negated: negate */
    int8_t
        add;   /* 1, -1: added to each element, of a dtype that dtype_can_add accepts; 0: nothing */
    bool rows; /* row-major without gaps: strides are those of the box */
    bool boxes;   /* a stream with `rows` whose boxes can also be read one by one: read_box */
    bool has_crc; /* crc32 covers [record_offset_bytes, +record_nbytes) */
    uint32_t crc32;
    uint64_t offset_bytes; /* of the box's first element */
    uint64_t record_offset_bytes;
    uint64_t record_nbytes;     /* the elements lie within it: checked by locate */
    uint64_t strides[NDIM_MAX]; /* elements, ndim of them */
} place;

typedef struct source_stream source_stream;

/* Checksum of a chunk that is read as a stream. */
typedef enum stream_checksum {
    STREAM_CHECKSUM_UNKNOWN, /* unknown, or none of its bytes are in a file */
    STREAM_CHECKSUMMED,      /* stream_finish checks all of them */
    STREAM_NO_CHECKSUM       /* no checksum recorded */
} stream_checksum;

typedef struct source {
    void *ctx;
    const catalogue *cat;
    const char *root;  /* for messages: the opened folder or file; NULL: unknown */
    bool root_is_file; /* it is the only file of the catalogue */

    /* Reads the chunk's header as far as necessary, returns the location of its elements, and
     * checks dtype, shape and bounds against the catalogue (DCP-PAYLOAD-DTYPE, DCP-PAYLOAD-SHAPE,
     * TENSOR-BOUNDS, DCP-RANGE). Not for LOCATION_EMPTY. */
    fsdpck_status (*locate)(void *ctx, uint64_t chunk, place *where, fsdpck_error *err);

    /* Checks the header of the record of a LOCATION_EMPTY chunk, see source_has_header. NULL: such
     * chunks have no record. */
    fsdpck_status (*check_empty)(void *ctx, uint64_t chunk, fsdpck_error *err);

    /* Exactly nbytes of a file of the catalogue. */
    fsdpck_status (*read_at)(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err);

    /* Decoded bytes of the record of a chunk with place.stream, from decoded offset 0. stream_read
     * fills exactly nbytes. stream_finish reads to the end and checks it (sizes, checksums);
     * stream_close may be called at any time. */
    fsdpck_status (*stream_open)(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err);
    fsdpck_status (*stream_read)(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err);
    fsdpck_status (*stream_finish)(source_stream *s, fsdpck_error *err);
    void (*stream_close)(source_stream *s);
    /* Memory used by the stream of a chunk until it is closed. NULL: little. */
    uint64_t (*stream_nbytes)(void *ctx, uint64_t chunk);
    /* NULL: unknown for all chunks. */
    stream_checksum (*stream_checksum_of)(void *ctx, uint64_t chunk);

    /* A box of a chunk with place.boxes, as stream_read gives its elements: `offsets` from the chunk's
     * first element; `dst` becomes row-major and has the alignment of an element. NULL: no such chunks. */
    fsdpck_status (*read_box)(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err);

    /* The name of another tensor, if the chunk is a replica of it because both must be equal;
     * otherwise NULL. The pointer itself may be NULL. */
    const char *(*replica_of)(void *ctx, uint64_t chunk);

    /* CHANGED if a file differs from its state when opened. */
    fsdpck_status (*check_unchanged)(void *ctx, fsdpck_error *err);
} source;

/* Whether a chunk has a header that locate or check_empty reads. */
static inline bool source_has_header(const source *s, const catalogue *cat, uint64_t chunk)
{
    const cat_chunk *c = catalogue_chunk(cat, chunk);
    return c->place != LOCATION_EMPTY ||
           (s->check_empty != NULL && c->file != CAT_NONE && c->nbytes > 0);
}

#endif
