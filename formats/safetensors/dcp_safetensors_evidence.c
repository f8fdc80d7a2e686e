#include "formats/safetensors/dcp_safetensors_evidence.h"

#include <stdlib.h>

#include "formats/safetensors/dcp_safetensors_count.h"
#include "formats/safetensors/shard_name.h"

/* --- ranks that share a tensor --- */

uint32_t shards_evidence_root(const shards_evidence *e, uint32_t rank_number)
{
    uint32_t *up = VEC_AT(&e->parent, uint32_t, 0);
    while (up[rank_number] != rank_number) {
        up[rank_number] = up[up[rank_number]];
        rank_number = up[rank_number];
    }
    return rank_number;
}

static void join(shards_evidence *e, uint32_t a, uint32_t b)
{
    const uint32_t x = shards_evidence_root(e, a);
    const uint32_t y = shards_evidence_root(e, b);
    *VEC_AT(&e->parent, uint32_t, x > y ? x : y) = x < y ? x : y;
}

static const shard_name *name_of(const shards_evidence *e, size_t index)
{
    return VEC_AT(&e->names, const shard_name, index);
}

static fsdpck_status gather_ranks(shards_evidence *e, const st_files *s, fsdpck_error *err)
{
    uint32_t highest = 0;
    shard_name *names = vec_push_n(&e->names, st_files_count(s), err);
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < st_files_count(s); i++) {
        (void)shard_name_parse(st_files_name(s, i), &names[i]);
        highest = names[i].rank_number > highest ? names[i].rank_number : highest;
    }
    uint32_t *parent = vec_push_n(&e->parent, (size_t)highest + 1, err);
    shards_rank *seen = vec_push_n(&e->seen, (size_t)highest + 1, err);
    if (parent == NULL || seen == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t r = 0; r <= highest; r++)
        parent[r] = r;
    for (size_t i = 0; i < st_files_count(s); i++)
        seen[names[i].rank_number].files++;
    return FSDPCK_OK;
}

/* --- distribution of each tensor --- */

static size_t span(const char *name, size_t nbytes, size_t at, bool digits)
{
    while (at < nbytes && (name[at] >= '0' && name[at] <= '9') == digits)
        at++;
    return at;
}

/* A number between dots, or after an underscore: 'layers.0', 'layer_0', but not 'w1'. */
static bool is_of_layer(const char *name, size_t nbytes, size_t begin, size_t end)
{
    return (begin == 0 || name[begin - 1] == '.' || name[begin - 1] == '_') &&
           (end == nbytes || name[end] == '.');
}

/* is_role: of the first number of a layer alone. text: empty, or of the name before. */
static fsdpck_status pattern_of(strtab *patterns, text_buf *text, const char *name, size_t nbytes,
                                bool is_role, uint32_t *id, fsdpck_error *err)
{
    bool is_found = false;
    text->nbytes = 0;
    for (size_t at = 0; at < nbytes;) {
        const size_t digits = span(name, nbytes, at, false);
        text_append(text, name + at, digits - at);
        at = span(name, nbytes, digits, true);
        if (at > digits && is_role && (is_found || !is_of_layer(name, nbytes, digits, at))) {
            text_append(text, name + digits, at - digits);
        } else if (at > digits) {
            text_puts(text, "#");
            is_found = true;
        }
    }
    RETURN_IF(text_check(text, err));
    return strtab_intern(patterns, text->nbytes > 0 ? text->text : "", text->nbytes, id, err);
}

/* Which dim is sharded. */
static void add_entry(shards_spread *t, const shards_shard *shard)
{
    unsigned moved = 0;
    if (shard->nelems == 0) {
        t->has_end = true;
        return;
    }
    t->shards++;
    for (unsigned d = 0; d < shard->ndim; d++) {
        if (shard->offsets[d] == 0)
            continue;
        if (++moved > 1 || (t->dim != UINT8_MAX && t->dim != d))
            t->is_regular = false;
        t->dim = (uint8_t)d;
    }
    if (moved == 1 && t->dim < 2)
        t->edge[t->dim]++;
}

/* Sizes, once the sharded dim is known. */
static void add_sizes(shards_spread *t, const shards_shard *shard)
{
    const unsigned d = t->dim == UINT8_MAX ? 0 : t->dim;
    if (shard->nelems == 0 || shard->ndim == 0)
        return;
    const uint64_t end = shard->offsets[d] + shard->sizes[d];
    t->end = end > t->end ? end : t->end;
    if (shard->offsets[d] > 0)
        return;
    t->first = shard->sizes[d];
    t->first_sizes = shard->sizes;
    t->others = shard->nelems / shard->sizes[d];
}

static void check_sizes(shards_spread *t, const shards_shard *shard)
{
    const unsigned d = t->dim == UINT8_MAX ? 0 : t->dim;
    if (shard->nelems == 0 || shard->ndim == 0 || !t->is_regular)
        return;
    const bool is_last = shard->offsets[d] + shard->sizes[d] == t->end;
    t->is_regular = t->first > 0 && shard->offsets[d] % t->first == 0 &&
                    shard->sizes[d] <= t->first && (shard->sizes[d] == t->first || is_last) &&
                    shard->nelems / shard->sizes[d] == t->others;
}

static void each_entry(shards_evidence *e, const st_files *s,
                       void (*look)(shards_spread *t, const shards_shard *shard))
{
    shards_shard shard;
    for (size_t i = 0; i < shards_global_count(e->global); i++) {
        shards_global_get(e->global, s, i, &shard);
        look(VEC_AT(&e->tensors, shards_spread, shard.tensor), &shard);
    }
}

static void gather_places(shards_evidence *e, const st_files *s)
{
    shards_shard shard;
    for (size_t i = 0; i < shards_global_count(e->global); i++) {
        shards_global_get(e->global, s, i, &shard);
        shards_spread *t = VEC_AT(&e->tensors, shards_spread, shard.tensor);
        const shard_name *n = name_of(e, shard.file);
        if (t->rank_number != 0 && t->rank_number != n->rank_number)
            join(e, t->rank_number, n->rank_number);
        t->rank_number = n->rank_number;
        t->file_number = n->file_number;
        add_entry(t, &shard);
    }
}

static fsdpck_status gather_tensors(shards_evidence *e, const st_files *s, fsdpck_error *err)
{
    strtab patterns;
    text_buf text = {0};
    const size_t count = strtab_count(&e->global->names);
    fsdpck_status st = FSDPCK_OK;
    shards_spread *t = vec_push_n(&e->tensors, count, err);
    if (t == NULL)
        return FSDPCK_LIMIT;
    strtab_init(&patterns, e->owner);
    for (uint32_t i = 0; st == FSDPCK_OK && i < count; i++) {
        unsigned ndim;
        (void)shards_global_shape(e->global, i, &ndim);
        t[i] = (shards_spread){
            .dim = UINT8_MAX, .ndim = (uint8_t)ndim, .is_regular = true, .peer = STRTAB_NONE};
        const char *name = strtab_text(&e->global->names, i);
        const size_t nbytes = strtab_nbytes(&e->global->names, i);
        st = pattern_of(&patterns, &text, name, nbytes, false, &t[i].pattern, err);
        if (st == FSDPCK_OK)
            st = pattern_of(&patterns, &text, name, nbytes, true, &t[i].role, err);
    }
    text_release(&text);
    strtab_release(&patterns);
    RETURN_IF(st);
    gather_places(e, s);
    each_entry(e, s, add_sizes);
    each_entry(e, s, check_sizes);
    for (uint32_t i = 0; i < count; i++)
        e->has_ends = e->has_ends || (t[i].has_end && t[i].shards > 0);
    return FSDPCK_OK;
}

/* --- peers: tensors of other layers --- */

typedef struct layer_tensor {
    uint32_t pattern, shards, tensor, ndim;
    const uint64_t *first_sizes;
} layer_tensor;

static int by_pattern(const void *a, const void *b)
{
    const layer_tensor *x = a, *y = b;
    ORDER_BY(x->pattern, y->pattern);
    ORDER_BY(x->ndim, y->ndim);
    if (x->first_sizes == NULL || y->first_sizes == NULL)
        return (x->first_sizes != NULL) - (y->first_sizes != NULL);
    for (unsigned d = 0; d < x->ndim; d++) {
        ORDER_BY(x->first_sizes[d], y->first_sizes[d]);
    }
    return 0;
}

static int by_layer(const void *a, const void *b)
{
    const layer_tensor *x = a, *y = b;
    const int order = by_pattern(a, b);
    if (order != 0)
        return order;
    ORDER_BY(y->shards, x->shards);
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* all: room for all tensors. */
static void find_peers_by(shards_evidence *e, layer_tensor *all, bool is_role)
{
    const size_t count = e->tensors.count;
    for (uint32_t i = 0; i < count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        all[i] = (layer_tensor){.pattern = is_role ? t->role : t->pattern,
                                .shards = t->shards,
                                .tensor = i,
                                .ndim = t->ndim,
                                .first_sizes = t->first_sizes};
    }
    if (count > 1)
        qsort(all, count, sizeof *all, by_layer);
    size_t most = 0; /* the first of its kind has the most shards */
    for (size_t i = 0; i < count; i++) {
        most = by_pattern(&all[most], &all[i]) == 0 ? most : i;
        shards_spread *t = VEC_AT(&e->tensors, shards_spread, all[i].tensor);
        if (all[most].shards <= all[i].shards || t->peer != STRTAB_NONE)
            continue;
        t->peer = all[most].tensor;
        t->is_of_role = is_role;
    }
}

static fsdpck_status find_peers(shards_evidence *e, fsdpck_error *err)
{
    const uint64_t nbytes = e->tensors.count * sizeof(layer_tensor);
    layer_tensor *all = budget_alloc(e->owner, nbytes, err);
    if (all == NULL)
        return FSDPCK_LIMIT;
    find_peers_by(e, all, true);
    find_peers_by(e, all, false);
    budget_free(e->owner, all, nbytes);
    return FSDPCK_OK;
}

/* --- files that ranks lack --- */

typedef struct held {
    uint32_t root;
    uint32_t file_number;
    uint32_t ranks;
} held;

static int by_root_and_file(const void *a, const void *b)
{
    const held *x = a, *y = b;
    ORDER_BY(x->root, y->root);
    return x->file_number < y->file_number ? -1 : x->file_number > y->file_number;
}

static void gather_members(shards_evidence *e, const st_files *s)
{
    shards_rank *seen = VEC_AT(&e->seen, shards_rank, 0);
    shards_shard shard;
    for (uint32_t r = 1; r < e->parent.count; r++)
        seen[shards_evidence_root(e, r)].members += seen[r].files > 0;
    for (size_t i = 0; i < shards_global_count(e->global); i++) {
        shards_global_get(e->global, s, i, &shard);
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, shard.tensor);
        unsigned moved = 0;
        for (unsigned d = 0; shard.nelems > 0 && d < shard.ndim; d++)
            moved += shard.offsets[d] > 0;
        if (shard.nelems > 0 && moved == 0 && t->shards > 1)
            seen[name_of(e, shard.file)->rank_number].begins = true;
    }
}

/* A tensor that is sharded in two dims shows the mesh. */
static void gather_grids(shards_evidence *e)
{
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        shards_rank *root = VEC_AT(&e->seen, shards_rank, shards_evidence_root(e, t->rank_number));
        if (t->edge[0] == 0 || t->edge[1] == 0 ||
            t->shards != ((uint64_t)t->edge[0] + 1) * ((uint64_t)t->edge[1] + 1))
            continue;
        root->grid[0] = t->edge[0] + 1;
        root->grid[1] = t->edge[1] + 1;
    }
}

static fsdpck_status gather_files(shards_evidence *e, const st_files *s, fsdpck_error *err)
{
    held *all = vec_push_n(&e->files, st_files_count(s), err);
    size_t count = 0;
    if (all == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < st_files_count(s); i++) {
        const shard_name *n = name_of(e, i);
        all[i] = (held){shards_evidence_root(e, n->rank_number), n->file_number, 1};
    }
    qsort(all, e->files.count, sizeof *all, by_root_and_file);
    for (size_t i = 0; i < e->files.count; i++) {
        if (count > 0 && by_root_and_file(&all[count - 1], &all[i]) == 0)
            all[count - 1].ranks++;
        else
            all[count++] = all[i];
    }
    e->files.count = count;
    for (size_t i = 0; i < count; i++) {
        all[i].ranks = VEC_AT(&e->seen, const shards_rank, all[i].root)->members - all[i].ranks;
    }
    return FSDPCK_OK;
}

uint32_t shards_evidence_lacking(const shards_evidence *e, const shards_spread *t)
{
    const held key = {shards_evidence_root(e, t->rank_number), t->file_number, 0};
    const held *h = bsearch(&key, e->files.items, e->files.count, sizeof key, by_root_and_file);
    return h != NULL ? h->ranks : 0;
}

static fsdpck_status gather_counts(shards_evidence *e, fsdpck_error *err)
{
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        shards_rank *root = VEC_AT(&e->seen, shards_rank, shards_evidence_root(e, t->rank_number));
        if (t->shards == 0 || shards_evidence_lacking(e, t) > 0)
            continue;
        if (t->has_end && t->shards + 1 > root->entries)
            root->entries = t->shards + 1;
        if (t->has_end)
            continue;
        const shards_count count = shards_count_of(e, t);
        RETURN_IF(vec_add(&e->complete, &count, err));
    }
    if (e->complete.count > 1)
        qsort(e->complete.items, e->complete.count, sizeof(shards_count), shards_count_compare);
    return FSDPCK_OK;
}

fsdpck_status shards_evidence_gather(shards_evidence *e, const shards_global *g, const st_files *s,
                                     budget *owner, fsdpck_error *err)
{
    *e = (shards_evidence){
        .global = g,
        .names = VEC_OF(shard_name, owner),
        .tensors = VEC_OF(shards_spread, owner),
        .parent = VEC_OF(uint32_t, owner),
        .seen = VEC_OF(shards_rank, owner),
        .files = VEC_OF(held, owner),
        .complete = VEC_OF(shards_count, owner),
        .owner = owner,
    };
    RETURN_IF(gather_ranks(e, s, err));
    RETURN_IF(gather_tensors(e, s, err));
    RETURN_IF(find_peers(e, err));
    gather_members(e, s);
    gather_grids(e);
    RETURN_IF(gather_files(e, s, err));
    return gather_counts(e, err);
}

void shards_evidence_release(shards_evidence *e)
{
    VEC_RELEASE_ALL(&e->names, &e->tensors, &e->parent, &e->seen, &e->files, &e->complete);
}
