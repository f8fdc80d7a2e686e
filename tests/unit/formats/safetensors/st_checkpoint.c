#include "st_checkpoint.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "tests/support/scratch.h"

static void keep_log(void *ctx, const log_line *line)
{
    st_checkpoint *o = ctx;
    const size_t n = strlen(o->log);
    snprintf(o->log + n, sizeof o->log - n, "%s%s%s\n", fsdpck_finding_name(line->finding),
             line->finding == FSDPCK_FINDING_NONE ? "" : ": ", line->text);
}

static void gather_probe(probe_input *in, const char *path)
{
    fsdpck_error err;
    path_kind kind;
    *in = (probe_input){.path = path, .dir = FOLDER_CLOSED};
    cr_assert_eq(path_probe(NULL, path, &kind, &in->nbytes, &err), FSDPCK_OK);
    cr_assert_neq(kind, PATH_ABSENT, "%s is not there: make the fixtures", path);
    in->is_folder = kind == PATH_FOLDER;
    if (in->is_folder) {
        cr_assert_eq(folder_open(&in->dir, path, &err), FSDPCK_OK);
        cr_assert_eq(folder_list(&in->dir, ".", &in->entries, &in->entry_count, &err), FSDPCK_OK);
        return;
    }
    file f;
    in->name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    in->head_nbytes = in->nbytes < sizeof in->head ? (size_t)in->nbytes : sizeof in->head;
    cr_assert_eq(file_open_read(&f, NULL, path, 0, &err), FSDPCK_OK);
    cr_assert_eq(file_read_at(&f, 0, in->head, in->head_nbytes, &err), FSDPCK_OK);
    file_abandon(&f);
}

static void drop_probe(probe_input *in)
{
    free(in->entries);
    if (in->is_folder)
        folder_close(&in->dir);
}

bool st_checkpoint_probes(const format_reader *reader, const char *path)
{
    probe_input in;
    const char *near_miss = NULL;
    gather_probe(&in, path);
    const bool yes = reader->probe(&in, &near_miss);
    drop_probe(&in);
    return yes;
}

fsdpck_status st_checkpoint_open(st_checkpoint *o, const format_reader *reader, const char *path)
{
    budget_init(&o->owner, (uint64_t)1 << 30, "metadata", NULL);
    fsdpck_error_init(&o->err);
    gather_probe(&o->probe, path);
    catalogue_init(&o->cat, &o->owner);
    o->reader = reader;
    o->req.path = path;
    o->req.probe = &o->probe;
    o->req.metadata = &o->owner;
    o->req.nthreads = 3;
    o->req.log = (logger){.fn = keep_log, .ctx = o};
    const fsdpck_status st = reader->open(&o->req, &o->cat, &o->self, &o->err);
    if (st == FSDPCK_OK)
        reader->source(o->self, &o->cat, &o->src);
    else
        cr_expect_null(o->self);
    return st;
}

void st_checkpoint_close(st_checkpoint *o)
{
    if (o->self != NULL)
        o->reader->close(o->self);
    catalogue_release(&o->cat);
    drop_probe(&o->probe);
    cr_expect_eq(o->owner.used_bytes, 0, "everything is given back to the budget");
}

/* The tensor's bytes, assembled element by element from its chunks. */
static uint8_t *assemble(st_checkpoint *o, uint32_t tensor)
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint64_t *shape = catalogue_shape(&o->cat, tensor);
    uint8_t *whole = calloc(1, catalogue_tensor_nbytes(&o->cat, tensor) + 1);
    uint64_t strides[NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
    box_row_major_strides(shape, t->ndim, strides);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        if (catalogue_chunk(&o->cat, k)->place == LOCATION_EMPTY)
            continue;
        place where;
        cr_assert_eq(o->src.locate(o->src.ctx, k, &where, &o->err), FSDPCK_OK);
        cr_assert(where.rows);
        catalogue_chunk_box(&o->cat, k, offsets, sizes);
        for (uint64_t i = 0; i < box_nelems(sizes, t->ndim); i++) {
            uint64_t rest = i, from = 0, to = 0;
            for (unsigned d = t->ndim; d-- > 0;) {
                from += rest % sizes[d] * where.strides[d];
                to += (offsets[d] + rest % sizes[d]) * strides[d];
                rest /= sizes[d];
            }
            cr_assert_eq(o->src.read_at(o->src.ctx, where.file,
                                        where.offset_bytes + from * itemsize, whole + to * itemsize,
                                        itemsize, &o->err),
                         FSDPCK_OK, "%s", o->err.message);
        }
    }
    return whole;
}

/* "digest  dtype[d0,d1]  name" as the program digest prints it. */
static void digest_line(st_checkpoint *o, uint32_t tensor, char *line, size_t capacity)
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    char head[512];
    size_t n = (size_t)snprintf(head, sizeof head, "%s[", dtype_get((dtype)t->dtype)->name);
    for (unsigned d = 0; d < t->ndim; d++)
        n += (size_t)snprintf(head + n, sizeof head - n, "%s%" PRIu64, d > 0 ? "," : "",
                              catalogue_shape(&o->cat, tensor)[d]);
    n += (size_t)snprintf(head + n, sizeof head - n, "]");
    uint8_t *bytes = assemble(o, tensor);
    uint64_t crc = crc64_update(0, head, n);
    crc = crc64_update(crc, "\n", 1);
    crc = crc64_update(crc, bytes, catalogue_tensor_nbytes(&o->cat, tensor));
    free(bytes);
    snprintf(line, capacity, "%016" PRIx64 "  %s  %s", crc, head, catalogue_name(&o->cat, t->name));
}

void st_checkpoint_expect_digests(st_checkpoint *o, const char *digests_path)
{
    FILE *f = fopen(digests_path, "r");
    cr_assert_not_null(f, "%s", digests_path);
    char want[1024], got[1024];
    size_t lines = 0;
    while (fgets(want, sizeof want, f) != NULL) {
        want[strcspn(want, "\n")] = '\0';
        const char *name = strstr(strchr(want, '['), "  ") + 2;
        const uint32_t tensor = catalogue_find(&o->cat, name, strlen(name));
        cr_assert_neq(tensor, CAT_NONE, "no tensor '%s'", name);
        digest_line(o, tensor, got, sizeof got);
        cr_expect_str_eq(got, want);
        lines++;
    }
    fclose(f);
    cr_expect_eq(catalogue_tensor_count(&o->cat), lines);
}

const char *fixture(const char *name)
{
    static char paths[2][512];
    static unsigned turn;
    turn ^= 1u;
    const char *root = getenv("FIXTURES");
    snprintf(paths[turn], sizeof paths[turn], "%s/torch-2.15.0/%s",
             root != NULL ? root : "tests/fixtures", name);
    return paths[turn];
}

void write_safetensors(const char *dir, const char *name, const char *header, size_t data_nbytes)
{
    const size_t n = strlen(header);
    uint8_t *bytes = calloc(1, 8 + n + data_nbytes);
    cr_assert_not_null(bytes);
    store_le64(bytes, n);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < data_nbytes; i++)
        bytes[8 + n + i] = (uint8_t)(i + 1);
    scratch_write(dir, name, bytes, 8 + n + data_nbytes);
    free(bytes);
}
