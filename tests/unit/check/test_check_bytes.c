#include "check/check.h"

#include <criterion/criterion.h>

#include "tests/support/memory_source.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})
#define COUNT    24u
#define MIB      ((uint64_t)1 << 20)

/* How many streams were open at once while all of a tensor in streams was decoded. */
static int most_streams(uint64_t stream_nbytes, uint64_t memory_nbytes)
{
    budget owner;
    memory_source m;
    findings found;
    check_result result = {0};
    fsdpck_error err = {0};
    budget_init(&owner, 64 * MIB, "metadata", NULL);
    memory_source_init(&m, 1, &owner);
    const uint32_t t = memory_source_add_tensor(&m, "w", DTYPE_FLOAT32, 1, BOX(COUNT * 10));
    for (uint64_t i = 0; i < COUNT; i++)
        memory_source_add_chunk(&m, t, BOX(i * 10), BOX(10), &(memory_layout){.stream = true});
    memory_source_seal(&m);
    m.stream_nbytes = stream_nbytes;
    const check_request r = {.cat = &m.cat,
                             .source = &m.src,
                             .path = "made up",
                             .level = CHECK_CHECKSUM,
                             .nthreads = 8,
                             .memory_nbytes = memory_nbytes,
                             .metadata = &owner};
    findings_init(&found);
    cr_assert_eq(check_run(&r, &found, &result, &err), FSDPCK_OK, "%s", err.message);
    findings_release(&found);
    check_result_release(&result);
    const int most = atomic_load(&m.most_streams);
    memory_source_release(&m);
    return most;
}

Test(check_bytes, streams_share_the_memory)
{
    const int most = most_streams(10 * MIB, 32 * MIB);
    cr_assert(most >= 2 && most <= 3, "%d", most);
    cr_assert_gt(most_streams(10 * MIB, 0), 3);
}

Test(check_bytes, one_stream_is_decoded_whatever_it_takes)
{
    cr_assert_eq(most_streams(40 * MIB, 32 * MIB), 1);
}
