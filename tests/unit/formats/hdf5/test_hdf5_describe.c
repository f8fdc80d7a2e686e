#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/platform.h"
#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_write_internal.h"

static budget owner;
static target t;
static hdf5_names names;
static text_buf objects;
static fsdpck_error err;

static void setup(void)
{
    static const uint64_t zero, shape = 5000;
    const cat_chunk proto = {.file = CAT_NONE, .place = LOCATION_ROWS};
    uint32_t tensor;
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    target_init(&t, &owner);
    fsdpck_error_init(&err);
    cr_assert_eq(catalogue_add_tensor(&t.cat, "w", 1, DTYPE_FLOAT32, 1, &shape, &tensor, &err), 0);
    cr_assert_eq(catalogue_add_chunk(&t.cat, tensor, &zero, &shape, &proto, &err), 0);
    cr_assert_eq(catalogue_seal(&t.cat, &err), 0);
    cr_assert_eq(hdf5_names_make(&t.cat, false, &names, &err), 0);
}

static void teardown(void)
{
    hdf5_names_release(&names);
    target_release(&t);
    cr_expect_eq(owner.used_bytes, 0);
}

TestSuite(hdf5_describe, .init = setup, .fini = teardown);

static bool is_built(void)
{
    return strcmp(hdf5_built_state(), "built without HDF5") != 0;
}

static fsdpck_status describe(int fd, uint64_t *offset_bytes)
{
    const hdf5_description d = {.cat = &t.cat, .names = &names, .objects = &objects, .fd = fd};
    return hdf5_describe(&d, offset_bytes, &err);
}

/* In memory, where all is well. */
static void check_well(void)
{
    int fd;
    uint64_t at;
    cr_assert_eq(platform_memory_file(&fd), 0);
    cr_expect_eq(describe(fd, &at), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(at % HDF5_ALIGN_NBYTES, 0);
    cr_expect_eq(lseek(fd, 0, SEEK_END), (off_t)(at + 20000));
    close(fd);
}

Test(hdf5_describe, no_room_is_told_and_forgotten)
{
    uint64_t at;
    const int full = open("/dev/full", O_RDWR);
    if (!is_built() || full < 0) {
        close(full);
        return;
    }
    for (unsigned i = 0; i < 3; i++) {
        cr_expect_eq(describe(full, &at), FSDPCK_NOSPACE, "%s", err.message);
        cr_expect_eq(err.sys_errno, ENOSPC);
        cr_expect(strstr(err.next, "space") != NULL, "%s", err.next);
        check_well();
    }
    close(full);
}

Test(hdf5_describe, a_descriptor_that_cannot_be_written_is_no_lack_of_room)
{
    uint64_t at;
    const int fd = open("/dev/null", O_RDONLY);
    if (is_built()) {
        cr_expect_eq(describe(fd, &at), FSDPCK_IO, "%s", err.message);
        cr_expect_eq(err.sys_errno, EBADF);
        check_well();
    }
    close(fd);
}
