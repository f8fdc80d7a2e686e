/* fsdpck_open_memory: random boxes, strides and dtypes in memory of the host and of a simulated GPU are written, and the
 * bytes of the files are those of a formula; other formats are read back. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "fsdpck_memory.h"
#include "fsdpck_verify.h"
#include "open/memory_checkpoint.h"
#include "tests/support/device_memory.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/random.h"
#include "tests/support/scratch.h"

enum { TENSORS = 12, DIMS = 4, ENTRIES_MAX = 512, SPAN_MAX = 1 << 16, HEADER_MAX = 1 << 16 };

static const struct {
    const char *torch, *safetensors;
    unsigned nbytes;
} types[] = {
    {"float32", "F32", 4}, {"bfloat16", "BF16", 2}, {"int64", "I64", 8},
    {"uint8", "U8", 1},    {"bool", "BOOL", 1},     {"float8_e4m3fn", "F8_E4M3", 1},
    {"float64", "F64", 8},
};

typedef struct tensor {
    char name[64];
    unsigned type, ndim;
    uint64_t shape[DIMS];
} tensor;

/* An entry, with the memory that its pointers lead to. */
typedef struct entry {
    uint64_t offsets[DIMS], sizes[DIMS], strides[DIMS];
    bool has_strides;
    void *memory;
    uint64_t nbytes;
} entry;

static fsdpck_context *ctx;
static fsdpck_error err;
static fake_gpu fake;
static gpu *device; /* NULL: memory of the host */
static uint64_t dice;
static tensor tensors[TENSORS];
static entry held[ENTRIES_MAX];
static fsdpck_memory_tensor entries[ENTRIES_MAX];
static size_t count;

static void begin(bool on_device)
{
    ctx = fsdpck_context_new();
    err = (fsdpck_error)FSDPCK_ERROR_INIT;
    device = NULL;
    count = 0;
    if (on_device) {
        fake_gpu_init(&fake);
        device = &fake.base;
    }
}

static void end(void)
{
    for (size_t i = 0; i < count; i++)
        device_memory_free(device, held[i].memory);
    fsdpck_context_free(ctx);
    if (device != NULL)
        fake_gpu_release(&fake);
}

/* ---- a random model ---- */

/* Byte `at` of the row-major elements of a tensor; a bool is 0 or 1. */
static uint8_t byte_of(const tensor *t, uint64_t at)
{
    const uint64_t seed = (uint64_t)(t - tensors) * 7919 + at * 104729;
    const uint8_t byte = (uint8_t)(seed ^ (seed >> 9) ^ (seed >> 17));
    return strcmp(types[t->type].torch, "bool") == 0 ? byte & 1 : byte;
}

static uint64_t nelems_of(const uint64_t *sizes, unsigned ndim)
{
    uint64_t n = 1;
    for (unsigned d = 0; d < ndim; d++)
        n *= sizes[d];
    return n;
}

static void make_tensor(tensor *t, unsigned number)
{
    t->type = (unsigned)random_below(&dice, sizeof types / sizeof *types);
    t->ndim = (unsigned)random_below(&dice, DIMS + 1);
    for (unsigned d = 0; d < t->ndim; d++)
        t->shape[d] = random_below(&dice, 12) == 0 ? 0 : 1 + random_below(&dice, 9);
    snprintf(t->name, sizeof t->name, "model.layers.%u.weight", number);
}

/* Dims in any order, from the innermost one out, with gaps. Returns the elements from first to last. */
static uint64_t make_strides(entry *e, unsigned ndim)
{
    unsigned order[DIMS];
    uint64_t stride = 1 + random_below(&dice, 3), span = 1;
    for (unsigned i = 0; i < ndim; i++) {
        const unsigned j = (unsigned)random_below(&dice, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (unsigned i = 0; i < ndim; i++) {
        const unsigned d = order[i];
        e->strides[d] = stride;
        span += (e->sizes[d] - 1) * stride;
        stride = stride * e->sizes[d] + random_below(&dice, 3);
    }
    return span;
}

/* Its elements at their strides; all bytes between them are 0xEE. */
static void fill(const tensor *t, const entry *e, uint8_t *bytes)
{
    const unsigned item = types[t->type].nbytes;
    memset(bytes, 0xEE, e->nbytes);
    for (uint64_t i = 0; i < nelems_of(e->sizes, t->ndim); i++) {
        uint64_t rest = i, whole = 0, at = 0, row = 1;
        for (unsigned d = t->ndim; d-- > 0; rest /= e->sizes[d]) {
            whole += (e->offsets[d] + rest % e->sizes[d]) * row;
            at += rest % e->sizes[d] * e->strides[d];
            row *= t->shape[d];
        }
        for (unsigned b = 0; b < item; b++)
            bytes[at * item + b] = byte_of(t, whole * item + b);
    }
}

static void add_entry(const tensor *t, const uint64_t *offsets, const uint64_t *sizes)
{
    static uint8_t bytes[SPAN_MAX];
    entry *e = &held[count];
    fsdpck_memory_tensor *one = &entries[count++];
    cr_assert_leq(count, ENTRIES_MAX);
    memcpy(e->offsets, offsets, sizeof e->offsets);
    memcpy(e->sizes, sizes, sizeof e->sizes);
    uint64_t n = nelems_of(sizes, t->ndim), stride = 1;
    e->has_strides = n > 0 && random_below(&dice, 3) > 0;
    for (unsigned d = t->ndim; d-- > 0; stride *= sizes[d])
        e->strides[d] = stride;
    if (e->has_strides)
        n = make_strides(e, t->ndim);
    e->nbytes = n * types[t->type].nbytes;
    cr_assert_leq(e->nbytes, SPAN_MAX);
    fill(t, e, bytes);
    e->memory = device_memory_new(device, bytes, e->nbytes);
    *one = (fsdpck_memory_tensor)FSDPCK_INIT(fsdpck_memory_tensor);
    one->name = t->name;
    one->dtype = types[t->type].torch;
    one->ndim = t->ndim;
    one->shape = t->shape;
    one->offsets = e->offsets;
    one->sizes = e->sizes;
    one->strides = e->has_strides ? e->strides : NULL;
    one->memory = e->nbytes > 0 ? e->memory : NULL;
    one->memory_nbytes = e->nbytes;
}

/* A grid of up to three parts in each dim; sometimes a box twice. */
static void add_grid(const tensor *t)
{
    uint64_t parts[DIMS] = {0}, total = 1;
    for (unsigned d = 0; d < t->ndim; d++)
        total *= parts[d] = 1 + random_below(&dice, 3);
    for (uint64_t k = 0; k < total; k++) {
        uint64_t offsets[DIMS] = {0}, sizes[DIMS] = {0}, rest = k;
        for (unsigned d = 0; d < t->ndim; d++) {
            const uint64_t i = rest % parts[d];
            offsets[d] = t->shape[d] * i / parts[d];
            sizes[d] = t->shape[d] * (i + 1) / parts[d] - offsets[d];
            rest /= parts[d];
        }
        add_entry(t, offsets, sizes);
        if (random_below(&dice, 8) == 0)
            add_entry(t, offsets, sizes);
    }
}

static void make_model(uint64_t seed)
{
    dice = seed;
    for (unsigned i = 0; i < TENSORS; i++) {
        make_tensor(&tensors[i], i);
        add_grid(&tensors[i]);
    }
    for (size_t i = count; i > 1; i--) {
        const size_t j = random_below(&dice, i);
        const fsdpck_memory_tensor t = entries[i - 1];
        entries[i - 1] = entries[j];
        entries[j] = t;
    }
}

static fsdpck_checkpoint *open_model(void)
{
    fsdpck_checkpoint *c = NULL;
    cr_assert_eq(open_memory_with_gpu(ctx, entries, count, NULL, device, &c, &err), FSDPCK_OK,
                 "%s: %s", err.tensor, err.message);
    return c;
}

static void close_model(fsdpck_checkpoint *c)
{
    fsdpck_close(c); /* before the memory */
    end();
}

/* ---- outputs ---- */

/* The header of a safetensors file, as a text, and a malloc'd file. */
static uint8_t *read_file(const char *path, char *header, uint64_t *begin_at, uint64_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    fseek(f, 0, SEEK_END);
    *nbytes = (uint64_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*nbytes);
    cr_assert_eq(fread(bytes, 1, *nbytes, f), *nbytes);
    fclose(f);
    const uint64_t n = bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16;
    cr_assert_lt(n, HEADER_MAX);
    memcpy(header, bytes + 8, n);
    header[n] = '\0';
    *begin_at = 8 + n;
    return bytes;
}

static void check_tensor(const tensor *t, const char *header, const uint8_t *data, uint64_t nbytes)
{
    char want[256];
    uint64_t from, to;
    int n = snprintf(want, sizeof want, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                     types[t->type].safetensors);
    for (unsigned d = 0; d < t->ndim; d++)
        n += snprintf(want + n, sizeof want - (size_t)n, "%s%" PRIu64, d > 0 ? "," : "",
                      t->shape[d]);
    n += snprintf(want + n, sizeof want - (size_t)n, "],\"data_offsets\":[");
    const char *at = strstr(header, want);
    cr_assert_not_null(at, "%s in %s", want, header);
    cr_assert_eq(sscanf(at + n, "%" SCNu64 ",%" SCNu64, &from, &to), 2);
    cr_assert_leq(to, nbytes);
    cr_assert_eq(to - from, nelems_of(t->shape, t->ndim) * types[t->type].nbytes);
    for (uint64_t i = from; i < to; i++)
        cr_assert_eq(data[i], byte_of(t, i - from), "%s, byte %" PRIu64, t->name, i - from);
}

static void check_safetensors(const char *path)
{
    static char header[HEADER_MAX];
    uint64_t begin_at, nbytes;
    uint8_t *bytes = read_file(path, header, &begin_at, &nbytes);
    for (unsigned i = 0; i < TENSORS; i++)
        check_tensor(&tensors[i], header, bytes + begin_at, nbytes - begin_at);
    free(bytes);
}

static void check_loaded(fsdpck_checkpoint *src)
{
    static uint8_t found[TENSORS][SPAN_MAX];
    fsdpck_load_tensor wanted[TENSORS];
    for (unsigned i = 0; i < TENSORS; i++) {
        wanted[i] = (fsdpck_load_tensor)FSDPCK_INIT(fsdpck_load_tensor);
        wanted[i].name = tensors[i].name;
        wanted[i].memory = found[i];
        wanted[i].memory_nbytes = sizeof found[i];
    }
    cr_assert_eq(fsdpck_load(ctx, src, wanted, TENSORS, NULL, &err), FSDPCK_OK, "%s: %s",
                 err.tensor, err.message);
    for (unsigned i = 0; i < TENSORS; i++) {
        const tensor *t = &tensors[i];
        for (uint64_t b = 0; b < nelems_of(t->shape, t->ndim) * types[t->type].nbytes; b++)
            cr_assert_eq(found[i][b], byte_of(t, b), "%s, byte %" PRIu64, t->name, b);
    }
}

/* Of any format: loaded whole, and without difference from `a`. */
static void check_written(fsdpck_checkpoint *a, const char *path)
{
    fsdpck_checkpoint *b = NULL;
    fsdpck_diff *d = NULL;
    fsdpck_diff_info info = FSDPCK_INIT(fsdpck_diff_info);
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &b, &err), FSDPCK_OK, "%s", err.message);
    check_loaded(b);
    cr_assert_eq(fsdpck_diff_new(ctx, a, b, NULL, &d, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_diff_get_info(d, &info);
    cr_expect_eq(info.tensors_compared, TENSORS);
    cr_expect_eq(info.rows, 0, "%s", path);
    fsdpck_diff_free(d);
    fsdpck_close(b);
}

static void consolidate(fsdpck_checkpoint *c, const char *path)
{
    cr_assert_eq(fsdpck_consolidate(ctx, c, path, NULL, NULL, &err), FSDPCK_OK, "%s: %s %s", path,
                 err.tensor, err.message);
}

Test(open_memory, random_boxes_are_written)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    for (uint64_t seed = 1; seed <= 24; seed++) {
        scratch_make(dir);
        begin(seed % 2 == 0);
        make_model(seed);
        fsdpck_checkpoint *c = open_model();
        consolidate(c, scratch_path(path, dir, "m.safetensors"));
        check_safetensors(path);
        check_written(c, path);
        check_loaded(c);
        close_model(c);
        scratch_remove(dir);
    }
}

static void consolidate_as(fsdpck_checkpoint *c, const char *path, const char *format)
{
    fsdpck_output_options out = FSDPCK_INIT(fsdpck_output_options);
    fsdpck_consolidate_options options = FSDPCK_INIT(fsdpck_consolidate_options);
    out.format = format;
    options.output = &out;
    cr_assert_eq(fsdpck_consolidate(ctx, c, path, &options, NULL, &err), FSDPCK_OK, "%s: %s %s",
                 format, err.tensor, err.message);
}

static void reshard_as(fsdpck_checkpoint *c, const char *path, const char *format)
{
    fsdpck_output_options out = FSDPCK_INIT(fsdpck_output_options);
    fsdpck_sharding_options sharding = FSDPCK_INIT(fsdpck_sharding_options);
    fsdpck_reshard_options options = FSDPCK_INIT(fsdpck_reshard_options);
    out.format = format;
    sharding.world_size = 3;
    options.output = &out;
    options.sharding = &sharding;
    cr_assert_eq(fsdpck_reshard(ctx, c, path, &options, NULL, &err), FSDPCK_OK, "%s: %s %s", format,
                 err.tensor, err.message);
}

Test(open_memory, formats_are_written)
{
    static const char *const formats[] = {"hf", "pt", "dcp"}, *const sharded[] = {"dcp",
                                                                                  "pt-ranks"};
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES], name[64];
    for (int on_device = 0; on_device < 2; on_device++) {
        scratch_make(dir);
        begin(on_device == 1);
        make_model(77);
        fsdpck_checkpoint *c = open_model();
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            snprintf(name, sizeof name, "of-%s", formats[i]);
            consolidate_as(c, scratch_path(path, dir, name), formats[i]);
            check_written(c, path);
        }
        for (size_t i = 0; i < sizeof sharded / sizeof *sharded; i++) {
            snprintf(name, sizeof name, "shards-%s", sharded[i]);
            reshard_as(c, scratch_path(path, dir, name), sharded[i]);
            check_written(c, path);
        }
        close_model(c);
        scratch_remove(dir);
    }
}

/* The CRC-64 of "float32[5,3]", a newline and the elements. */
static uint64_t digest_of(const tensor *t)
{
    char label[128];
    uint8_t byte;
    int n = snprintf(label, sizeof label, "%s[", types[t->type].torch);
    for (unsigned d = 0; d < t->ndim; d++)
        n += snprintf(label + n, sizeof label - (size_t)n, "%s%" PRIu64, d > 0 ? "," : "",
                      t->shape[d]);
    n += snprintf(label + n, sizeof label - (size_t)n, "]\n");
    uint64_t crc = crc64_update(0, label, (size_t)n);
    for (uint64_t i = 0; i < nelems_of(t->shape, t->ndim) * types[t->type].nbytes; i++) {
        byte = byte_of(t, i);
        crc = crc64_update(crc, &byte, 1);
    }
    return crc;
}

Test(open_memory, digests_are_those_of_the_elements)
{
    begin(true);
    make_model(4711);
    fsdpck_checkpoint *c = open_model();
    fsdpck_digests *d = NULL;
    fsdpck_digests_info info = FSDPCK_INIT(fsdpck_digests_info);
    cr_assert_eq(fsdpck_digests_new(ctx, c, NULL, &d, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_digests_get_info(d, &info);
    cr_assert_eq(info.tensors, TENSORS);
    for (uint64_t i = 0; i < info.tensors; i++) {
        fsdpck_digest one = FSDPCK_INIT(fsdpck_digest);
        unsigned number;
        fsdpck_digests_get(d, i, &one);
        cr_assert_eq(sscanf(one.name, "model.layers.%u.weight", &number), 1);
        cr_expect_eq(one.value, digest_of(&tensors[number]), "%s", one.name);
    }
    fsdpck_digests_free(d);
    close_model(c);
}
