#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/platform.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static char path[SCRATCH_BYTES];

static void begin(void)
{
    scratch_make(dir);
}

static void end(void)
{
    scratch_remove(dir);
}

TestSuite(platform, .init = begin, .fini = end);
TestSuite(cgroup, .init = begin, .fini = end);

Test(platform, rename_never_replaces)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY);
    scratch_write(dir, "a", "a", 1);
    scratch_write(dir, "b", "bb", 2);
    cr_assert_eq(platform_rename_noreplace(fd, "a", "b"), EEXIST);
    cr_assert_eq(platform_rename_noreplace(fd, "a", "c"), 0);
    cr_assert_eq(scratch_count(dir), 2);
    cr_assert_eq(symlink("nowhere", scratch_path(path, dir, "dangling")), 0);
    cr_assert_eq(platform_rename_noreplace(fd, "c", "dangling"), EEXIST);
    cr_assert_eq(mkdir(scratch_path(path, dir, "d1"), 0700), 0);
    cr_assert_eq(mkdir(scratch_path(path, dir, "d2"), 0700), 0);
    cr_assert_eq(platform_rename_noreplace(fd, "d1", "d2"), EEXIST);
    cr_assert_eq(platform_rename_noreplace(fd, "d1", "b"), EEXIST);
    cr_assert_eq(platform_rename_noreplace(fd, "d1", "d3"), 0);
    cr_assert_eq(platform_rename_noreplace(fd, "none", "x"), ENOENT);
    close(fd);
}

Test(platform, exchange_swaps_or_says_that_it_cannot)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY);
    scratch_write(dir, "a", "a", 1);
    scratch_write(dir, "b", "bb", 2);
    struct stat st;
    const int rc = platform_rename_exchange(fd, "a", "b");
    cr_assert(rc == 0 || rc == ENOTSUP);
    cr_assert_eq(fstatat(fd, "a", &st, 0), 0);
    cr_assert_eq(st.st_size, rc == 0 ? 2 : 1);
    close(fd);
}

Test(platform, reserve_gives_size_without_data_or_nothing)
{
    const int fd = open(scratch_path(path, dir, "a"), O_RDWR | O_CREAT, 0600);
    struct stat st;
    const int rc = platform_reserve(fd, 1 << 20);
    cr_assert(rc == 0 || rc == ENOTSUP);
    cr_assert_eq(fstat(fd, &st), 0);
    cr_assert_eq(st.st_size, rc == 0 ? 1 << 20 : 0);
    cr_assert_eq(platform_reserve(fd, 0), 0);
    close(fd);
}

Test(platform, machine)
{
    cr_assert_geq(platform_cpu_count(), 1);
    cr_assert_leq((long)platform_cpu_count(), sysconf(_SC_NPROCESSORS_CONF));
    cr_assert_gt(platform_memory_bytes(), 1 << 20);
    uint64_t a = 0;
    uint64_t b = 0;
    platform_random(&a, sizeof(a));
    platform_random(&b, sizeof(b));
    cr_assert_neq(a, b);
}

Test(platform, file_mask)
{
    const mode_t old = umask(0137);
    cr_assert_eq(platform_file_mask(), 0137);
    cr_assert_eq(umask(old), 0137, "and it is left alone");
}

/* Builds a fake tree: rows of folder, file, text. */
static cgroup_limits limits_of(const char *membership, const char *const rows[][3])
{
    char sub[SCRATCH_BYTES];
    for (size_t i = 0; rows[i][0] != NULL; i++) {
        scratch_path(sub, dir, rows[i][0]);
        for (char *p = sub + strlen(dir) + 1; *p != '\0'; p++) {
            if (*p == '/') {
                *p = '\0';
                mkdir(sub, 0700);
                *p = '/';
            }
        }
        mkdir(sub, 0700);
        scratch_write(sub, rows[i][1], rows[i][2], strlen(rows[i][2]));
    }
    scratch_write(dir, "membership", membership, strlen(membership));
    return cgroup_limits_read(scratch_path(path, dir, "membership"), dir);
}

Test(cgroup, version_2_least_of_all_above)
{
    const cgroup_limits l = limits_of(
        "0::/job/step\n", (const char *const[][3]){{"job", "cpu.max", "150000 100000\n"},
                                                   {"job", "memory.max", "1073741824\n"},
                                                   {"job/step", "cpu.max", "max 100000\n"},
                                                   {"job/step", "memory.max", "2147483648\n"},
                                                   {NULL, NULL, NULL}});
    cr_assert_eq(l.cpus, 2, "rounded up");
    cr_assert_eq(l.memory_bytes, 1073741824);
}

Test(cgroup, version_2_mount_root_in_a_container)
{
    const cgroup_limits l = limits_of("0::/../../elsewhere\n",
                                      (const char *const[][3]){{"", "cpu.max", "50000 100000\n"},
                                                               {"", "memory.max", "4096\n"},
                                                               {NULL, NULL, NULL}});
    cr_assert_eq(l.cpus, 1);
    cr_assert_eq(l.memory_bytes, 4096);
}

Test(cgroup, version_1)
{
    const cgroup_limits l = limits_of(
        "5:memory:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n",
        (const char *const[][3]){{"memory/a", "memory.limit_in_bytes", "2097152\n"},
                                 {"memory", "memory.limit_in_bytes", "9223372036854771712\n"},
                                 {"cpu,cpuacct/a", "cpu.cfs_quota_us", "400000\n"},
                                 {"cpu,cpuacct/a", "cpu.cfs_period_us", "100000\n"},
                                 {"cpu,cpuacct/a/b", "cpu.cfs_quota_us", "-1\n"},
                                 {"cpu,cpuacct/a/b", "cpu.cfs_period_us", "100000\n"},
                                 {NULL, NULL, NULL}});
    cr_assert_eq(l.cpus, 4);
    cr_assert_eq(l.memory_bytes, 2097152);
}

Test(cgroup, nonsense_limits_nothing)
{
    const cgroup_limits l =
        limits_of("0::/a\nrubbish\n:::\n0:\n",
                  (const char *const[][3]){{"a", "cpu.max", "100000\n"},
                                           {"", "cpu.max", "0 0\n"},
                                           {"a", "memory.max", "99999999999999999999999999\n"},
                                           {NULL, NULL, NULL}});
    cr_assert_eq(l.cpus, 0);
    cr_assert_eq(l.memory_bytes, 0);
    const cgroup_limits none = cgroup_limits_read("/nonexistent", dir);
    cr_assert_eq(none.cpus, 0);
}

Test(platform, opens_only_memory_files_of_a_process)
{
    int memory, other;
    char byte = 0;
    scratch_write(dir, "a", "a", 1);
    const int plain = open(scratch_path(path, dir, "a"), O_RDONLY);
    cr_assert_eq(platform_memory_file(&memory), 0);
    cr_assert_eq(pwrite(memory, "m", 1, 0), 1);
    const int rc = platform_open_memory_file((uint64_t)getpid(), memory, &other);
    if (rc == ENOTSUP)
        cr_skip("not on this platform");
    cr_assert_eq(rc, 0);
    cr_expect_eq(pread(other, &byte, 1, 0), 1);
    cr_expect_eq(byte, 'm');
    cr_expect_eq(pwrite(other, "x", 1, 0), -1, "only for reading");
    close(other);
    cr_expect_eq(platform_open_memory_file((uint64_t)getpid(), plain, &other), ENOENT);
    cr_expect_eq(other, -1);
    close(memory);
    cr_expect_eq(platform_open_memory_file((uint64_t)getpid(), memory, &other), ENOENT);
    close(plain);
}
