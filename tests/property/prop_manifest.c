/* One bit of one byte of an output with a manifest is changed, for each bit in turn: verify at level
 * checksum never says that all is well. Of the manifest itself some bits mean nothing (the case of
 * digits, white space): there it must only not crash. Two shards of one shape that are swapped are
 * found too. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdpck.h"
#include "tests/support/job_parts.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

static bool is_clean(const char *path)
{
    const fsdpck_verify_options options = {
        .struct_nbytes = sizeof options, .level = FSDPCK_LEVEL_CHECKSUM, .threads = 1};
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify *v;
    assert(ctx != NULL);
    const fsdpck_status st = fsdpck_verify_new(ctx, path, &options, &v, NULL);
    if (st == FSDPCK_OK) {
        fsdpck_verify_get_info(v, &info);
        fsdpck_verify_free(v);
    }
    fsdpck_context_free(ctx);
    return st == FSDPCK_OK && info.errors == 0;
}

static void write_output(const char *fixture, const char *dst, uint64_t world_size)
{
    char path[SCRATCH_BYTES];
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *src;
    job_parts o = JOB_PARTS_INIT;
    fsdpck_error err;
    o.output.no_sync = 1;
    o.sharding.world_size = world_size;
    fsdpck_error_init(&err);
    fsdpck_status st =
        fsdpck_open(ctx, scratch_path(path, getenv("FIXTURES"), fixture), NULL, &src, &err);
    assert(st == FSDPCK_OK);
    st = world_size == 0 ? job_parts_consolidate(ctx, src, dst, &o, NULL, &err)
                         : job_parts_reshard(ctx, src, dst, &o, NULL, &err);
    if (st != FSDPCK_OK)
        fprintf(stderr, "%s: %s\n", dst, err.message);
    assert(st == FSDPCK_OK);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

/* Returns how many changes were not found. */
static unsigned flip_file(const char *folder, const char *name, unsigned step)
{
    char path[SCRATCH_BYTES];
    const bool is_manifest = strcmp(name, "fsdpck-manifest.json") == 0;
    unsigned unseen = 0;
    const int fd = open(scratch_path(path, folder, name), O_RDWR);
    assert(fd >= 0);
    const off_t nbytes = lseek(fd, 0, SEEK_END);
    for (off_t at = 0; at < nbytes; at += (is_manifest ? 11 : step) * (test_stride() | 1))
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t old;
            assert(pread(fd, &old, 1, at) == 1);
            const uint8_t changed = (uint8_t)(old ^ 1u << bit);
            assert(pwrite(fd, &changed, 1, at) == 1);
            if (is_clean(folder) && !is_manifest) {
                fprintf(stderr, "%s: bit %u of byte %lld: not found\n", path, bit, (long long)at);
                unseen++;
            }
            assert(pwrite(fd, &old, 1, at) == 1);
        }
    close(fd);
    return unseen;
}

static unsigned flip_folder(const char *folder, unsigned step)
{
    unsigned unseen = 0;
    DIR *d = opendir(folder);
    assert(d != NULL && is_clean(folder));
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unseen += flip_file(folder, e->d_name, step);
    closedir(d);
    assert(is_clean(folder));
    return unseen;
}

static void swap_files(const char *folder, const char *a, const char *b)
{
    char one[SCRATCH_BYTES], two[SCRATCH_BYTES], between[SCRATCH_BYTES];
    scratch_path(one, folder, a);
    scratch_path(two, folder, b);
    scratch_path(between, folder, "between");
    assert(rename(one, between) == 0 && rename(two, one) == 0 && rename(between, two) == 0);
}

int main(void)
{
    char dir[SCRATCH_BYTES], hf[SCRATCH_BYTES], dcp[SCRATCH_BYTES], even[SCRATCH_BYTES];
    unsigned failed = 0;
    assert(getenv("FIXTURES") != NULL);
    scratch_make(dir);
    scratch_path(hf, dir, "hf");
    scratch_path(dcp, dir, "dcp");
    scratch_path(even, dir, "even");
    write_output("torch-2.15.0/dcp-fsdp2", hf, 0);
    failed += flip_folder(hf, 1);
    write_output("torch-2.15.0/dcp-transposed", dcp, 2);
    failed += flip_folder(dcp, 23);
    write_output("torch-2.15.0/dcp-hsdp", even, 2);
    swap_files(even, "__0_0.distcp", "__1_0.distcp");
    if (is_clean(even)) {
        fprintf(stderr, "swapped shards: not found\n");
        failed++;
    }
    scratch_remove(hf);
    scratch_remove(dcp);
    scratch_remove(even);
    scratch_remove(dir);
    return failed == 0 ? 0 : 1;
}
