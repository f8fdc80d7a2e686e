/* shard_name.h: the numbers in the names of weight files.
 *
 *     model-00002-of-00005.safetensors                  prefix "model", file 2 of 5, rank_number 0
 *     model-2-of-5.pt                                   the same, without zeros
 *     model-00002-of-00005.fp16.safetensors             the same of a *variant*
 *     model_00002-of-00005.safetensors                  or with '.', or without a prefix
 *     model_1_of_5.bin, part1of5.pt                     other separators, also "OF"
 *     model_world_size_4_rank_0.safetensors             the file of rank 0 of 4: numbers from 0
 *     model0-mp4.safetensors                            DeepSeek's: a slice of each tensor, from 0
 *     shard-00003-model-00001-of-00002.safetensors      of the rank 2: rank_number 3, file 1 of 2
 */
#ifndef FSDPCK_SHARD_NAME_H
#define FSDPCK_SHARD_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shard_name {
    size_t prefix_nbytes; /* text before "-00001-of-" */
    size_t number_at;     /* of "00001" */
    size_t tail_at;       /* of ".safetensors", or of ".fp16.safetensors" */
    size_t count_at;      /* of "00005"; after or before the number */
    bool is_variant;
    bool from_zero;       /* numbers begin with 0, by the form of the name */
    bool is_slice;        /* of a tensor-parallel rank */
    uint32_t rank_number; /* rank + 1; 0: the name has none */
    uint32_t file_number; /* from 1; from 0 in the names of a few writers */
    uint32_t file_count;
} shard_name;

/* False if `name` has none of these forms. */
bool shard_name_parse(const char *name, shard_name *parts);
/* The same for names that end in another suffix, such as ".bin". */
bool shard_name_parse_as(const char *name, const char *suffix, shard_name *parts);
/* Whether both names are of one set: they differ in the number of the file only. */
bool shard_name_same_set(const char *name, const shard_name *parts, const char *other,
                         const shard_name *of_other);
/* Whether only the counts of the two sets may differ. */
bool shard_name_same_text(const char *name, const shard_name *parts, const char *other,
                          const shard_name *of_other);
/* The rank in a name of a safetensors file that states no number of files: vLLM's
 * model-rank-1-part-0, TensorRT-LLM's rank0, tp_rank_0, mp_rank_00, model_tp0, shard_0. */
bool shard_name_has_rank(const char *name, uint32_t *rank);
/* The name of the index of files that transformers or diffusers numbered: "model.safetensors.index.json" of
 * "model-00001-of-00002.safetensors", "model.safetensors.index.fp16.json" of "model.fp16-00001-of-00002.safetensors" and of
 * "model-00001-of-00002.fp16.safetensors". Also of ".bin". False for other names. */
bool shard_name_index(const char *name, char *index, size_t capacity);
/* Whether the name ends in ".safetensors". */
bool shard_name_is_safetensors(const char *name);
/* "model_1.safetensors": a further model of a run of accelerate. */
bool shard_name_is_of_models(const char *name);

#endif
