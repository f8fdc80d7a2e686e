/* map_adapter.h: presents a checkpoint under the names and layouts that a map gives its tensors.
 *
 *     map_adapter *v;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(map_adapter_new(m, &cat, &src, inputs, count, &seen, &v, err));   // seals `seen`
 *     map_adapter_source(v)      // its locate() calls the first source, then moves to the element
 *     map_adapter_free(v);       // before `seen`, `src` and `cat`
 *
 * No byte moves, and no element is computed: place.add contains the constant of `add`. Each chunk of the second catalogue is a box of a target whose elements lie with
 * constant strides in a chunk of the first. Files are the same in both.
 *
 * Each input is taken by exactly one rule, and each target is filled exactly once; otherwise BADINPUT:
 * MAP-UNTAKEN, MAP-TAKEN-TWICE, MAP-SOURCE, MAP-TARGET-TWICE, MAP-SHAPE. Dropped inputs are listed as
 * skipped (catalogue_add_skipped). Tensors of the first catalogue that are no input, and objects, are
 * the caller's concern.
 */
#ifndef FSDPCK_MAP_MAP_ADAPTER_H
#define FSDPCK_MAP_MAP_ADAPTER_H

#include "map/map.h"
#include "state/source.h"

typedef struct map_adapter map_adapter;

/* A tensor of the first catalogue under the name that the rules see. Borrowed. */
typedef struct map_input {
    uint32_t tensor;
    const char *name;
    size_t nbytes;
} map_input;

/* `base` must be sealed; `out` must be initialized and empty. */
fsdpck_status map_adapter_new(const tensor_map *m, const catalogue *base, const source *src,
                              const map_input *inputs, size_t count, catalogue *out,
                              map_adapter **adapter, fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *map_adapter_source(const map_adapter *v);
/* The tensor that a rule without operations makes of a tensor of the first catalogue; else CAT_NONE. */
uint32_t map_adapter_renamed(const map_adapter *v, uint32_t base_tensor);
/* The line of the map with the rule that makes a tensor; 0: of `tied`. */
uint32_t map_adapter_line(const map_adapter *v, uint32_t tensor);
/* The chunk of the first catalogue that a chunk of the second one is in. */
uint64_t map_adapter_chunk(const map_adapter *v, uint64_t chunk);
/* The constant that a chunk adds to each element: 1, -1 or 0. */
int8_t map_adapter_added(const map_adapter *v, uint64_t chunk);
/* The tensors that `tied` of an inverted map made, as "name = name, ..."; "" for none. */
const char *map_adapter_tied(const map_adapter *v, size_t *count);
/* The tensors of the first catalogue that `lose` takes. */
const uint32_t *map_adapter_lost(const map_adapter *v, size_t *count);
/* The tensors that `tied` of an inverted map lists, that no input has, and that it did not make, as "'name', ...". */
const char *map_adapter_untied(const map_adapter *v);
/* Chunks of the first catalogue that were compared with pieces: the time that it took. */
uint64_t map_adapter_compared(const map_adapter *v);
void map_adapter_free(map_adapter *v);

/* map_head_dim.c: BADINPUT (MAP-SHAPE) if a tensor shows that query or key have other heads than the
 * variables state: the norm of their heads, or a buffer of rotary positions. `model`: the catalogue with
 * Hugging Face's names; `base` has the inputs. */
fsdpck_status map_check_head_tensors(const tensor_map *m, const catalogue *model,
                                     const catalogue *base, const map_input *inputs, size_t count,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
