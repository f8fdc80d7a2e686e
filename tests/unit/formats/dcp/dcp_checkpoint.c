#include "tests/unit/formats/dcp/dcp_checkpoint.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "formats/dcp/dcp.h"
#include "tests/support/scratch.h"

static void record_log(void *ctx, const log_line *line)
{
    text_printf(ctx, "%s [%s] %s\n", line->text, fsdpck_finding_name(line->finding), line->next);
}

void dcp_checkpoint_prepare(dcp_checkpoint *o, const char *path)
{
    *o = (dcp_checkpoint){0};
    fsdpck_error_init(&o->err);
    cr_assert_eq(folder_open(&o->dir, path, &o->err), FSDPCK_OK, "%s: %s", path, o->err.message);
    cr_assert_eq(folder_list(&o->dir, NULL, &o->names, &o->probe.entry_count, &o->err), FSDPCK_OK,
                 "%s", o->err.message);
    o->probe.path = path;
    o->probe.is_folder = true;
    o->probe.dir = o->dir;
    o->probe.entries = o->names;
    budget_init(&o->metadata, UINT64_C(1) << 30, "metadata", NULL);
    o->request = (open_request){
        .path = path,
        .probe = &o->probe,
        .metadata = &o->metadata,
        .log = {.fn = record_log, .ctx = &o->log},
        .nthreads = 2,
    };
    catalogue_init(&o->cat, &o->metadata);
}

fsdpck_status dcp_checkpoint_open(dcp_checkpoint *o)
{
    const fsdpck_status st = dcp_reader.open(&o->request, &o->cat, &o->self, &o->err);
    o->is_open = st == FSDPCK_OK;
    if (o->is_open)
        dcp_reader.source(o->self, &o->cat, &o->src);
    return st;
}

fsdpck_status dcp_checkpoint_open_path(dcp_checkpoint *o, const char *path)
{
    dcp_checkpoint_prepare(o, path);
    return dcp_checkpoint_open(o);
}

void dcp_checkpoint_close(dcp_checkpoint *o)
{
    if (o->is_open)
        dcp_reader.close(o->self);
    catalogue_release(&o->cat);
    cr_assert_eq(o->metadata.used_bytes, 0, "%" PRIu64 " bytes are still accounted for",
                 (uint64_t)o->metadata.used_bytes);
    folder_close(&o->dir);
    free(o->names);
    text_release(&o->log);
}

const char *fixture_path(char *path, size_t nbytes, const char *name)
{
    const char *root = getenv("FIXTURES");
    cr_assert_not_null(root, "FIXTURES is not set");
    snprintf(path, nbytes, "%s/%s", root, name);
    return path;
}

/* Bytes of the record, through the stream where it is compressed. */
static fsdpck_status read_record(dcp_checkpoint *o, uint64_t chunk, const place *where,
                                 uint8_t *record)
{
    source_stream *s;
    if (!where->stream)
        return o->src.read_at(o->src.ctx, where->file, where->record_offset_bytes, record,
                              where->record_nbytes, &o->err);
    RETURN_IF(o->src.stream_open(o->src.ctx, chunk, &s, &o->err));
    uint8_t *skipped = malloc((size_t)where->record_offset_bytes + 1);
    fsdpck_status st = o->src.stream_read(s, skipped, where->record_offset_bytes, &o->err);
    free(skipped);
    if (st == FSDPCK_OK)
        st = o->src.stream_read(s, record, where->record_nbytes, &o->err);
    if (st == FSDPCK_OK)
        st = o->src.stream_finish(s, &o->err);
    o->src.stream_close(s);
    return st;
}

/* Element by element: slow and plain, so that it proves something. */
static fsdpck_status place_chunk(dcp_checkpoint *o, uint64_t chunk, uint8_t *full)
{
    const cat_chunk *c = catalogue_chunk(&o->cat, chunk);
    const cat_tensor *t = catalogue_tensor(&o->cat, c->tensor);
    const size_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX];
    place where;

    if (c->place == LOCATION_EMPTY)
        return FSDPCK_OK;
    RETURN_IF(o->src.locate(o->src.ctx, chunk, &where, &o->err));
    uint8_t *record = malloc((size_t)where.record_nbytes + 1);
    const fsdpck_status st = read_record(o, chunk, &where, record);
    catalogue_chunk_box(&o->cat, chunk, offsets, sizes);
    box_row_major_strides(catalogue_shape(&o->cat, c->tensor), t->ndim, strides);
    const uint64_t nelems = box_nelems(sizes, t->ndim);
    for (uint64_t i = 0; i < nelems && st == FSDPCK_OK; i++) {
        uint64_t rest = i, from = 0, to = 0;
        for (unsigned d = t->ndim; d-- > 0;) {
            from += rest % sizes[d] * where.strides[d];
            to += (offsets[d] + rest % sizes[d]) * strides[d];
            rest /= sizes[d];
        }
        memcpy(full + to * item,
               record + (where.offset_bytes - where.record_offset_bytes) + from * item, item);
    }
    free(record);
    return st;
}

fsdpck_status dcp_checkpoint_digest(dcp_checkpoint *o, uint32_t tensor, char digest[17],
                                    char label[256])
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    const uint64_t nbytes = catalogue_tensor_nbytes(&o->cat, tensor);
    uint8_t *full = malloc((size_t)nbytes + 1);
    fsdpck_status st = FSDPCK_OK;
    text_buf text = {0};

    memset(full, 0xA5, (size_t)nbytes);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks && st == FSDPCK_OK; k++)
        st = place_chunk(o, k, full);
    text_printf(&text, "%s[", dtype_get((dtype)t->dtype)->name);
    for (unsigned d = 0; d < t->ndim; d++)
        text_printf(&text, "%s%" PRIu64, d > 0 ? "," : "", catalogue_shape(&o->cat, tensor)[d]);
    text_puts(&text, "]");
    snprintf(label, 256, "%s", text.text);
    text_puts(&text, "\n");
    const uint64_t crc = crc64_update(crc64_update(0, text.text, text.nbytes), full, nbytes);
    snprintf(digest, 17, "%016" PRIx64, crc);
    text_release(&text);
    free(full);
    return st;
}

void copy_folder(const char *from, const char *to)
{
    folder dir;
    char **names;
    size_t count;
    cr_assert_eq(folder_open(&dir, from, NULL), FSDPCK_OK);
    cr_assert_eq(folder_list(&dir, NULL, &names, &count, NULL), FSDPCK_OK);
    for (size_t i = 0; i < count; i++) {
        char *bytes;
        size_t nbytes;
        cr_assert_eq(file_read_whole(&dir, names[i], 1u << 30, &bytes, &nbytes, NULL), FSDPCK_OK);
        scratch_write(to, names[i], bytes, nbytes);
        free(bytes);
    }
    free(names);
    folder_close(&dir);
}
