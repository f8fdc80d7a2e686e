/* fuzz_folder_reader.h: a reader of a folder under a fuzzer: its files, and checks of what it opens. Every chunk lies inside
 * its file and its record, every box inside its tensor, and all memory is freed. */
#ifndef FSDPCK_TESTS_FUZZ_FOLDER_READER_H
#define FSDPCK_TESTS_FUZZ_FOLDER_READER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format.h"

/* The readers require a folder: one for the life of the process. */
static char scratch[512];

static void path_of(char *path, size_t capacity, const char *name)
{
    snprintf(path, capacity, "%s/%s", scratch, name);
}

/* remove_all: removes the files and `scratch`, when the process ends. */
static void make_scratch(const char *name, void (*remove_all)(void))
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/%s.%ld", tmp != NULL ? tmp : "/tmp", name,
             (long)getpid());
    if (mkdir(scratch, 0700) != 0)
        abort();
    atexit(remove_all);
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

/* req: without `metadata`. */
static void open_and_check(const format_reader *reader, open_request req)
{
    fsdpck_error err;
    catalogue cat;
    source src;
    budget b;
    void *self = NULL;

    fsdpck_error_init(&err);
    budget_init(&b, 64 << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    req.metadata = &b;
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

#endif
