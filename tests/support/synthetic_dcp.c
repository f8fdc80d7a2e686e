#include "tests/support/synthetic_dcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "formats/dcp/dcp.h"
#include "tests/support/must.h"

#define HEAD 700u /* bytes of a blob before a chunk's elements, and after them */
#define TAIL 300u

void synthetic_dcp_must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

uint64_t synthetic_dcp_peak_nbytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* ---- the source ---- */

/* Flat key and path of torch: "model.layers.3.weight", "optim.state.layers.3.weight.exp_avg". */
static void add_tensor(synthetic_dcp *w, uint64_t i, fsdpck_error *err)
{
    static const char *const moments[] = {"", "exp_avg", "exp_avg_sq"};
    value_pool *pool = &w->from.pool;
    char fqn[64], name[96];
    uint64_t shape[2];
    uint32_t tensor;
    value path[4];
    size_t n = 0;
    w->model.name(i / 3, fqn, sizeof fqn);
    const int nbytes = i % 3 == 0
                           ? snprintf(name, sizeof name, "model.%s", fqn)
                           : snprintf(name, sizeof name, "optim.state.%s.%s", fqn, moments[i % 3]);
    const unsigned ndim = w->model.shape(i / 3, shape);
    must_be_ok(catalogue_add_tensor(&w->from, name, (size_t)nbytes, DTYPE_FLOAT32, ndim, shape,
                                    &tensor, err),
               err);
    const char *const texts[] = {i % 3 == 0 ? "model" : "optim", "state", fqn, moments[i % 3]};
    for (size_t k = 0; k < 4; k++) {
        if (i % 3 != 0 || k == 0 || k == 2)
            must_be_ok(value_new_str(pool, texts[k], strlen(texts[k]), &path[n++], err), err);
    }
    must_be_ok(
        value_new_from(pool, VALUE_TUPLE, path, n, &catalogue_tensor(&w->from, tensor)->path, err),
        err);
}

/* Rank r's part, by torch's rule; its bytes. */
static uint64_t piece_of(const synthetic_dcp *w, uint64_t tensor, uint32_t r, uint64_t *offsets,
                         uint64_t *sizes)
{
    const unsigned ndim = w->model.shape(tensor / 3, sizes);
    const uint64_t rows = sizes[0];
    const uint64_t each = (rows + w->ranks_in - 1) / w->ranks_in;
    offsets[0] = r * each < rows ? r * each : rows;
    offsets[1] = 0;
    sizes[0] = rows - offsets[0] < each ? rows - offsets[0] : each;
    return sizes[0] * (ndim == 2 ? sizes[1] : 1) * 4;
}

static void add_source(synthetic_dcp *w, fsdpck_error *err)
{
    uint64_t offsets[2], sizes[2];
    for (uint64_t i = 0; i < w->tensors; i++)
        add_tensor(w, i, err);
    for (uint32_t r = 0; r < w->ranks_in; r++) { /* rank by rank, as .metadata has them */
        char name[32];
        uint32_t index;
        uint64_t at = 0;
        const int n = snprintf(name, sizeof name, "__%u_0.distcp", r);
        must_be_ok(catalogue_add_file(&w->from, name, (size_t)n, (uint64_t)1 << 50, r, &index, err),
                   err);
        for (uint64_t t = 0; t < w->tensors; t++) {
            const uint64_t nbytes = piece_of(w, t, r, offsets, sizes) + HEAD + TAIL;
            const cat_chunk proto = {.file = index,
                                     .rank = (uint16_t)r,
                                     .place = LOCATION_BLOB,
                                     .offset_bytes = at,
                                     .nbytes = nbytes};
            must_be_ok(catalogue_add_chunk(&w->from, (uint32_t)t, offsets, sizes, &proto, err),
                       err);
            at += nbytes;
        }
    }
    w->from.origin.world_size = w->ranks_in;
    must_be_ok(catalogue_seal(&w->from, err), err);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const synthetic_dcp *w = ctx;
    const cat_chunk *k = catalogue_chunk(&w->from, chunk);
    (void)err;
    where->file = k->file;
    where->offset_bytes = k->offset_bytes + HEAD;
    where->rows = true;
    return FSDPCK_OK;
}

void synthetic_dcp_init(synthetic_dcp *w, const synthetic_dcp_model *model, uint32_t ranks_in,
                        uint64_t limit_bytes)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    memset(w, 0, sizeof *w);
    w->model = *model;
    w->ranks_in = ranks_in;
    w->tensors = 3 * model->parameters;
    budget_init(&w->metadata, limit_bytes, "metadata", NULL);
    catalogue_init(&w->from, &w->metadata);
    layout_init(&w->cut, &w->metadata);
    target_init(&w->to, &w->metadata);
    w->src = (source){.ctx = w, .cat = &w->from, .locate = locate};
    add_source(w, &err);
}

/* ---- what a run does before it writes ---- */

void synthetic_dcp_explain(synthetic_dcp *w)
{
    uint64_t otherwise;
    fsdpck_error err;
    fsdpck_error_init(&err);
    must_be_ok(checkpoint_parts_find(&w->from, &w->parts, &err), &err);
    must_be_ok(select_infer_specs(&w->from, 1, NULL, &otherwise, &err), &err);
    synthetic_dcp_must(w->from.meshes.count == 1, "the chunks were not explained");
}

void synthetic_dcp_select(synthetic_dcp *w, uint32_t ranks_out)
{
    const shard_request cut = {.layout = &w->cut, .every_rank = dcp_writer.every_rank};
    const select_request request = {
        .src = &w->src,
        .part = PART_ALL,
        .nested = dcp_writer.takes == STATE_NESTED,
        .flat_keys = dcp_writer.takes == STATE_FLAT_KEYS,
        .holds = dcp_writer.holds,
        .format = dcp_writer.name,
        .sharding = &cut,
    };
    select_result result;
    fsdpck_error err;
    fsdpck_error_init(&err);
    layout_refit refit;
    must_be_ok(
        layout_scale_mesh(catalogue_mesh(&w->from, 0), ranks_out, true, &w->cut.mesh, &refit, &err),
        &err);
    must_be_ok(select_build_target(&w->from, &w->parts, &request, &w->to, &result, &err), &err);
    synthetic_dcp_must(result.tensors_out == w->tensors, "tensors were lost");
    select_result_release(&result);
}

void synthetic_dcp_lay_out(synthetic_dcp *w)
{
    const writer_options wo = {0};
    fsdpck_error err;
    fsdpck_error_init(&err);
    must_be_ok(dcp_writer.layout(&w->to, &wo, &err), &err);
}

void synthetic_dcp_plan(synthetic_dcp *w)
{
    const plan_options opt = {.replicas = REPLICAS_CRC};
    fsdpck_error err;
    fsdpck_error_init(&err);
    must_be_ok(plan_new(&w->from, &w->to, &opt, &w->metadata, &w->plan, &err), &err);
}

void synthetic_dcp_resolve(synthetic_dcp *w)
{
    const exec_request request = {
        .plan = w->plan,
        .source = &w->src,
        .target = &w->to,
        .nthreads = 2,
        .memory_nbytes = EXEC_MEMORY_NBYTES_MIN,
        .metadata = &w->metadata,
    };
    fsdpck_error err;
    fsdpck_error_init(&err);
    must_be_ok(exec_resolve(&request, &w->exec, &err), &err);
}

void synthetic_dcp_release(synthetic_dcp *w)
{
    exec_free(w->exec);
    plan_free(w->plan);
    layout_release(&w->cut);
    checkpoint_parts_release(&w->parts);
    catalogue_release(&w->from);
    target_release(&w->to);
    synthetic_dcp_must(w->metadata.used_bytes == 0, "memory was not given back");
}
