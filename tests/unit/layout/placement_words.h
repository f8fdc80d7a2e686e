/* placement_words.h: placements as torch prints them. */
#ifndef FSDPCK_TESTS_UNIT_LAYOUT_PLACEMENT_WORDS_H
#define FSDPCK_TESTS_UNIT_LAYOUT_PLACEMENT_WORDS_H

#define R                           \
    {                               \
        .kind = PLACEMENT_REPLICATE \
    }
#define S(d)                                \
    {                                       \
        .kind = PLACEMENT_SHARD, .dim = (d) \
    }
#define SS(d, f)                                                         \
    {                                                                    \
        .kind = PLACEMENT_STRIDED_SHARD, .dim = (d), .split_factor = (f) \
    }

#endif
