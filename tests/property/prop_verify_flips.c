/* One bit of one byte of a checkpoint is changed, for each byte in turn (of paddings for some; of
 * the records of a folder and of a .pt for each bit of each byte), and verify checks it at level
 * checksum. Every change of data is detected; nothing crashes or hangs; undetected changes are
 * counted by kind and must be of the kinds that fsdpck-verify(1) lists. prop_manifest does the same
 * with files that have no checksums of their own, next to a manifest. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdpck.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

typedef enum kind {
    PAYLOAD,   /* bytes of records: tensors, pickles, objects, marks */
    STRUCTURE, /* what a zip is read by: names, sizes, offsets, CRCs, flags */
    METADATA,  /* .metadata, which records no checksum */
    /* Nothing else says what these were. */
    TIME,
    VERSION,
    ATTRIBUTES,
    PADDING,
    KINDS
} kind;

static const char *const kind_names[KINDS] = {
    [PAYLOAD] = "records",           [STRUCTURE] = "zip structure",
    [METADATA] = ".metadata",        [TIME] = "zip times",
    [VERSION] = "zip versions",      [ATTRIBUTES] = "zip attributes",
    [PADDING] = "alignment padding",
};

typedef struct tally {
    uint64_t flips[KINDS], unseen[KINDS], no_verdict[KINDS];
} tally;

/* --- which byte is what --- */

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static unsigned le16(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static void mark(uint8_t *kinds, size_t at, size_t n, kind k)
{
    memset(kinds + at, k, n);
}

static void mark_extras(const uint8_t *bytes, uint8_t *kinds, size_t at, size_t n)
{
    for (size_t end = at + n; at < end; at += 4 + le16(bytes + at + 2))
        if (le16(bytes + at) != 1) /* the other one is zip64's */
            mark(kinds, at, 4 + le16(bytes + at + 2), PADDING);
}

/* A record and its descriptor; returns the position after it. */
static size_t mark_local(const uint8_t *bytes, size_t nbytes, uint8_t *kinds, size_t at)
{
    const size_t name = le16(bytes + at + 26), extra = le16(bytes + at + 28);
    const size_t data = at + 30 + name + extra;
    mark(kinds, at + 4, 2, VERSION);
    mark(kinds, at + 10, 4, TIME);
    mark_extras(bytes, kinds, at + 30 + name, extra);
    if ((le16(bytes + at + 6) & 8) == 0)
        return data + le32(bytes + at + 18);
    for (size_t q = data; q + 16 <= nbytes; q++)
        if (memcmp(bytes + q, "PK\7\10", 4) == 0 && le32(bytes + q + 8) == q - data) {
            mark(kinds, data, q - data, PAYLOAD);
            return q + (memcmp(bytes + q + 16, "PK", 2) == 0 ? 16 : 24);
        }
    fprintf(stderr, "prop_verify_flips: no descriptor behind byte %zu\n", data);
    abort();
}

static size_t mark_central(const uint8_t *bytes, uint8_t *kinds, size_t at)
{
    const size_t name = le16(bytes + at + 28), extra = le16(bytes + at + 30);
    mark(kinds, at + 4, 4, VERSION);
    mark(kinds, at + 12, 4, TIME);
    mark(kinds, at + 36, 6, ATTRIBUTES);
    mark_extras(bytes, kinds, at + 46 + name, extra);
    return at + 46 + name + extra + le16(bytes + at + 32);
}

/* One zip or several, one after another. */
static void mark_zips(const uint8_t *bytes, size_t nbytes, uint8_t *kinds)
{
    mark(kinds, 0, nbytes, STRUCTURE);
    for (size_t at = 0; at < nbytes;) {
        assert(at + 22 <= nbytes && bytes[at] == 'P' && bytes[at + 1] == 'K');
        switch (bytes[at + 2]) {
        case 3:
            at = mark_local(bytes, nbytes, kinds, at);
            break;
        case 1:
            at = mark_central(bytes, kinds, at);
            break;
        case 5:
            at += 22;
            break;
        default:
            if (bytes[at + 3] == 6)
                mark(kinds, at + 12, 4, VERSION);
            else
                mark(kinds, at + 16, 4, ATTRIBUTES); /* the number of disks, 0 or 1 */
            at += bytes[at + 3] == 6 ? 56 : 20;
        }
    }
}

/* --- verify --- */

typedef enum verdict { CLEAN, FOUND, NO_VERDICT } verdict;

static verdict verify(fsdpck_context *ctx, const char *path)
{
    /* Good folders may not record the number of ranks. */
    static const char *const set[] = {"RANKS-UNKNOWN=note", NULL};
    const fsdpck_verify_options options = {
        .struct_nbytes = sizeof options, .level = FSDPCK_LEVEL_CHECKSUM, .threads = 1, .set = set};
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify *v;
    fsdpck_error err;

    fsdpck_error_init(&err);
    if (fsdpck_verify_new(ctx, path, &options, &v, &err) != FSDPCK_OK)
        return NO_VERDICT;
    fsdpck_verify_get_info(v, &info);
    fsdpck_verify_free(v);
    return info.errors + info.warnings > 0 ? FOUND : CLEAN;
}

static void flip(fsdpck_context *ctx, const char *path, int fd, size_t at, uint8_t old,
                 unsigned bit, kind k, tally *t)
{
    const uint8_t changed = (uint8_t)(old ^ (1u << bit));
    assert(pwrite(fd, &changed, 1, (off_t)at) == 1);
    const verdict v = verify(ctx, path);
    assert(pwrite(fd, &old, 1, (off_t)at) == 1);
    t->flips[k]++;
    t->unseen[k] += v == CLEAN;
    t->no_verdict[k] += v == NO_VERDICT;
    if (v == CLEAN && k <= STRUCTURE)
        fprintf(stderr, "%s: byte %zu, bit %u (%s): not found\n", path, at, bit, kind_names[k]);
}

typedef enum depth {
    RECORDS,  /* those alone, a bit of each byte */
    ALL,      /* a bit of each byte, but of paddings */
    ALL_BITS, /* each bit of records besides */
} depth;

static void flip_file(const char *path, const char *name, const uint8_t *bytes, size_t nbytes,
                      depth how, tally *t)
{
    char file[SCRATCH_BYTES];
    uint8_t *kinds = malloc(nbytes);
    const char *dot = strrchr(name, '.');
    assert(kinds != NULL);
    if (dot != NULL && strcmp(dot, ".metadata") == 0)
        mark(kinds, 0, nbytes, METADATA);
    else
        mark_zips(bytes, nbytes, kinds);
    fsdpck_context *ctx = NULL;
    const int fd = open(scratch_path(file, path, name), O_WRONLY);
    assert(fd >= 0);
    const size_t stride = test_stride() | 1; /* odd: all kinds */
    for (size_t i = 0, n = 0; i < nbytes; i += stride, n++) {
        const kind k = (kind)kinds[i];
        if (n % 256 == 0) { /* it keeps warnings */
            fsdpck_context_free(ctx);
            ctx = fsdpck_context_new();
            assert(ctx != NULL);
        }
        const unsigned first = (unsigned)(i * 5 % 8);
        if (how == RECORDS ? k == PAYLOAD : k != PADDING || i % 16 == 0)
            flip(ctx, path, fd, i, bytes[i], first, k, t);
        for (unsigned bit = 1; how == ALL_BITS && k == PAYLOAD && bit < 8; bit++)
            flip(ctx, path, fd, i, bytes[i], (first + bit) % 8, k, t);
    }
    fsdpck_context_free(ctx);
    close(fd);
    free(kinds);
}

/* --- the checkpoints --- */

static uint8_t *read_whole(const char *folder, const char *name, size_t *nbytes)
{
    char path[SCRATCH_BYTES];
    FILE *f = fopen(scratch_path(path, folder, name), "rb");
    assert(f != NULL && fseek(f, 0, SEEK_END) == 0);
    *nbytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*nbytes + 32); /* read beyond the end */
    assert(bytes != NULL && fread(bytes, 1, *nbytes, f) == *nbytes);
    memset(bytes + *nbytes, 0, 32);
    fclose(f);
    return bytes;
}

/* `only`: part of the names of files to be changed, "" all. */
static void flip_checkpoint(const char *fixture, const char *only, depth how, tally *t)
{
    char dir[SCRATCH_BYTES], from[SCRATCH_BYTES];
    uint8_t *bytes[16];
    size_t nbytes[16], count = 0;
    char names[16][256];

    scratch_make(dir);
    DIR *d = opendir(scratch_path(from, getenv("FIXTURES"), fixture));
    assert(d != NULL);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert(count < 16);
        snprintf(names[count], sizeof names[count], "%s", e->d_name);
        bytes[count] = read_whole(from, e->d_name, &nbytes[count]);
        scratch_write(dir, e->d_name, bytes[count], nbytes[count]);
        count++;
    }
    closedir(d);
    fsdpck_context *ctx = fsdpck_context_new();
    assert(ctx != NULL);
    assert(verify(ctx, dir) == CLEAN);
    fsdpck_context_free(ctx);
    for (size_t i = 0; i < count; i++) {
        if (strstr(names[i], only) != NULL)
            flip_file(dir, names[i], bytes[i], nbytes[i], how, t);
        free(bytes[i]);
    }
    scratch_remove(dir);
}

int main(void)
{
    tally t = {0};
    int failed = 0;

    assert(getenv("FIXTURES") != NULL);
    flip_checkpoint("torch-2.15.0/dcp-transposed", "", ALL_BITS, &t);
    flip_checkpoint("torch-2.15.0/dcp-nocollective", "__1", ALL, &t);
    /* It holds chunks without elements. */
    flip_checkpoint("torch-2.15.0/dcp-fsdp2", "__2", RECORDS, &t);
    flip_checkpoint("torch-2.15.0/pt-training", "", ALL, &t);
    flip_checkpoint("torch-2.15.0/ranks-hsdp", "rank_3", ALL, &t);
    flip_checkpoint("torch-1.13.1/pt-views", "", ALL_BITS, &t);
    printf("%-18s %8s %8s %10s\n", "one bit in", "flips", "unseen", "no verdict");
    for (int k = 0; k < KINDS; k++) {
        printf("%-18s %8llu %8llu %10llu\n", kind_names[k], (unsigned long long)t.flips[k],
               (unsigned long long)t.unseen[k], (unsigned long long)t.no_verdict[k]);
        /* A kind that is always detected must not be in the manual's list. */
        if (t.flips[k] == 0 || (k <= STRUCTURE) != (t.unseen[k] == 0))
            failed = 1;
    }
    return failed;
}
