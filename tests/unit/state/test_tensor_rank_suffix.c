#include <criterion/criterion.h>
#include <string.h>

#include "state/catalogue.h"
#include "state/tensor_rank_suffix.h"

Test(tensor_rank_suffix, the_last_part_is_a_rank)
{
    static const struct {
        const char *name, *bare;
        uint32_t rank;
    } rows[] = {
        {"bn.running_mean.rank3", "bn.running_mean", 3},
        {"a.rank0", "a", 0},
        {"a.rank12.rank7", "a.rank12", 7},
        {"a.rank99999999", "a", 99999999},
        {"a.rank", "a.rank", CAT_NONE},
        {"a.rank123456789", "a.rank123456789", CAT_NONE},
        {"a.rank1x", "a.rank1x", CAT_NONE},
        {"a.Rank1", "a.Rank1", CAT_NONE},
        {"a.rank1.", "a.rank1.", CAT_NONE},
        {"rank1", "rank1", CAT_NONE},
        {"a.rank-1", "a.rank-1", CAT_NONE},
        {"", "", CAT_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t nbytes = strlen(rows[i].name);
        cr_expect_eq(name_without_rank(rows[i].name, nbytes), strlen(rows[i].bare), "%s",
                     rows[i].name);
        cr_expect_eq(name_cut_rank(rows[i].name, &nbytes), rows[i].rank, "%s", rows[i].name);
        cr_expect_eq(nbytes, strlen(rows[i].bare), "%s", rows[i].name);
    }
}
