/* A folder of DeepSpeed on two ranks: a byte (its kind), then files, each after its length (4 bytes, little-endian), in
 * the order of `names`. A length that extends past the end ends the folder. An accepted input has every chunk inside its
 * file and every box inside its tensor, the elements of a tensor fit its chunks, and all memory is freed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "formats/deepspeed/deepspeed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { FILES = 9, KINDS = 3, UNIVERSAL = 2 };

/* The reader requires a folder: one for the life of the process. */
static char scratch[512];
static const char *const folders[] = {"zero", "zero/a", "zero/b", "zero/buffer"};
/* ZeRO 1 and 2, ZeRO 3, a universal checkpoint. */
static const char *const names[KINDS][FILES] = {
    {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
     "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt"},
    {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
     "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"},
    {"mp_rank_00_model_states.pt", "zero/optimizer_state.pt", "zero/a/fp32.pt", "zero/a/exp_avg.pt",
     "zero/a/step.pt", "zero/b/fp32.pt", "zero/b/exp_avg.pt", "zero/b/step.pt",
     "zero/buffer/fp32.pt"}};

static void path_of(char *path, size_t capacity, const char *name)
{
    snprintf(path, capacity, "%s/%s", scratch, name);
}

static void remove_files(void)
{
    char path[600];
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned i = 0; i < FILES && names[k][i] != NULL; i++) {
            path_of(path, sizeof path, names[k][i]);
            unlink(path);
        }
}

static void remove_scratch(void)
{
    char path[600];
    remove_files();
    for (unsigned i = sizeof folders / sizeof *folders; i-- > 0;) {
        path_of(path, sizeof path, folders[i]);
        rmdir(path);
    }
    rmdir(scratch);
}

static void write_file(const char *name, const uint8_t *data, size_t nbytes)
{
    char path[600];
    path_of(path, sizeof path, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || (nbytes > 0 && fwrite(data, 1, nbytes, f) != nbytes) || fclose(f) != 0)
        abort();
}

static void check_chunk(const catalogue *cat, const source *src, uint64_t chunk)
{
    const cat_chunk *k = catalogue_chunk(cat, chunk);
    const cat_tensor *t = catalogue_tensor(cat, k->tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint64_t last = 0;
    place where;

    catalogue_chunk_box(cat, chunk, offsets, sizes);
    for (unsigned d = 0; d < t->ndim; d++)
        if (offsets[d] + sizes[d] > catalogue_shape(cat, k->tensor)[d])
            abort();
    if (k->place == LOCATION_EMPTY || src->locate(src->ctx, chunk, &where, NULL) != FSDPCK_OK)
        return;
    if (k->place == LOCATION_ROWS &&
        (k->offset_bytes != where.offset_bytes || !where.rows || where.swap || where.stream))
        abort();
    for (unsigned d = 0; d < t->ndim; d++)
        last += (sizes[d] - 1) * where.strides[d];
    last = where.offset_bytes + (last + 1) * itemsize;
    if (where.offset_bytes < where.record_offset_bytes ||
        last > where.record_offset_bytes + where.record_nbytes)
        abort();
    if (!where.stream && last > catalogue_file(cat, where.file)->nbytes)
        abort();
}

static fsdpck_status check_value(void *ctx, value v, fsdpck_error *err)
{
    const catalogue *cat = ctx;
    (void)err;
    if (value_kind_of(v) == VALUE_HOST)
        abort();
    if (value_kind_of(v) == VALUE_TENSOR &&
        (value_tensor_index(v) >= catalogue_tensor_count(cat) ||
         !(catalogue_tensor(cat, value_tensor_index(v))->flags & CAT_TENSOR_IN_OBJECT)))
        abort();
    return FSDPCK_OK;
}

static void open_once(const format_reader *reader, probe_input *in, bool opaque)
{
    fsdpck_error err;
    catalogue cat;
    source src;
    budget b;
    void *self = NULL;

    fsdpck_error_init(&err);
    budget_init(&b, 64 << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    const open_request req = {
        .path = scratch, .probe = in, .metadata = &b, .nthreads = 1, .opaque_calls = opaque};
    const fsdpck_status st = reader->open(&req, &cat, &self, &err);
    if (st != FSDPCK_OK && err.message[0] == '\0')
        abort();
    if (st == FSDPCK_OK) {
        reader->source(self, &cat, &src);
        for (uint64_t i = 0; i < catalogue_chunk_count(&cat); i++)
            check_chunk(&cat, &src, i);
        for (size_t i = 0; i < catalogue_object_count(&cat); i++)
            if (value_walk(&cat.pool, catalogue_object(&cat, i)->content, check_value, &cat,
                           NULL) != FSDPCK_OK)
                break;
        reader->close(self);
    }
    catalogue_release(&cat);
    if (b.used_bytes != 0)
        abort();
}

static void make_scratch(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/fuzz_deepspeed.%ld", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    if (mkdir(scratch, 0700) != 0)
        abort();
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[600];
        path_of(path, sizeof path, folders[i]);
        if (mkdir(path, 0700) != 0)
            abort();
    }
    atexit(remove_scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char *entries[FILES];
    probe_input in = {.path = scratch, .is_folder = true, .entries = entries};

    if (scratch[0] == '\0')
        make_scratch();
    if (nbytes < 1)
        return 0;
    const unsigned kind = data[0] % KINDS;
    const format_reader *reader =
        kind == UNIVERSAL ? &deepspeed_universal_reader : &deepspeed_reader;
    data++;
    nbytes--;
    remove_files();
    while (in.entry_count < FILES && names[kind][in.entry_count] != NULL && nbytes >= 4) {
        const size_t length = load_le32(data);
        const char *name = names[kind][in.entry_count];
        data += 4;
        nbytes -= 4;
        if (length > nbytes)
            break;
        write_file(name, data, length);
        entries[in.entry_count++] = (char *)(uintptr_t)name;
        data += length;
        nbytes -= length;
    }
    in.dir = FOLDER_CLOSED;
    open_once(reader, &in, false);
    open_once(reader, &in, true);
    return 0;
}
