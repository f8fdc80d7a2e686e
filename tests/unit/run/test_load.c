/* fsdpck_load: all tensors of checkpoints against digests that torch's own reader gave, boxes against arithmetic, in
 * memory of the host and of a simulated GPU. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "fsdpck_load.h"
#include "run/load_internal.h"
#include "state/dtype.h"
#include "tests/support/device_memory.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/scratch.h"

static fsdpck_context *ctx;
static fsdpck_checkpoint *src;
static fsdpck_error err;
static fake_gpu fake;
static gpu *device; /* NULL: memory of the host */

static void open_source(const char *path)
{
    src = NULL;
    err = (fsdpck_error)FSDPCK_ERROR_INIT;
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &src, &err), FSDPCK_OK, "%s: %s", path, err.message);
}

static void begin(bool on_device)
{
    ctx = fsdpck_context_new();
    device = NULL;
    if (on_device) {
        fake_gpu_init(&fake);
        device = &fake.base;
    }
}

static void end(void)
{
    fsdpck_context_free(ctx);
    if (device != NULL)
        fake_gpu_release(&fake);
}

/* ---- whole tensors ---- */

enum { TENSORS_MAX = 512 };

typedef struct tensor {
    char name[256], label[128];
    uint64_t digest, nbytes;
} tensor;

static tensor tensors[TENSORS_MAX];

/* "301469b684eddf0b  float32[36]  model.norm.bias", as tests/fixtures writes them: the digest is the CRC-64 of the label,
 * a newline and the elements. */
static size_t read_digests(const char *path)
{
    char line[1024];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    while (fgets(line, sizeof line, f) != NULL) {
        tensor *t = &tensors[n++];
        cr_assert_lt(n, TENSORS_MAX);
        cr_assert_eq(sscanf(line, "%" SCNx64 "  %127s  %255[^\n]", &t->digest, t->label, t->name),
                     3, "%s", line);
    }
    fclose(f);
    return n;
}

/* Of "float32[36,36]". */
static uint64_t nbytes_of(const char *label)
{
    const char *at = strchr(label, '[');
    uint64_t nbytes = dtype_get(dtype_from_name(label, (size_t)(at - label)))->itemsize_bytes;
    for (char *next; at[1] != ']' && at[0] != ']'; at = next)
        nbytes *= strtoull(at + 1, &next, 10);
    return nbytes;
}

static void load_whole(const char *fixture)
{
    char path[4096];
    static const uint8_t zeros[1 << 20];
    fsdpck_load_tensor entries[TENSORS_MAX];
    fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
    fsdpck_load_options options = FSDPCK_INIT(fsdpck_load_options);
    snprintf(path, sizeof path, "%s/%s.digests", getenv("FIXTURES"), fixture);
    const size_t n = read_digests(path);
    cr_assert_gt(n, 0);
    path[strlen(path) - strlen(".digests")] = '\0';
    open_source(path);
    for (size_t i = 0; i < n; i++) {
        tensor *t = &tensors[i];
        t->nbytes = nbytes_of(t->label);
        cr_assert_leq(t->nbytes, sizeof zeros);
        entries[i] = (fsdpck_load_tensor)FSDPCK_INIT(fsdpck_load_tensor);
        entries[i].name = t->name;
        entries[i].memory = device_memory_new(device, zeros, t->nbytes);
        entries[i].memory_nbytes = t->nbytes;
    }
    select.part = FSDPCK_PART_ALL;
    select.clean_names = FSDPCK_OFF;
    options.select = &select;
    cr_assert_eq(load_with_gpu(ctx, src, entries, n, &options, device, &err), FSDPCK_OK,
                 "%s: %s %s", path, err.message, err.tensor);
    for (size_t i = 0; i < n; i++) {
        uint8_t *bytes = malloc(tensors[i].nbytes + 1);
        device_memory_take(device, entries[i].memory, bytes, tensors[i].nbytes);
        const uint64_t head =
            crc64_update(crc64_update(0, tensors[i].label, strlen(tensors[i].label)), "\n", 1);
        cr_expect_eq(crc64_update(head, bytes, tensors[i].nbytes), tensors[i].digest, "%s: %s",
                     fixture, tensors[i].name);
        free(bytes);
    }
    fsdpck_close(src);
}

static const char *const fixtures[] = {
    "quickstart",
    "torch-2.15.0/dcp-fsdp2",
    "torch-2.15.0/dcp-zstd",
    "torch-2.15.0/dcp-transposed",
    "torch-2.15.0/dcp-hsdp-tp",
    "torch-2.15.0/dcp-float8",
    "torch-2.15.0/deepspeed-zero3",
    "torch-2.15.0/ranks-dtensor",
    "torch-2.15.0/hf-shards",
    "torch-2.15.0/pt-bigendian",
    "torch-2.15.0/pt-negative",
    "torch-2.15.0/st-official",
};

Test(load, whole_tensors_of_many_formats)
{
    for (int on_device = 0; on_device < 2; on_device++) {
        for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
            begin(on_device == 1);
            load_whole(fixtures[i]);
            end();
        }
    }
}

/* ---- boxes ---- */

enum { ROWS = 6, COLUMNS = 10, DEPTH = 4, FLOATS = 4096 };

/* Element [i, j, k] of w is 100 i + 10 j + k, of v the same as int32. */
static void write_model(const char *dir)
{
    char header[256];
    const int size = ROWS * COLUMNS * DEPTH * 4;
    const int n =
        snprintf(header, sizeof header,
                 "{\"v\":{\"dtype\":\"I32\",\"shape\":[%d,%d,%d],\"data_offsets\":[0,%d]},"
                 "\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d,%d],\"data_offsets\":[%d,%d]}}",
                 ROWS, COLUMNS, DEPTH, size, ROWS, COLUMNS, DEPTH, size, 2 * size);
    uint8_t *bytes = calloc(1, 8 + (size_t)n + 2 * (size_t)size);
    bytes[0] = (uint8_t)n;
    memcpy(bytes + 8, header, (size_t)n);
    for (int at = 0; at < ROWS * COLUMNS * DEPTH; at++) {
        const int32_t whole =
            100 * (at / DEPTH / COLUMNS) + 10 * (at / DEPTH % COLUMNS) + at % DEPTH;
        const float number = (float)whole;
        memcpy(bytes + 8 + n + 4 * at, &whole, 4);
        memcpy(bytes + 8 + n + size + 4 * at, &number, 4);
    }
    scratch_write(dir, "m.safetensors", bytes, 8 + (size_t)n + 2 * (size_t)size);
    free(bytes);
}

typedef struct box {
    uint64_t offsets[3], sizes[3], strides[3];
    bool is_dense;
} box;

static const box boxes[] = {
    {.sizes = {ROWS, COLUMNS, DEPTH}, .strides = {40, 4, 1}, .is_dense = true},
    {{1, 2, 0}, {4, 5, 3}, {15, 3, 1}, true},
    {{1, 2, 0}, {4, 5, 3}, {100, 7, 1}, false}, /* runs of 3 */
    {{0, 0, 1}, {6, 1, 2}, {50, 3, 2}, false},  /* single elements */
    {{2, 1, 0}, {3, 4, 4}, {16, 4, 1}, true},
    {{2, 1, 0}, {3, 4, 4}, {1, 12, 3}, false},  /* transposed */
    {{0, 0, 0}, {2, 10, 4}, {64, 4, 1}, false}, /* runs of 40 */
    {{5, 9, 3}, {1, 1, 1}, {9, 9, 9}, true},
    {{3, 3, 3}, {0, 2, 1}, {2, 1, 1}, true}, /* without elements */
};

enum { BOXES = sizeof boxes / sizeof *boxes };

static bool in_box(const box *b, uint64_t at, float *number)
{
    for (uint64_t i = 0; i < b->sizes[0]; i++)
        for (uint64_t j = 0; j < b->sizes[1]; j++)
            for (uint64_t k = 0; k < b->sizes[2]; k++)
                if (at == i * b->strides[0] + j * b->strides[1] + k * b->strides[2]) {
                    *number = (float)(100 * (b->offsets[0] + i) + 10 * (b->offsets[1] + j) +
                                      b->offsets[2] + k);
                    return true;
                }
    return false;
}

static void load_boxes(void)
{
    float before[FLOATS], after[FLOATS];
    fsdpck_load_tensor entries[BOXES];
    for (size_t i = 0; i < FLOATS; i++)
        before[i] = -1;
    for (size_t b = 0; b < BOXES; b++) {
        entries[b] = (fsdpck_load_tensor)FSDPCK_INIT(fsdpck_load_tensor);
        entries[b].name = "w";
        entries[b].ndim = 3;
        entries[b].offsets = boxes[b].offsets;
        entries[b].sizes = boxes[b].sizes;
        entries[b].strides = boxes[b].is_dense && b % 2 == 0 ? NULL : boxes[b].strides;
        entries[b].memory = device_memory_new(device, before, sizeof before);
        entries[b].memory_nbytes = sizeof before;
    }
    cr_assert_eq(load_with_gpu(ctx, src, entries, BOXES, NULL, device, &err), FSDPCK_OK, "%s",
                 err.message);
    for (size_t b = 0; b < BOXES; b++) {
        device_memory_take(device, entries[b].memory, after, sizeof after);
        for (size_t i = 0; i < FLOATS; i++) {
            float number = -1;
            (void)in_box(&boxes[b], i, &number);
            cr_expect_eq(after[i], number, "box %zu, %zu: %g, not %g", b, i, (double)after[i],
                         (double)number);
        }
    }
}

Test(load, boxes_with_strides)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    scratch_make(dir);
    write_model(dir);
    for (int on_device = 0; on_device < 2; on_device++) {
        begin(on_device == 1);
        open_source(scratch_path(path, dir, "m.safetensors"));
        load_boxes();
        fsdpck_close(src);
        end();
    }
    scratch_remove(dir);
}

/* Powers of two that sum to less than 2^8 are exact in bfloat16: row 1 and column 2 have 120 to 123. */
Test(load, casts)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    const uint64_t offsets[] = {1, 2, 0}, sizes[] = {1, 1, 4};
    const uint16_t want[] = {0x42f0, 0x42f2, 0x42f4, 0x42f6};
    uint16_t found[4] = {0};
    fsdpck_load_tensor t = FSDPCK_INIT(fsdpck_load_tensor);
    scratch_make(dir);
    write_model(dir);
    begin(false);
    open_source(scratch_path(path, dir, "m.safetensors"));
    t.name = "w";
    t.dtype = "bfloat16";
    t.ndim = 3;
    t.offsets = offsets;
    t.sizes = sizes;
    t.memory = found;
    t.memory_nbytes = sizeof found;
    cr_assert_eq(fsdpck_load(ctx, src, &t, 1, NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_arr_eq(found, want, sizeof want);
    fsdpck_close(src);
    end();
    scratch_remove(dir);
}

/* ---- refusals ---- */

static const uint64_t all[] = {ROWS, COLUMNS, DEPTH}, outside[] = {0, 1, 0},
                      huge[] = {UINT64_MAX / 2, 4, 1};
static float room[ROWS * COLUMNS * DEPTH];

static const struct {
    fsdpck_load_tensor t;
    fsdpck_status status;
    const char *message;
} refused[] = {
    {{.name = NULL}, FSDPCK_USAGE, "entry 0 of fsdpck_load has no name"},
    {{.name = "x"}, FSDPCK_USAGE, "the selection has no tensor of this name"},
    {{.name = "w", .dtype = "float33"}, FSDPCK_USAGE, "unknown dtype 'float33'"},
    {{.name = "w", .ndim = 2, .sizes = all},
     FSDPCK_USAGE,
     "the box has another number of dims than the tensor"},
    {{.name = "w", .ndim = 3, .offsets = outside, .sizes = all},
     FSDPCK_USAGE,
     "the box is not inside of the tensor"},
    {{.name = "w", .ndim = 3, .offsets = outside},
     FSDPCK_USAGE,
     "an entry with offsets or another number of dims requires sizes"},
    {{.name = "w", .memory_nbytes = sizeof room}, FSDPCK_USAGE, "an entry has no memory"},
    {{.name = "w", .memory = room, .memory_nbytes = sizeof room - 1},
     FSDPCK_USAGE,
     "too little memory for the box"},
    {{.name = "w",
      .ndim = 3,
      .sizes = all,
      .strides = huge,
      .memory = room,
      .memory_nbytes = sizeof room},
     FSDPCK_USAGE,
     "the strides exceed 64 bits"},
    {{.name = "v", .dtype = "float32", .memory = room, .memory_nbytes = sizeof room},
     FSDPCK_UNSUPPORTED,
     NULL},
};

Test(load, refusals_write_nothing)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    scratch_make(dir);
    write_model(dir);
    begin(false);
    open_source(scratch_path(path, dir, "m.safetensors"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        fsdpck_load_tensor t = refused[i].t;
        t.struct_nbytes = sizeof t;
        err = (fsdpck_error)FSDPCK_ERROR_INIT;
        cr_expect_eq(fsdpck_load(ctx, src, &t, 1, NULL, &err), refused[i].status, "%zu: %s", i,
                     err.message);
        if (refused[i].message != NULL)
            cr_expect_str_eq(err.message, refused[i].message);
    }
    for (size_t i = 0; i < sizeof room / sizeof *room; i++)
        cr_assert_eq(room[i], 0);
    cr_expect_eq(fsdpck_load(ctx, src, NULL, 0, NULL, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_close(src);
    end();
    scratch_remove(dir);
}

/* Each call of the device fails once: the failure is reported, and nothing remains. */
Test(load, failures_of_the_device)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    fsdpck_status st = FSDPCK_DEVICE;
    scratch_make(dir);
    write_model(dir);
    for (uint64_t at = 1; st != FSDPCK_OK; at++) {
        begin(true);
        open_source(scratch_path(path, dir, "m.safetensors"));
        fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
        fsdpck_load_options options = FSDPCK_INIT(fsdpck_load_options);
        fsdpck_load_tensor t = FSDPCK_INIT(fsdpck_load_tensor);
        work.threads = 1;
        options.work = &work;
        t.name = "w";
        t.memory = device_memory_new(device, room, sizeof room);
        t.memory_nbytes = sizeof room;
        fake.fail_at = atomic_load(&fake.calls) + at;
        st = load_with_gpu(ctx, src, &t, 1, &options, device, &err);
        cr_expect(st == FSDPCK_OK || st == FSDPCK_DEVICE, "%" PRIu64 ": %s", at, err.message);
        cr_assert(st == FSDPCK_OK || at < 100);
        fake.fail_at = 0;
        device_memory_free(device, t.memory);
        fsdpck_close(src);
        end();
    }
    scratch_remove(dir);
}
