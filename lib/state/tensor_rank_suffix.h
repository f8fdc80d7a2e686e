/* tensor_rank_suffix.h: names of tensors that each rank has of its own (CAT_TENSOR_OF_RANK): 'NAME.rank12'. */
#ifndef FSDPCK_STATE_TENSOR_RANK_SUFFIX_H
#define FSDPCK_STATE_TENSOR_RANK_SUFFIX_H

#include <stddef.h>
#include <stdint.h>

/* The rank at the end of the name; *nbytes becomes the length without it. CAT_NONE: there is none. */
uint32_t name_cut_rank(const char *text, size_t *nbytes);
/* Bytes of a name without '.rank12' at its end. */
size_t name_without_rank(const char *text, size_t nbytes);

#endif
