/* run_output.c: the files of an output: added, read, and read back after they are written. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/crc.h"
#include "base/platform.h"
#include "run/run.h"

#define MEMORY_DEFAULT ((uint64_t)256 << 20)
/* Tiles of 8 MiB for as many threads as a host of a GPU has. */
#define MEMORY_DEFAULT_GPU ((uint64_t)1 << 30)
/* Reading back goes in pieces of this size. */
#define READ_BACK_BYTES ((size_t)4 << 20)

uint64_t run_memory_nbytes(const run *r)
{
    return r->opt.work.memory_nbytes > 0 ? r->opt.work.memory_nbytes
                                         : run_memory_default_nbytes(r->opt.work.engine);
}

uint64_t run_memory_default_nbytes(fsdpck_engine engine)
{
    const uint64_t most = engine == FSDPCK_ENGINE_GPU ? MEMORY_DEFAULT_GPU : MEMORY_DEFAULT;
    const uint64_t quarter = platform_memory_bytes() / 4;
    const uint64_t memory = quarter < most ? quarter : most;
    return memory < EXEC_MEMORY_NBYTES_MIN ? EXEC_MEMORY_NBYTES_MIN : memory;
}

fsdpck_status run_add_file(run *r, size_t index, fsdpck_error *err)
{
    const cat_file *f = catalogue_file(&r->to.cat, index);
    const uint64_t nbytes = run_is_compressed(r) ? 0 : f->nbytes; /* not known yet */
    const bool direct = !run_is_compressed(r) &&
                        (r->opt.output.direct == FSDPCK_ON ||
                         (r->opt.output.direct == FSDPCK_AUTO && nbytes >= EXEC_DIRECT_NBYTES));
    size_t same;
    return output_add(&r->out, catalogue_name(&r->to.cat, f->path), nbytes, direct, &same, err);
}

bool run_is_compressed(const run *r)
{
    return r->to.pack.place != NULL;
}

output_kind run_output_kind(const run *r)
{
    return r->to.is_folder ? OUTPUT_FOLDER : OUTPUT_FILE;
}

unsigned run_output_flags(const run *r)
{
    return (r->opt.output.force || r->replaces_empty ? OUTPUT_REPLACE : 0u) |
           (r->opt.output.no_sync ? OUTPUT_NO_SYNC : 0u) |
           (r->ctx->group != NULL ? OUTPUT_SHARED : 0u);
}

fsdpck_status run_read_output(void *arg, size_t file_index, uint64_t offset_bytes, void *dst,
                              uint64_t nbytes, fsdpck_error *err)
{
    run *r = arg;
    if (r->local.on)
        return local_output_read(r, file_index, offset_bytes, dst, nbytes, err);
    return output_read_at(&r->out, file_index, offset_bytes, dst, nbytes, err);
}

static fsdpck_status read_back_differs(const run *r, uint32_t tensor, fsdpck_error *err)
{
    return FAIL_WITH(
        err, IO, READ_BACK, ("bytes read back from the output differ from those written"),
        (path, r->dst),
        (tensor, catalogue_name(&r->to.cat, catalogue_tensor(&r->to.cat, tensor)->name)));
}

static fsdpck_status read_back_chunk(run *r, const cat_chunk *k, uint32_t want, uint8_t *buffer,
                                     fsdpck_error *err)
{
    uint32_t crc = 0;
    for (uint64_t at = 0; at < k->nbytes;) {
        RETURN_IF(cancel_check(&r->ctx->cancel, err));
        const uint64_t left = k->nbytes - at;
        const uint64_t n = left < READ_BACK_BYTES ? left : READ_BACK_BYTES;
        RETURN_IF(output_read_at(&r->out, k->file, k->offset_bytes + at, buffer, n, err));
        crc = crc32_update(crc, buffer, n);
        progress_add(&r->ctx->progress, n);
        at += n;
    }
    if (crc == want)
        return FSDPCK_OK;
    const fsdpck_status st = read_back_differs(r, k->tensor, err);
    error_expected(err, "CRC-32 %08x", want);
    error_found(err, "%08x", crc);
    return st;
}

/* A chunk of a packed output. */
static fsdpck_status read_back_cell(run *r, uint64_t index, uint8_t *buffer, fsdpck_error *err)
{
    const filter_location *at = VEC_AT(&r->to.pack.places, const filter_location, index);
    filter_cell cell;
    RETURN_IF(cancel_check(&r->ctx->cancel, err));
    RETURN_IF(output_read_at(&r->out, 0, at->offset_bytes, buffer, at->nbytes, err));
    filter_get_cell(&r->to.pack, index, &cell);
    progress_add(&r->ctx->progress, cell.nbytes);
    const uint64_t crc = crc64_raw(0, buffer, at->nbytes);
    if (crc == at->crc64)
        return FSDPCK_OK;
    const fsdpck_status st = read_back_differs(r, cell.tensor, err);
    error_offset(err, at->offset_bytes);
    error_expected(err, "CRC-64 %016" PRIx64, at->crc64);
    error_found(err, "%016" PRIx64, crc);
    return st;
}

static bool is_on_this_host(const run *r, uint32_t file_index)
{
    return !r->local.on || r->local.here[file_index] != 0;
}

/* Syncs, drops what the page cache holds, and compares what the storage gives back. */
fsdpck_status run_read_back(run *r, fsdpck_error *err)
{
    uint8_t *buffer = malloc(READ_BACK_BYTES);
    if (buffer == NULL)
        return error_set_nomem(err, READ_BACK_BYTES);
    fsdpck_status st = FSDPCK_OK;
    plan_totals totals;
    plan_get_totals(r->plan, &totals);
    progress_phase(&r->ctx->progress, "reading back", totals.target_bytes);
    for (size_t i = 0; i < catalogue_file_count(&r->to.cat); i++)
        if (is_on_this_host(r, (uint32_t)i))
            GOTO_IF(output_drop_cache(&r->out, i, err), out);
    for (uint64_t i = 0; i < r->to.pack.places.count; i++)
        GOTO_IF(read_back_cell(r, i, buffer, err), out);
    for (uint64_t i = 0; !run_is_compressed(r) && i < catalogue_chunk_count(&r->to.cat); i++) {
        const cat_chunk *k = catalogue_chunk(&r->to.cat, i);
        if (k->place != LOCATION_EMPTY && is_on_this_host(r, k->file))
            GOTO_IF(read_back_chunk(r, k, r->to.chunk_crc[i], buffer, err), out);
    }
out:
    free(buffer);
    return st;
}
