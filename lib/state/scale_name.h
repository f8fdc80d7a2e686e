/* scale_name.h: names of the scales of weights in 8-bit floats, which are those of the weights and an end. */
#ifndef FSDPCK_STATE_SCALE_NAME_H
#define FSDPCK_STATE_SCALE_NAME_H

/* One for each block, as of DeepSeek-V3 and transformers: a factor. */
#define SCALE_OF_BLOCKS "_scale_inv"
/* One for each tensor or row, as of compressed-tensors. */
#define SCALE_OF_TENSOR "_scale"

#endif
