/* map_adapter_internal.h: what the files of a map's second catalogue share:
 *
 *     map_adapter.c          the second catalogue
 *     map_adapter_source.c   its chunks and pieces, and its source
 *     map_heads.c            whether tensors of one module have heads of the same size
 *     map_ties.c             tensors that folders of tied models omit
 */
#ifndef FSDPCK_MAP_MAP_ADAPTER_INTERNAL_H
#define FSDPCK_MAP_MAP_ADAPTER_INTERNAL_H

#include "map/chunk_index.h"
#include "map/map_adapter.h"
#include "map/map_layout.h"

/* A chunk of the second catalogue, by its aux. */
typedef struct map_chunk {
    uint64_t chunk; /* of the first catalogue */
    uint32_t piece; /* its first number in `pieces`; MAP_NONE: the same chunk */
    int8_t add;     /* to each element */
} map_chunk;

/* The first tensor of a module whose rows `rope` reorders. */
typedef struct map_module_heads {
    const char *name;
    uint64_t rows; /* of a head */
} map_module_heads;

typedef struct map_modules {
    strtab names; /* of tensors, without the last two words */
    vec heads;    /* map_module_heads, by the id of the name */
} map_modules;

struct map_adapter {
    const tensor_map *m;
    const catalogue *base;
    source base_source;
    catalogue *out;
    vec chunks;  /* map_chunk */
    vec pieces;  /* uint64_t: see map_piece_keep */
    vec renamed; /* uint32_t: tensor of `out` plus 1, by tensor of the first catalogue */
    vec lost;    /* uint32_t: tensors of the first catalogue */
    vec lines;   /* uint32_t: of the rule in the map, by tensor of `out` */
    text_buf tied, untied;
    size_t tied_count;
    int8_t add;        /* of the rule that makes chunks */
    chunk_index index; /* of the sources of one instance */
    /* Modules of the tensors whose rows `rope` reorders, during construction. */
    map_modules source_modules, target_modules;
    source source;
};

/* *at: its first number in v->pieces. */
fsdpck_status map_piece_keep(map_adapter *v, const map_piece *p, unsigned ndim, unsigned from_ndim,
                             uint32_t *at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The elements of a box of a piece, in a chunk of the source: *skip elements from the chunk's first
 * one, `strides` apart. False if the numbers are too large. */
bool map_piece_find(const map_piece *p, unsigned ndim, const uint64_t *offsets, unsigned from_ndim,
                    const uint64_t *from_offsets, const uint64_t *from_strides, uint64_t *strides,
                    uint64_t *skip);
/* BADINPUT (MAP-SHAPE) if `rope` of the rule of `l` and an earlier one in the same module differ in the
 * rows of a head. `in` is the rule's source, `target` the name of its target. */
fsdpck_status map_compare_heads(map_adapter *v, const map_input *in, const text_buf *target,
                                const map_layout *l, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a chunk of a tensor of v->out: `k` with another aux. piece: its place in v->pieces, or MAP_NONE. */
fsdpck_status map_adapter_add_chunk(map_adapter *v, uint32_t tensor, uint64_t chunk, uint32_t piece,
                                    const uint64_t *offsets, const uint64_t *sizes, cat_chunk *k,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Gives `tensor` of v->out the chunks of `from`, a tensor of the first catalogue. */
fsdpck_status map_adapter_add_same_chunks(map_adapter *v, uint32_t from, uint32_t tensor,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Import: adds the tensors that folders of models with tied embeddings omit. */
fsdpck_status map_add_ties(map_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets v->source, over `src`. */
void map_adapter_set_source(map_adapter *v, const source *src);

#endif
