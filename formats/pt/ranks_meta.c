/* Meta's Llama 1 to 3: consolidated.00.pth, consolidated.01.pth ..., a file of plain tensors for each
 * model-parallel rank. No file records how the ranks share a tensor; the kind of layer determines it,
 * as in transformers' convert_llama_weights_to_hf.py:
 *
 *     ColumnParallelLinear   wq, wk, wv, w1, w3, output     rows: dim 0
 *     RowParallelLinear      wo, w2                         columns: dim 1
 *     tok_embeddings         Llama 1 and 2: dim 1; Llama 3: dim 0; the size of norm.weight decides
 *     norms, rope.freqs      equal on all ranks
 *
 * params.json is beside the files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/pt/ranks_internal.h"

/* --- params.json --- */

static fsdpck_status read_params_file(ranks_state *s, fsdpck_error *err)
{
    const open_request *req = s->req;
    char *text = NULL;
    size_t nbytes = 0;
    if (!probe_has_entry(req->probe, META_PARAMS_FILE))
        return FSDPCK_OK;
    fsdpck_status st = file_read_whole(&req->probe->dir, META_PARAMS_FILE, META_PARAMS_NBYTES_MAX,
                                       &text, &nbytes, err);
    if (st == FSDPCK_OK)
        st = meta_params_read(text, nbytes, &s->meta.params, err);
    free(text);
    if (st != FSDPCK_OK) {
        error_path_in(err, req->path, META_PARAMS_FILE);
        error_next(err, "repair the file, or copy it again: Meta publishes it with the weights");
    }
    return st;
}

fsdpck_status ranks_meta_begin(ranks_state *s, fsdpck_error *err)
{
    for (uint32_t i = 0; i < s->list->families.count; i++) {
        const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, i);
        if (strcmp(f->prefix, "consolidated.") != 0 || strcmp(f->suffix, ".pth") != 0)
            continue;
        s->meta.family = i;
        for (size_t k = 0; k < s->list->files.count; k++) {
            const ranks_file *one = VEC_AT(&s->list->files, const ranks_file, k);
            if (one->family == i && one->rank >= s->meta.world)
                s->meta.world = one->rank + UINT64_C(1);
        }
    }
    if (s->meta.world == 0)
        return FSDPCK_OK;
    if (s->req->expect_ranks > 0)
        s->meta.world = s->req->expect_ranks;
    RETURN_IF(read_params_file(s, err));
    if (s->meta.params.kv_heads > 0 && s->meta.params.kv_heads < s->meta.world)
        return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                         ("several model-parallel ranks have copies of one key head, which is not "
                          "supported"),
                         (path, s->req->path), (expected, "at most one rank for each key head"),
                         (found, "%" PRIu64 " ranks, %" PRIu64 " key head%s in params.json",
                          s->meta.world, s->meta.params.kv_heads,
                          text_plural(s->meta.params.kv_heads)),
                         (next, "merge the files with the program that wrote them"));
    return FSDPCK_OK;
}

/* --- how ranks share a tensor --- */

enum { SHARED_BY_NONE, SHARED_BY_ROWS, SHARED_BY_COLUMNS, SHARED_BY_RELEASE, SHARED_UNKNOWN };

typedef struct meta_layer {
    const char *name;
    int shared;
} meta_layer;

static const meta_layer layers[] = {
    {"attention.wq.weight", SHARED_BY_ROWS},    {"attention.wk.weight", SHARED_BY_ROWS},
    {"attention.wv.weight", SHARED_BY_ROWS},    {"attention.wo.weight", SHARED_BY_COLUMNS},
    {"feed_forward.w1.weight", SHARED_BY_ROWS}, {"feed_forward.w2.weight", SHARED_BY_COLUMNS},
    {"feed_forward.w3.weight", SHARED_BY_ROWS}, {"attention_norm.weight", SHARED_BY_NONE},
    {"ffn_norm.weight", SHARED_BY_NONE},
};

static const meta_layer others[] = {
    {"tok_embeddings.weight", SHARED_BY_RELEASE},
    {"output.weight", SHARED_BY_ROWS},
    {"norm.weight", SHARED_BY_NONE},
    {"rope.freqs", SHARED_BY_NONE},
};

static int find_layer(const meta_layer *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].shared;
    return SHARED_UNKNOWN;
}

/* "layers.12.attention.wq.weight" -> "attention.wq.weight"; NULL for another name. */
static const char *inside_layer(const char *name)
{
    static const char prefix[] = "layers.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return NULL;
    const char *const digits = name + sizeof prefix - 1;
    const size_t count = strspn(digits, "0123456789");
    return count > 0 && digits[count] == '.' ? digits + count + 1 : NULL;
}

static int shared_by(const char *name)
{
    const char *const inside = inside_layer(name);
    return inside != NULL ? find_layer(layers, sizeof layers / sizeof *layers, inside)
                          : find_layer(others, sizeof others / sizeof *others, name);
}

/* The size of the model's last norm; each rank has a copy. 0: the file has none. */
static uint64_t hidden_size(const ranks_parse *p)
{
    static const char name[] = "norm.weight";
    const uint32_t flat = strtab_find(&p->flat.flat, name, strlen(name));
    for (size_t i = 0; flat != STRTAB_NONE && i < p->flat.names.count; i++) {
        if (VEC_AT(&p->flat.names, const pt_name, i)->flat != flat)
            continue;
        const torch_tensor *t = VEC_AT(&p->archive.tensors, const torch_tensor, i);
        return t->ndim == 1 ? torch_tensor_sizes(&p->archive, t)[0] : 0;
    }
    return 0;
}

static fsdpck_status find_embedding_dim(const ranks_parse *p, const ranks_declared *c,
                                        const char *name, int *shared, fsdpck_error *err)
{
    const uint64_t hidden = hidden_size(p), world = p->s->meta.world;
    if (hidden > 0 && c->shape[1] == hidden)
        *shared = SHARED_BY_ROWS;
    else if (hidden > 0 && hidden % world == 0 && c->shape[1] == hidden / world)
        *shared = SHARED_BY_COLUMNS;
    else
        return FAIL_WITH(err, BADINPUT, RANK_SHAPE,
                         ("embedding is split neither by rows nor by columns"), (tensor, name),
                         (expected,
                          "%" PRIu64
                          " columns (the size of 'norm.weight') if split by rows, or %" PRIu64
                          " on each of %" PRIu64 " ranks if split by columns",
                          hidden, hidden / world, world),
                         (found, "[%" PRIu64 ", %" PRIu64 "]", c->shape[0], c->shape[1]));
    return FSDPCK_OK;
}

static fsdpck_status refuse_name(const char *name, uint64_t world, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                     ("files of %" PRIu64
                      " model-parallel rank%s contain a tensor that Llama 1 to 3 do not have",
                      world, text_plural(world)),
                     (tensor, name), (next, "merge the files with the program that wrote them"));
}

fsdpck_status ranks_meta_declare(const ranks_parse *p, uint64_t tensor, const char *name,
                                 ranks_declared *c, ranks_mesh *m, fsdpck_error *err)
{
    const uint64_t world = p->s->meta.world;
    int shared = shared_by(name);
    if (shared == SHARED_BY_NONE)
        return FSDPCK_OK;
    if (shared == SHARED_UNKNOWN || c->ndim != 2)
        return refuse_name(name, world, err);
    if (shared == SHARED_BY_RELEASE)
        RETURN_IF(find_embedding_dim(p, c, name, &shared, err));
    const unsigned dim = shared == SHARED_BY_ROWS ? 0 : 1;
    if (!checked_mul(c->shape[dim], world, &c->shape[dim]))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor is too large");
    *m = (ranks_mesh){.m = {.ndim = 1, .sizes = {world}, .names = {"tp"}},
                      .coord = {p->file->rank},
                      .has_coord = true};
    c->kind = RANKS_DTENSOR;
    c->mesh = m;
    c->placements[0] = (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)dim};
    c->local = value_of_tensor(tensor);
    return FSDPCK_OK;
}

/* --- the number of ranks --- */

static const uint64_t *shape_of(const ranks_state *s, const char *name, unsigned ndim)
{
    const uint32_t entry = strtab_find(&s->names, name, strlen(name));
    if (entry == STRTAB_NONE)
        return NULL;
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    return t->kind == RANKS_OBJECT || catalogue_tensor(s->cat, t->index)->ndim != ndim
               ? NULL
               : catalogue_shape(s->cat, t->index);
}

/* The columns of wo are those of all heads: heads x head_dim, which is the hidden size in all of Meta's
 * models. */
fsdpck_status ranks_meta_check(ranks_state *s, fsdpck_error *err)
{
    const ranks_meta *m = &s->meta;
    const meta_params *p = &m->params;
    if (m->world == 0 || s->req->expect_ranks > 0 || s->list->families.count > 1)
        return FSDPCK_OK;
    const uint64_t *wo = shape_of(s, "layers.0.attention.wo.weight", 2);
    const uint64_t *norm = shape_of(s, "norm.weight", 1);
    uint64_t expected = norm == NULL ? 0 : norm[0];
    if (p->heads > 0 && p->head_dim > 0 && !checked_mul(p->heads, p->head_dim, &expected))
        expected = 0;
    if (wo == NULL || expected == 0)
        return FSDPCK_OK; /* RANKS-UNKNOWN */
    if (wo[1] >= expected) {
        s->group_world = m->world;
        return FSDPCK_OK;
    }
    return FAIL_WITH(err, BADINPUT, FILE_MISSING, ("files of model-parallel ranks are missing"),
                     (path, s->req->path), (tensor, "layers.0.attention.wo.weight"),
                     (expected, "%" PRIu64 " columns in the files of all ranks", expected),
                     (found, "%" PRIu64 " columns in the files of %" PRIu64 " rank%s", wo[1],
                      m->world, m->world == 1 ? "" : "s"),
                     (next,
                      "copy them from where the checkpoint was written or downloaded; if the "
                      "files are complete, give --source-ranks %" PRIu64,
                      m->world));
}
