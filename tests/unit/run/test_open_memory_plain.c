/* fsdpck_open_memory: large tensors, tensors that share memory, parts, averages, adapters; entries that contradict each other
 * are refused, and write nothing. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdpck_memory.h"
#include "fsdpck_verify.h"
#include "open/memory_checkpoint.h"
#include "tests/support/device_memory.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/scratch.h"

static fsdpck_context *ctx;
static fsdpck_error err;
static fake_gpu fake;
static gpu *device; /* NULL: memory of the host */

static void begin(bool on_device)
{
    ctx = fsdpck_context_new();
    err = (fsdpck_error)FSDPCK_ERROR_INIT;
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

static void close_model(fsdpck_checkpoint *c)
{
    fsdpck_close(c);
    end();
}

static uint64_t count_differences(fsdpck_checkpoint *a, const char *path)
{
    fsdpck_checkpoint *b = NULL;
    fsdpck_diff *d = NULL;
    fsdpck_diff_info info = FSDPCK_INIT(fsdpck_diff_info);
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &b, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(fsdpck_diff_new(ctx, a, b, NULL, &d, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_diff_get_info(d, &info);
    cr_assert_eq(info.tensors_a, info.tensors_b);
    fsdpck_diff_free(d);
    fsdpck_close(b);
    return info.rows;
}

static void consolidate(fsdpck_checkpoint *c, const char *path)
{
    cr_assert_eq(fsdpck_consolidate(ctx, c, path, NULL, NULL, &err), FSDPCK_OK, "%s: %s %s", path,
                 err.tensor, err.message);
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

static fsdpck_memory_tensor plain(const char *name, const char *type, size_t ndim,
                                  const uint64_t *shape, const void *memory, uint64_t nbytes)
{
    fsdpck_memory_tensor t = FSDPCK_INIT(fsdpck_memory_tensor);
    t.name = name;
    t.dtype = type;
    t.ndim = ndim;
    t.shape = shape;
    t.memory = memory;
    t.memory_nbytes = nbytes;
    return t;
}

static fsdpck_checkpoint *open_host(const fsdpck_memory_tensor *t, size_t n)
{
    fsdpck_checkpoint *c = NULL;
    cr_assert_eq(fsdpck_open_memory(ctx, t, n, NULL, &c, &err), FSDPCK_OK, "%s: %s", err.tensor,
                 err.message);
    return c;
}

/* Rows beyond the buffers of one copy, and a transposed view of them. */
Test(open_memory_plain, large_tensors)
{
    enum { ROWS = 3001, COLUMNS = 1009 };
    static int32_t values[ROWS * COLUMNS], found[ROWS * COLUMNS];
    const uint64_t shape[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS}, strides[] = {1, COLUMNS};
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = i * 7;
    for (int on_device = 0; on_device < 2; on_device++) {
        fsdpck_checkpoint *c = NULL, *written = NULL;
        scratch_make(dir);
        begin(on_device == 1);
        void *memory = device_memory_new(device, values, sizeof values);
        fsdpck_memory_tensor t[] = {plain("a", "int32", 2, shape, memory, sizeof values),
                                    plain("b", "int32", 2, turned, memory, sizeof values)};
        t[1].strides = strides;
        cr_assert_eq(open_memory_with_gpu(ctx, t, 2, NULL, device, &c, &err), FSDPCK_OK);
        consolidate(c, scratch_path(path, dir, "m.safetensors"));
        fsdpck_load_tensor wanted = FSDPCK_INIT(fsdpck_load_tensor);
        wanted.memory = found;
        wanted.memory_nbytes = sizeof found;
        cr_assert_eq(fsdpck_open(ctx, path, NULL, &written, &err), FSDPCK_OK);
        wanted.name = "a";
        cr_assert_eq(fsdpck_load(ctx, written, &wanted, 1, NULL, &err), FSDPCK_OK);
        cr_expect_arr_eq(found, values, sizeof values);
        wanted.name = "b";
        cr_assert_eq(fsdpck_load(ctx, written, &wanted, 1, NULL, &err), FSDPCK_OK);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            cr_assert_eq(found[i], values[i % ROWS * COLUMNS + i / ROWS], "%d", i);
        fsdpck_close(written);
        fsdpck_close(c);
        device_memory_free(device, memory);
        end();
        scratch_remove(dir);
    }
}

/* torch's expand, two names of one storage, views into it, and two that overlap. */
Test(open_memory_plain, tensors_share_memory)
{
    static const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const float others[] = {10, 11, 12, 13, 14, 15};
    static const uint64_t all[] = {10}, four[] = {4}, part[] = {3, 2}, none[] = {0, 0},
                          two[] = {2, 0};
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    float found[10];
    fsdpck_memory_tensor t[] = {
        plain("lm_head.weight", "float32", 1, all, values, sizeof values),
        plain("embed.weight", "float32", 1, all, values, sizeof values),
        plain("row", "float32", 2, part, &values[4], 4),
        plain("column", "float32", 2, part, &values[4], 6 * 4),
        plain("head", "float32", 1, four, others, 16),
        plain("tail", "float32", 1, four, &others[2], 16),
    };
    static const float rows[] = {4, 4, 4, 4, 4, 4}, columns[] = {4, 4, 6, 6, 8, 8};
    const float *const wanted[] = {values, values, rows, columns, others, &others[2]};
    const size_t nbytes[] = {40, 40, 24, 24, 16, 16};
    t[2].strides = none;
    t[3].strides = two;
    scratch_make(dir);
    begin(false);
    fsdpck_checkpoint *c = open_host(t, 6), *written = NULL;
    consolidate(c, scratch_path(path, dir, "m.safetensors"));
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &written, &err), FSDPCK_OK);
    for (size_t i = 0; i < 6; i++) {
        fsdpck_load_tensor one = FSDPCK_INIT(fsdpck_load_tensor);
        one.name = t[i].name;
        one.memory = found;
        one.memory_nbytes = sizeof found;
        cr_assert_eq(fsdpck_load(ctx, written, &one, 1, NULL, &err), FSDPCK_OK, "%s", err.message);
        cr_expect_arr_eq(found, wanted[i], nbytes[i], "%s", t[i].name);
    }
    fsdpck_close(written);
    close_model(c);
    scratch_remove(dir);
}

/* Names decide the parts; a changed bit is found. */
Test(open_memory_plain, parts_and_differences)
{
    static const uint64_t shape[] = {2, 3}, one[] = {1};
    float weight[] = {1, 2, 3, 4, 5, 6}, moment[] = {6, 5, 4, 3, 2, 1}, step = 9;
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    fsdpck_memory_tensor t[] = {
        plain("model.up.weight", "float32", 2, shape, weight, sizeof weight),
        plain("optim.state.up.weight.exp_avg", "float32", 2, shape, moment, sizeof moment),
        plain("optim.state.up.weight.exp_avg_sq", "float32", 2, shape, moment, sizeof moment),
        plain("optim.state.up.weight.step", "float32", 1, one, &step, sizeof step),
    };
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    scratch_make(dir);
    begin(false);
    fsdpck_checkpoint *c = open_host(t, 4);
    fsdpck_get_info(c, &info);
    cr_expect_str_eq(info.path, "(memory)");
    cr_expect_str_eq(info.format, "memory");
    cr_expect_eq(info.format_id, FSDPCK_FORMAT_MEMORY);
    cr_expect_eq(info.part_tensors[FSDPCK_PART_MODEL], 1);
    cr_expect_eq(info.part_tensors[FSDPCK_PART_OPTIMIZER], 3);
    consolidate_as(c, scratch_path(path, dir, "all"), "dcp");
    cr_expect_eq(count_differences(c, path), 0);
    moment[4] = 7;
    cr_expect_eq(count_differences(c, path), 2);
    close_model(c);
    scratch_remove(dir);
}

Test(open_memory_plain, averages)
{
    static const uint64_t shape[] = {3};
    static const float a[] = {1, 2, 3}, b[] = {3, 6, 9}, mean[] = {2, 4, 6};
    const fsdpck_memory_tensor of_a = plain("w", "float32", 1, shape, a, sizeof a),
                               of_b = plain("w", "float32", 1, shape, b, sizeof b);
    float found[3];
    begin(false);
    fsdpck_checkpoint *inputs[] = {open_host(&of_a, 1), open_host(&of_b, 1)}, *c = NULL;
    cr_assert_eq(fsdpck_average(ctx, inputs, 2, NULL, &c, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_load_tensor wanted = FSDPCK_INIT(fsdpck_load_tensor);
    wanted.name = "w";
    wanted.memory = found;
    wanted.memory_nbytes = sizeof found;
    cr_expect_eq(fsdpck_load(ctx, c, &wanted, 1, NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_arr_eq(found, mean, sizeof mean);
    fsdpck_close(c);
    fsdpck_close(inputs[1]);
    close_model(inputs[0]);
}

/* The config of an adapter in the working folder is that of another one. */
Test(open_memory_plain, nothing_is_beside)
{
    static const uint64_t down[] = {2, 4}, up[] = {4, 2};
    static const float factor[8];
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    const fsdpck_memory_tensor t[] = {
        plain("base_model.model.q_proj.lora_A.weight", "float32", 2, down, factor, sizeof factor),
        plain("base_model.model.q_proj.lora_B.weight", "float32", 2, up, factor, sizeof factor)};
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    scratch_make(dir);
    scratch_write(dir, "adapter_config.json", "{", 1);
    cr_assert_eq(chdir(dir), 0);
    begin(false);
    fsdpck_checkpoint *c = open_host(t, 2);
    consolidate(c, scratch_path(path, dir, "m.safetensors"));
    for (size_t i = 0; fsdpck_context_warning(ctx, i, &w); i++)
        cr_expect_neq(w.finding, FSDPCK_FINDING_LORA_CONFIG, "%s", w.message);
    close_model(c);
    cr_assert_eq(chdir("/"), 0);
    scratch_remove(dir);
}

/* ---- refusals ---- */

static const uint64_t shape_of[] = {4, 3}, huge[] = {UINT64_MAX / 2, 1}, outside[] = {0, 1},
                      half[] = {2, 3}, second[] = {1, 0}, enormous[] = {1ull << 40, 1ull << 40};
static float room[12];

#define MEMORY .memory = room, .memory_nbytes = sizeof room
#define GOOD   .name = "w", .dtype = "float32", .ndim = 2, .shape = shape_of

static const struct {
    fsdpck_memory_tensor t;
    fsdpck_status status;
    const char *message;
} refused[] = {
    {{.dtype = "float32", .ndim = 2, .shape = shape_of, MEMORY},
     FSDPCK_USAGE,
     "entry 0 of fsdpck_open_memory has no name"},
    {{.name = "", .dtype = "float32", .ndim = 2, .shape = shape_of, MEMORY},
     FSDPCK_USAGE,
     "entry 0 of fsdpck_open_memory has no name"},
    {{.name = "w", .ndim = 2, .shape = shape_of, MEMORY}, FSDPCK_USAGE, "an entry has no dtype"},
    {{.name = "w", .dtype = "float33", .ndim = 2, .shape = shape_of, MEMORY},
     FSDPCK_USAGE,
     "unknown dtype 'float33'"},
    {{.name = "w", .dtype = "float32", .ndim = 65, .shape = shape_of, MEMORY},
     FSDPCK_USAGE,
     "an entry has too many dims"},
    {{.name = "w", .dtype = "float32", .ndim = 2, MEMORY}, FSDPCK_USAGE, "an entry has no shape"},
    {{.name = "w", .dtype = "float32", .ndim = 2, .shape = enormous, MEMORY},
     FSDPCK_BADINPUT,
     NULL},
    {{GOOD, .offsets = outside, MEMORY},
     FSDPCK_USAGE,
     "an entry with offsets or another number of dims requires sizes"},
    {{GOOD, .offsets = outside, .sizes = shape_of, MEMORY},
     FSDPCK_USAGE,
     "the box is not inside of the tensor"},
    {{GOOD, .memory_nbytes = sizeof room}, FSDPCK_USAGE, "an entry has no memory"},
    {{GOOD, .memory = room, .memory_nbytes = sizeof room - 1},
     FSDPCK_USAGE,
     "too little memory for the box"},
    {{GOOD, .strides = shape_of, MEMORY}, FSDPCK_USAGE, "too little memory for the box"},
    {{GOOD, .strides = huge, MEMORY}, FSDPCK_USAGE, "the strides exceed 64 bits"},
};

Test(open_memory_plain, entries_are_checked)
{
    begin(false);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        fsdpck_memory_tensor t = refused[i].t;
        fsdpck_checkpoint *c = NULL;
        t.struct_nbytes = sizeof t;
        err = (fsdpck_error)FSDPCK_ERROR_INIT;
        cr_expect_eq(fsdpck_open_memory(ctx, &t, 1, NULL, &c, &err), refused[i].status, "%zu: %s",
                     i, err.message);
        cr_expect(c == NULL);
        if (refused[i].message != NULL)
            cr_expect_str_eq(err.message, refused[i].message);
    }
    const fsdpck_memory_tensor forgotten = {GOOD, MEMORY}; /* FSDPCK_INIT */
    fsdpck_memory_options options = FSDPCK_INIT(fsdpck_memory_options);
    fsdpck_checkpoint *c = NULL;
    cr_expect_eq(fsdpck_open_memory(ctx, &forgotten, 1, NULL, &c, &err), FSDPCK_USAGE);
    options.memory = 2;
    cr_expect_eq(fsdpck_open_memory(ctx, NULL, 0, &options, &c, &err), FSDPCK_USAGE);
    options.memory = FSDPCK_MEMORY_GPU;
    options.device = 1000000;
    cr_expect_eq(fsdpck_open_memory(ctx, NULL, 0, &options, &c, &err), FSDPCK_DEVICE);
    cr_expect(c == NULL);
    end();
}

/* Two entries of 'w' that a checkpoint cannot have, or not in this way. */
static void expect_refused(const fsdpck_memory_tensor *t, fsdpck_status opens, fsdpck_status writes,
                           fsdpck_finding_id finding)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    fsdpck_checkpoint *c = NULL;
    scratch_make(dir);
    begin(false);
    cr_assert_eq(fsdpck_open_memory(ctx, t, 2, NULL, &c, &err), opens, "%s", err.message);
    if (opens == FSDPCK_OK) {
        cr_expect_eq(
            fsdpck_consolidate(ctx, c, scratch_path(path, dir, "m.safetensors"), NULL, NULL, &err),
            writes, "%s", err.message);
        cr_expect_str_eq(err.tensor, "w");
    }
    cr_expect_eq(err.finding, finding, "%s", err.message);
    cr_expect_eq(scratch_count(dir), 0);
    close_model(c);
    scratch_remove(dir);
}

Test(open_memory_plain, entries_of_one_tensor_agree)
{
    static const float other[12] = {1};
    fsdpck_memory_tensor t[2] = {plain("w", "float32", 2, shape_of, room, sizeof room),
                                 plain("w", "int32", 2, shape_of, room, sizeof room)};
    expect_refused(t, FSDPCK_USAGE, FSDPCK_OK, FSDPCK_FINDING_NONE);
    t[1] = plain("w", "float32", 2, half, room, sizeof room);
    expect_refused(t, FSDPCK_USAGE, FSDPCK_OK, FSDPCK_FINDING_NONE);
    t[1] = plain("w", "float32", 2, shape_of, other, sizeof other);
    expect_refused(t, FSDPCK_OK, FSDPCK_BADINPUT, FSDPCK_FINDING_REPLICA_DIFFER);
    t[1].offsets = second;
    t[1].sizes = half;
    expect_refused(t, FSDPCK_OK, FSDPCK_BADINPUT, FSDPCK_FINDING_CHUNK_OVERLAP);
    t[0].sizes = half;
    t[1].offsets = NULL;
    expect_refused(t, FSDPCK_OK, FSDPCK_BADINPUT, FSDPCK_FINDING_CHUNK_GAP);
}

/* Ranks of a group have other memory each. */
Test(open_memory_plain, groups_and_files_do_not_apply)
{
    const fsdpck_memory_tensor t = plain("w", "float32", 2, shape_of, room, sizeof room);
    fsdpck_checkpoint *none = NULL;
    fsdpck_files *files = NULL;
    place where;
    begin(false);
    fsdpck_checkpoint *c = open_host(&t, 1);
    cr_expect_eq(fsdpck_files_new(ctx, c, 0, 0, &files, &err), FSDPCK_USAGE);
    ctx->group = (group *)ctx; /* no call of it is made */
    cr_expect_eq(fsdpck_open_memory(ctx, &t, 1, NULL, &none, &err), FSDPCK_USAGE);
    cr_expect_eq(c->src.locate(c->src.ctx, 0, &where, &err), FSDPCK_USAGE);
    ctx->group = NULL;
    close_model(c);
}

/* Each call of the device fails once: the failure is reported, and nothing remains. */
Test(open_memory_plain, failures_of_the_device)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    fsdpck_status st = FSDPCK_DEVICE;
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    fsdpck_consolidate_options options = FSDPCK_INIT(fsdpck_consolidate_options);
    work.threads = 1;
    options.work = &work;
    for (uint64_t at = 1; st != FSDPCK_OK; at++) {
        fsdpck_checkpoint *c = NULL;
        scratch_make(dir);
        begin(true);
        void *memory = device_memory_new(device, room, sizeof room);
        const fsdpck_memory_tensor t = plain("w", "float32", 2, shape_of, memory, sizeof room);
        fake.fail_at = atomic_load(&fake.calls) + at;
        st = open_memory_with_gpu(ctx, &t, 1, NULL, device, &c, &err);
        if (st == FSDPCK_OK)
            st = fsdpck_consolidate(ctx, c, scratch_path(path, dir, "m.safetensors"), &options,
                                    NULL, &err);
        cr_expect(st == FSDPCK_OK || st == FSDPCK_DEVICE, "%" PRIu64 ": %s", at, err.message);
        cr_expect_eq(scratch_count(dir), st == FSDPCK_OK ? 1 : 0, "%" PRIu64, at);
        cr_assert(st == FSDPCK_OK || at < 100);
        fake.fail_at = 0;
        fsdpck_close(c); /* a copy may still be on its way */
        device_memory_free(device, memory);
        end();
        scratch_remove(dir);
    }
}
