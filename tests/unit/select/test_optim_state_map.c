#include <criterion/criterion.h>
#include <string.h>

#include "catalogue_paths.h"
#include "select/optim_state_map.h"

static budget owner;
static catalogue c;
static checkpoint_parts parts;
static optim_state_map t;
static fsdpck_error err;
static uint64_t used_before;

static void setup(void)
{
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    catalogue_init(&c, &owner);
    memset(&parts, 0, sizeof parts);
    memset(&t, 0, sizeof t);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    optim_state_map_release(&t);
    cr_expect_eq(owner.used_bytes, used_before);
    checkpoint_parts_release(&parts);
    catalogue_release(&c);
}

TestSuite(optim_state_map, .init = setup, .fini = teardown);

static uint32_t add(const char *path, dtype d, unsigned ndim, uint64_t size)
{
    const uint64_t shape[] = {size, size};
    return add_by_path(&c, path, d, ndim, shape);
}

static void find(void)
{
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(checkpoint_parts_find(&c, &parts, &err), FSDPCK_OK);
    used_before = owner.used_bytes;
    cr_assert_eq(optim_state_map_find(&c, &parts, &t, &err), FSDPCK_OK, "%s", err.message);
}

Test(optim_state_map, state_is_counted_in_its_own_dtypes)
{
    const uint32_t w = add("model/_fsdp_wrapped_module.w", DTYPE_BFLOAT16, 2, 4);
    const uint32_t rows = add("model/rows", DTYPE_FLOAT32, 2, 8);
    const uint32_t mean = add("model/bn.running_mean", DTYPE_FLOAT32, 1, 4);
    add("optim/state/w/exp_avg", DTYPE_FLOAT32, 2, 4);
    add("optim/state/w/exp_avg_sq", DTYPE_FLOAT32, 2, 4);
    add("optim/state/w/step", DTYPE_FLOAT32, 0, 0);
    add("optim/state/rows/exp_avg_sq_row", DTYPE_FLOAT32, 1, 8);
    find();
    cr_expect(t.known);
    cr_expect_eq(t.itemsize_nbytes[w], 8);
    cr_expect_eq(t.extra_nbytes[w], 0);
    cr_expect_eq(t.itemsize_nbytes[rows], 0);
    cr_expect_eq(t.extra_nbytes[rows], 32);
    cr_expect(optim_state_map_has(&t, w) && optim_state_map_has(&t, rows));
    cr_expect_not(optim_state_map_has(&t, mean));
    cr_expect_not(optim_state_map_has(&t, t.count));
}

Test(optim_state_map, flattened_keys_name_their_parameter)
{
    const uint32_t w = add("model/a.w", DTYPE_FLOAT16, 2, 4);
    add("optim/state.a.w.exp_avg", DTYPE_FLOAT16, 2, 4);
    find();
    cr_expect(t.known);
    cr_expect_eq(t.itemsize_nbytes[w], 2);
}

Test(optim_state_map, parameters_by_number_say_nothing)
{
    const uint32_t w = add("model/w", DTYPE_FLOAT32, 2, 4);
    add("optim/state/0/exp_avg", DTYPE_FLOAT32, 2, 4);
    find();
    cr_expect_not(t.known);
    cr_expect_not(optim_state_map_has(&t, w));
}

Test(optim_state_map, no_optimizer_says_nothing)
{
    add("model/w", DTYPE_FLOAT32, 2, 4);
    find();
    cr_expect_not(t.known);
}
