/* dcp_payload.c: bytes of a blob, and its dtype and shape compared with the catalogue. */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp_internal.h"

fsdpck_status dcp_blob_read(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                            fsdpck_error *err)
{
    const dcp_blob_reader *r = ctx;
    return file_set_read_at(&r->d->blobs, r->file, offset_bytes, dst, nbytes, err);
}

static const char *print_sizes(text_buf *text, const uint64_t *sizes, unsigned ndim)
{
    text_puts(text, "[");
    for (unsigned i = 0; i < ndim; i++)
        text_printf(text, "%s%" PRIu64, i > 0 ? ", " : "", sizes[i]);
    text_puts(text, "]");
    return text->text != NULL ? text->text : "";
}

/* What to do about a blob whose shape is not that of its box. */
static const char *boxes_advice(const dcp_folder *d, uint64_t chunk, unsigned ndim,
                                const uint64_t *sizes)
{
    const uint32_t tensor = catalogue_chunk(d->cat, chunk)->tensor;
    const cat_tensor *t = catalogue_tensor(d->cat, tensor);
    const dcp_marks *m = &d->marks;
    uint64_t want[NDIM_MAX];
    unsigned differ = 0, dim = 0;

    catalogue_chunk_box(d->cat, chunk, NULL, want);
    for (unsigned i = 0; i < ndim && ndim == t->ndim; i++) {
        if (sizes[i] != want[i]) {
            differ++;
            dim = i;
        }
    }
    /* One dim alone, which is cut. */
    if (differ != 1 || want[dim] == catalogue_shape(d->cat, tensor)[dim])
        return "metadata and files are from different saves: copy both again";
    if (d->repaired)
        return "the blobs fit no layout of FSDP2 with tensor parallelism: the save lost part of "
               "this tensor; omit it with --exclude";
    if (!m->has_storage_meta && !m->has_version && !m->no_collectives && !m->old_properties)
        return "torch 2.3 records wrong boxes for FSDP2 with tensor parallelism: give --assume "
               "fsdp2-tp-2.3 if it wrote this checkpoint; otherwise metadata and files are from "
               "different saves";
    if (sizes[dim] > 0 && sizes[dim] < want[dim])
        return "if torch 2.10 or newer wrote the checkpoint, give --repair-strided; if torch 2.8 "
               "or 2.9 wrote it, the rest of this tensor was never written: these releases lose "
               "data where no order of sharding fits the placements ([Shard(0), _StridedShard(0, "
               "2)])";
    return "give --repair-strided: torch 2.10 to 2.15 record wrong boxes where a dim does not "
           "divide evenly; if that does not help, take metadata and files from one save";
}

/* Blob against catalogue. */
fsdpck_status dcp_payload_check(const dcp_folder *d, uint64_t chunk, dtype found, unsigned ndim,
                                const uint64_t *sizes, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(d->cat, catalogue_chunk(d->cat, chunk)->tensor);
    uint64_t want[NDIM_MAX];

    if (found != t->dtype)
        return FAIL_WITH(err, BADINPUT, DCP_PAYLOAD_DTYPE,
                         ("dtype of a blob differs from the metadata"),
                         (expected, "%s", dtype_get((dtype)t->dtype)->name),
                         (found, "%s", dtype_get(found)->name));
    catalogue_chunk_box(d->cat, chunk, NULL, want);
    if (ndim == t->ndim && memcmp(sizes, want, ndim * sizeof *want) == 0)
        return FSDPCK_OK;
    text_buf expected = {.limit_bytes = 4096}, got = {.limit_bytes = 4096};
    FAIL_WITH(err, BADINPUT, DCP_PAYLOAD_SHAPE, ("shape of a blob differs from the metadata"),
              (expected, "%s", print_sizes(&expected, want, t->ndim)),
              (found, "%s", print_sizes(&got, sizes, ndim)),
              (next, "%s", boxes_advice(d, chunk, ndim, sizes)));
    text_release(&expected);
    text_release(&got);
    return FSDPCK_BADINPUT;
}
