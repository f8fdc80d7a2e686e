#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "base/struct_copy.h"
#include "describe/units.h"
#include "io/file.h"
#include "layout/mesh_text.h"
#include "layout/placement_text.h"
#include "layout/shard_box.h"
#include "layout/torch_chunk.h"
#include "model/fqn.h"
#include "model/model_internal.h"
#include "open/checkpoint.h"

/* A description of a million modules takes some 200 MB. */
#define MODEL_FILE_NBYTES_MAX (UINT64_C(4) << 30)

/* ---- names ---- */

size_t fsdpck_clean_fqn(const char *name, size_t nbytes, unsigned flags, char *dst,
                        size_t capacity_nbytes)
{
    fqn_parts p = {.name = name, .nbytes = nbytes, .strip_ddp = (flags & FSDPCK_CLEAN_DDP) != 0};
    size_t n = 0;
    while (fqn_parts_next(&p)) {
        const size_t end = n + p.part_nbytes + !p.last;
        const size_t room = capacity_nbytes == 0 ? 0 : capacity_nbytes - 1;
        /* With the dot that follows it in the name. */
        if (n < room)
            memmove(dst + n, p.part, end < room ? end - n : room - n);
        n = end;
    }
    if (capacity_nbytes > 0)
        dst[n < capacity_nbytes ? n : capacity_nbytes - 1] = '\0';
    return n;
}

const char *fsdpck_sharding_name(fsdpck_sharding sharding)
{
    static const char *const names[] = {"none", "flat", "fully_shard", "both"};
    return (size_t)sharding < sizeof names / sizeof names[0] ? names[sharding] : "";
}

/* ---- opening ---- */

int fsdpck_model_probe(const char *path)
{
    char head[64];
    path_kind kind;
    file f = FILE_CLOSED;
    if (path_probe(NULL, path, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE ||
        file_open_read(&f, NULL, path, 0, NULL) != FSDPCK_OK)
        return 0;
    const size_t n = f.nbytes < sizeof head ? (size_t)f.nbytes : sizeof head;
    const fsdpck_status st = file_read_at(&f, 0, head, n, NULL);
    file_abandon(&f);
    size_t at = 0;
    while (at < n && memchr(" \t\r\n", head[at], 4) != NULL)
        at++;
    /* A safetensors file begins with a length of 8 bytes, which may equal a brace. */
    return st == FSDPCK_OK && at < n && head[at] == '{' &&
           memchr(head, '\0', n < 8 ? n : 8) == NULL;
}

static fsdpck_sharding sharding_of(const fsdpck_model *of, const uint8_t *scopes)
{
    const model *m = &of->m;
    unsigned kinds = 0;
    for (uint32_t i = 0; i < model_module_count(m); i++)
        if (!(scopes[i] & SCOPE_CLOSED))
            kinds |= model_module_at(m, i)->kinds;
    const bool flat = kinds & MODULE_FSDP || unit_count(&m->units) > 0;
    const bool each = kinds & MODULE_FULLY_SHARD;
    return (fsdpck_sharding)(flat * FSDPCK_SHARDING_FLAT + each * FSDPCK_SHARDING_FULLY_SHARD);
}

/* Precomputes frequently requested values. */
static fsdpck_status summarize(fsdpck_model *of, fsdpck_error *err)
{
    const model *m = &of->m;
    const uint32_t nmodules = model_module_count(m);
    uint8_t *scopes = budget_alloc(&of->metadata, nmodules, err);
    if (scopes == NULL)
        return FSDPCK_LIMIT;
    of->ignored = budget_alloc(&of->metadata, model_param_count(m), err);
    if (of->ignored == NULL) {
        budget_free(&of->metadata, scopes, nmodules);
        return FSDPCK_LIMIT;
    }
    model_find_scopes(m, scopes, of->ignored);
    of->info = (fsdpck_model_info){
        .sharding = sharding_of(of, scopes),
        .lists_units = m->lists_units,
        .world_size = m->world_size,
        .torch_major = m->torch.major,
        .torch_minor = m->torch.minor,
        .modules = nmodules,
        .names = model_param_count(m),
        .buffers = model_buffer_count(m),
    };
    budget_free(&of->metadata, scopes, nmodules);
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const model_param *p = model_param_at(m, i);
        if (p->same_as != MODEL_NONE)
            continue;
        const uint64_t nelems = box_nelems(model_shape(m, p->shape_at), p->ndim);
        of->info.params++;
        of->info.nelems += nelems; /* all of them fit 63 bits */
        of->info.nbytes += nelems * dtype_get((dtype)p->dtype)->itemsize_bytes;
    }
    return FSDPCK_OK;
}

fsdpck_status fsdpck_model_read(fsdpck_context *ctx, const char *text, size_t nbytes,
                                fsdpck_model **out, fsdpck_error *err)
{
    (void)ctx;
    *out = NULL;
    fsdpck_model *of = calloc(1, sizeof *of);
    if (of == NULL)
        return error_set_nomem(err, sizeof *of);
    budget_init(&of->metadata, platform_memory_bytes() / 2, "metadata", NULL);
    model_init(&of->m, &of->metadata);
    fsdpck_status st = model_read(&of->m, text, nbytes, err);
    if (st == FSDPCK_OK)
        st = summarize(of, err);
    if (st != FSDPCK_OK)
        fsdpck_model_close(of);
    else
        *out = of;
    return st;
}

fsdpck_status fsdpck_model_open(fsdpck_context *ctx, const char *path, fsdpck_model **out,
                                fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    *out = NULL;
    if (path[0] == '\0')
        return FAIL(err, USAGE, NONE, "name of the model description is empty");
    RETURN_IF(file_read_whole(NULL, path, MODEL_FILE_NBYTES_MAX, &text, &nbytes, err));
    const fsdpck_status st = fsdpck_model_read(ctx, text, nbytes, out, err);
    free(text);
    if (st != FSDPCK_OK)
        error_path(err, path);
    return st;
}

void fsdpck_model_close(fsdpck_model *of)
{
    if (of == NULL)
        return;
    if (of->ignored != NULL)
        budget_free(&of->metadata, of->ignored, model_param_count(&of->m));
    model_release(&of->m);
    free(of);
}

/* ---- walking ---- */

void fsdpck_model_get_info(const fsdpck_model *of, fsdpck_model_info *info)
{
    struct_copy_out(info, &of->info, sizeof of->info);
}

static uint64_t index_or_none(uint32_t index)
{
    return index == MODEL_NONE ? FSDPCK_NONE : index;
}

void fsdpck_model_get_module(const fsdpck_model *of, uint64_t index, fsdpck_module *module)
{
    const model *m = &of->m;
    fsdpck_module to = {.path = "", .class_name = ""};
    if (index < model_module_count(m)) {
        const model_module *from = model_module_at(m, (uint32_t)index);
        to.path = model_name(m, from->name, &to.path_nbytes);
        if (from->class_name != MODEL_NONE)
            to.class_name = strtab_text(&m->classes, from->class_name);
        to.kinds = from->kinds;
        to.parent = index_or_none(from->parent);
        to.end = from->next;
        to.same_as = index_or_none(from->same_as);
        to.first_name = from->first_param;
        to.names = from->nparams;
        to.first_buffer = from->first_buffer;
        to.buffers = from->nbuffers;
    }
    struct_copy_out(module, &to, sizeof to);
}

void fsdpck_model_get_param(const fsdpck_model *of, uint64_t index, fsdpck_param *param)
{
    const model *m = &of->m;
    fsdpck_param to = {.fqn = "", .dtype = ""};
    if (index < model_param_count(m)) {
        const model_param *from = model_param_at(m, (uint32_t)index);
        const uint32_t first = model_param_first(m, (uint32_t)index);
        const dtype_info *d = dtype_get((dtype)from->dtype);
        to.fqn = model_name(m, from->name, &to.fqn_nbytes);
        to.dtype = d->name;
        to.itemsize_nbytes = d->itemsize_bytes;
        to.ndim = from->ndim;
        to.shape = model_shape(m, from->shape_at);
        to.strides = model_strides(m, from);
        to.nelems = box_nelems(to.shape, to.ndim);
        to.requires_grad = model_param_at(m, first)->requires_grad;
        to.ignored = of->ignored[first];
        to.module = from->module;
        to.first_name = first;
        to.next_name = index_or_none(from->next_name);
    }
    struct_copy_out(param, &to, sizeof to);
}

void fsdpck_model_get_buffer(const fsdpck_model *of, uint64_t index, fsdpck_buffer *buffer)
{
    const model *m = &of->m;
    fsdpck_buffer to = {.fqn = "", .dtype = ""};
    if (index < model_buffer_count(m)) {
        const model_buffer *from = model_buffer_at(m, (uint32_t)index);
        const dtype_info *d = dtype_get((dtype)from->dtype);
        to.fqn = model_name(m, from->name, &to.fqn_nbytes);
        to.dtype = d->name;
        to.ndim = from->ndim;
        to.shape = model_shape(m, from->shape_at);
        to.nbytes = box_nelems(to.shape, to.ndim) * d->itemsize_bytes;
        to.persistent = from->persistent;
        to.module = from->module;
    }
    struct_copy_out(buffer, &to, sizeof to);
}

/* ---- finding ---- */

static bool below_ddp(const model *m)
{
    return model_module_count(m) > 0 && model_module_at(m, 0)->kinds & MODULE_DDP;
}

fsdpck_status model_clean_name(const fsdpck_model *of, const char *name, size_t nbytes,
                               text_buf *out)
{
    fqn_clean(name, nbytes, below_ddp(&of->m), out);
    return text_check(out, NULL);
}

uint64_t fsdpck_model_find_param(const fsdpck_model *of, const char *fqn, size_t nbytes)
{
    const model *m = &of->m;
    uint32_t found = model_find_param(m, fqn, nbytes);
    if (found == MODEL_NONE) {
        text_buf clean = {0};
        if (model_clean_name(of, fqn, nbytes, &clean) == FSDPCK_OK && clean.nbytes > 0)
            found = model_find_param(m, clean.text, clean.nbytes);
        text_release(&clean);
    }
    return found == MODEL_NONE ? FSDPCK_NONE : model_param_first(m, found);
}

uint64_t fsdpck_model_find_module(const fsdpck_model *of, const char *path, size_t nbytes)
{
    return index_or_none(model_find_module(&of->m, path, nbytes));
}

/* ---- sharding ---- */

void fsdpck_chunk_of(uint64_t n, uint64_t parts, uint64_t index, uint64_t *offset, uint64_t *size)
{
    torch_chunk_range(n, parts, index, offset, size);
}

fsdpck_status fsdpck_mesh_sizes(const char *mesh_text, uint64_t *world_size, uint64_t *shard_size,
                                fsdpck_error *err)
{
    mesh m;
    mesh_role roles[MESH_NDIM_MAX];
    RETURN_IF(mesh_parse(mesh_text, &m, err));
    mesh_roles(&m, roles);
    *world_size = mesh_size(&m);
    *shard_size = 1;
    for (unsigned i = 0; i < m.ndim; i++) {
        const bool replicates = roles[i] == ROLE_REPLICATE;
        if (roles[i] == ROLE_FSDP || roles[i] == ROLE_CP)
            *shard_size *= m.sizes[i];
        if (roles[i] == ROLE_FSDP || roles[i] == ROLE_CP || replicates)
            continue;
        return FAIL_WITH(
            err, USAGE, NONE, ("a model description does not use this mesh dim"),
            (expected, "dims of FSDP and its replicas, such as dp_replicate=2,dp_shard=4"),
            (found, "'%s'", m.names[i]));
    }
    /* FSDP's dim is the inner one, so ranks of a group are consecutive. */
    if (m.ndim == 2 && roles[0] != ROLE_REPLICATE)
        return FAIL_WITH(err, USAGE, NONE, ("mesh has the FSDP dim before the replicated dim"),
                         (expected, "the replicated dim first, as in torch"),
                         (found, "'%s'", mesh_text));
    return FSDPCK_OK;
}

fsdpck_status fsdpck_shard_of(const char *mesh_text, const char *placements, unsigned ndim,
                              const uint64_t *shape, uint64_t rank, uint64_t *offsets,
                              uint64_t *sizes, fsdpck_error *err)
{
    mesh m;
    placement p[MESH_NDIM_MAX];
    uint64_t coord[MESH_NDIM_MAX];
    RETURN_IF(mesh_parse(mesh_text, &m, err));
    RETURN_IF(placements_parse(placements, m.ndim, p, err));
    if (ndim > NDIM_MAX || rank >= mesh_size(&m))
        return FAIL_WITH(
            err, USAGE, NONE,
            (ndim > NDIM_MAX ? "tensor has too many dims" : "rank is not in the mesh"),
            (expected, "less than %" PRIu64, ndim > NDIM_MAX ? NDIM_MAX + 1 : mesh_size(&m)),
            (found, "%" PRIu64, ndim > NDIM_MAX ? ndim : rank));
    for (unsigned i = 0; i < m.ndim; i++) {
        if (p[i].kind == PLACEMENT_REPLICATE || p[i].dim < ndim)
            continue;
        return FAIL_WITH(err, USAGE, LAYOUT_DIM, ("placement shards a dim that does not exist"),
                         (expected, "less than %u", ndim), (found, "%u", p[i].dim));
    }
    mesh_coord(&m, rank, coord);
    return shard_box(&m, p, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, err);
}
