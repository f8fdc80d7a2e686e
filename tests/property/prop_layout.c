/* prop_layout: pieces against lists of indices, element by element, for every n to 32, every mesh to
 * 4x4x3 and all placements on it; then boxes of several dims, and boxes explained back.
 *
 *     prop_layout [STEP]      STEP: every STEP-th n on meshes of three dims (1: all)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/mesh_infer.h"
#include "tests/support/random.h"
#include "tests/support/stride.h"

#define N_MAX 32u

static uint64_t state = UINT64_C(0x2545f4914f6cdd1d);

static unsigned draw(unsigned below)
{
    return (unsigned)random_below(&state, below);
}

static void fail(const char *what, const mesh *m, const placement *p, const uint64_t *coord,
                 uint64_t n)
{
    text_buf text = {0};
    mesh_print(m, &text);
    text_puts(&text, " ");
    placements_print(p, m->ndim, &text);
    fprintf(stderr, "%s: %s n=%llu coord", what, text.text, (unsigned long long)n);
    for (unsigned i = 0; i < m->ndim; i++)
        fprintf(stderr, " %llu", (unsigned long long)coord[i]);
    fprintf(stderr, "\n");
    exit(1);
}

/* ---- the reference: indices that a rank holds, one by one ---- */

typedef struct index_list {
    unsigned count;
    uint8_t at[N_MAX];
} index_list;

static unsigned ceil_div(unsigned a, unsigned b)
{
    return (a + b - 1) / b;
}

/* The element that is j-th of len goes to the part-th of nparts after a cut into `factor`. */
static unsigned owner(unsigned j, unsigned len, unsigned factor, unsigned nparts)
{
    const unsigned chunk = ceil_div(len, factor);
    const unsigned first = j / chunk * chunk;
    const unsigned here = len - first < chunk ? len - first : chunk;
    return (j - first) / ceil_div(here, nparts);
}

static void keep_owned(const index_list *from, unsigned factor, unsigned nparts, unsigned part,
                       index_list *to)
{
    to->count = 0;
    for (unsigned j = 0; j < from->count; j++)
        if (owner(j, from->count, factor, nparts) == part)
            to->at[to->count++] = from->at[j];
}

static void all_indices(unsigned n, index_list *l)
{
    l->count = n;
    for (unsigned j = 0; j < n; j++)
        l->at[j] = (uint8_t)j;
}

static bool cuts(const placement *p, unsigned dim)
{
    return p->kind != PLACEMENT_REPLICATE && p->dim == dim;
}

static unsigned factor_of(const placement *p)
{
    return p->kind == PLACEMENT_STRIDED_SHARD ? p->split_factor : 1;
}

/* Lists before each cut and after the last; those of the coordinates that are as they were for the
 * last rank are kept. */
typedef struct reference {
    index_list levels[MESH_NDIM_MAX + 1];
    uint64_t coord[MESH_NDIM_MAX];
    bool is_begun;
} reference;

static const index_list *reference_recorded(reference *r, const mesh *m, const placement *p,
                                            unsigned n, const uint64_t *coord)
{
    bool changed = !r->is_begun;
    if (changed)
        all_indices(n, &r->levels[0]);
    for (unsigned i = 0; i < m->ndim; i++) {
        changed = changed || r->coord[i] != coord[i];
        if (!changed)
            continue;
        r->coord[i] = coord[i];
        if (cuts(&p[i], 0))
            keep_owned(&r->levels[i], factor_of(&p[i]), (unsigned)m->sizes[i], (unsigned)coord[i],
                       &r->levels[i + 1]);
        else
            r->levels[i + 1] = r->levels[i];
    }
    r->is_begun = true;
    return &r->levels[m->ndim];
}

static bool next_permutation(unsigned *v, unsigned count)
{
    unsigned i = count;
    while (i > 1 && v[i - 2] > v[i - 1])
        i--;
    if (i < 2)
        return false;
    unsigned j = count;
    while (v[j - 1] < v[i - 2])
        j--;
    const unsigned swapped = v[j - 1];
    v[j - 1] = v[i - 2];
    v[i - 2] = swapped;
    for (unsigned a = i - 1, b = count - 1; a < b; a++, b--) {
        const unsigned kept = v[a];
        v[a] = v[b];
        v[b] = kept;
    }
    return true;
}

/* Whether cuts in this order are written with just these split factors. */
static bool is_written_so(const mesh *m, const placement *p, const unsigned *order, unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        uint64_t factor = 1;
        for (unsigned earlier = 0; earlier < k; earlier++)
            if (order[earlier] > order[k])
                factor *= m->sizes[order[earlier]];
        if (factor != factor_of(&p[order[k]]))
            return false;
    }
    return true;
}

/* Every order of the mesh dims that cut `dim`, until one is found that the placements say. */
static bool find_order(const mesh *m, const placement *p, unsigned dim, unsigned *order,
                       unsigned *count)
{
    *count = 0;
    for (unsigned i = 0; i < m->ndim; i++)
        if (cuts(&p[i], dim))
            order[(*count)++] = i;
    do {
        if (is_written_so(m, p, order, *count))
            return true;
    } while (next_permutation(order, *count));
    return false;
}

static void cut_in_order(const mesh *m, unsigned n, const uint64_t *coord, const unsigned *order,
                         unsigned count, index_list *l)
{
    all_indices(n, l);
    for (unsigned k = 0; k < count; k++) {
        const index_list before = *l;
        keep_owned(&before, 1, (unsigned)m->sizes[order[k]], (unsigned)coord[order[k]], l);
    }
}

static bool is_run(const index_list *l)
{
    for (unsigned j = 1; j < l->count; j++)
        if (l->at[j] != l->at[j - 1] + 1)
            return false;
    return true;
}

/* ---- one dim ---- */

/* Messages cost more than all else, so refusals are asked for their reason only now and then. */
static bool is_refused(fsdpck_status st, const fsdpck_error *err, const char *finding)
{
    return st == FSDPCK_UNSUPPORTED &&
           (err == NULL || strcmp(fsdpck_finding_name(err->finding), finding) == 0);
}

static bool same(const index_list *l, unsigned n, uint64_t offset, uint64_t size)
{
    return size == l->count && offset == (l->count == 0 ? n : l->at[0]);
}

static void check_recorded(const mesh *m, const placement *p, unsigned n, const uint64_t *coord,
                           const index_list *l)
{
    const uint64_t shape = n;
    uint64_t offset, size;
    fsdpck_error full;
    fsdpck_error *err = n % 16 == 7 ? &full : NULL;
    shard_indices indices;
    const fsdpck_status st = shard_box(m, p, 1, &shape, coord, SHARD_RECORDED, &offset, &size, err);
    if (is_run(l) ? st != FSDPCK_OK || !same(l, n, offset, size)
                  : !is_refused(st, err, "LAYOUT-RUN"))
        fail("recorded rule", m, p, coord, n);
    shard_indices_init(&indices, m, p, 0, n, coord);
    if (indices.count != l->count || shard_indices_is_run(&indices) != is_run(l))
        fail("length of the list", m, p, coord, n);
    for (unsigned j = 0; j < l->count; j++)
        if (shard_indices_at(&indices, j) != l->at[j])
            fail("index of the list", m, p, coord, n);
}

static void check_physical(const mesh *m, const placement *p, unsigned n, const uint64_t *coord,
                           const unsigned *order, unsigned count, unsigned *held)
{
    const uint64_t shape = n;
    uint64_t offset, size;
    index_list l;
    const fsdpck_status st =
        shard_box(m, p, 1, &shape, coord, SHARD_PHYSICAL, &offset, &size, NULL);
    if (st != FSDPCK_OK)
        fail("physical rule refuses", m, p, coord, n);
    cut_in_order(m, n, coord, order, count, &l);
    if (!is_run(&l) || !same(&l, n, offset, size))
        fail("physical rule", m, p, coord, n);
    for (unsigned j = 0; j < l.count; j++)
        held[l.at[j]]++;
}

static void refuse_physical(const mesh *m, const placement *p, unsigned n, const uint64_t *coord)
{
    const uint64_t shape = n;
    uint64_t offset, size;
    fsdpck_error full;
    fsdpck_error *err = n % 16 == 7 ? &full : NULL;
    unsigned order[MESH_NDIM_MAX];
    unsigned count;
    const fsdpck_status st = shard_box(m, p, 1, &shape, coord, SHARD_PHYSICAL, &offset, &size, err);
    if (shard_cut_order(m, p, 0, order, &count) || !is_refused(st, err, "LAYOUT-ORDER"))
        fail("no order", m, p, coord, n);
}

static uint64_t check_placements(const mesh *m, const placement *p, unsigned step)
{
    unsigned order[MESH_NDIM_MAX];
    unsigned count;
    uint64_t checked = 0;
    const bool ordered = find_order(m, p, 0, order, &count);
    const uint64_t nranks = mesh_size(m);
    uint64_t coord[MESH_NDIM_MAX] = {0};
    for (unsigned n = 0; n <= N_MAX; n += step) {
        unsigned held[N_MAX] = {0};
        reference r;
        r.is_begun = false;
        for (uint64_t rank = 0; rank < nranks; rank++) {
            mesh_coord(m, rank, coord);
            check_recorded(m, p, n, coord, reference_recorded(&r, m, p, n, coord));
            if (ordered)
                check_physical(m, p, n, coord, order, count, held);
            else
                refuse_physical(m, p, n, coord);
            checked++;
        }
        for (unsigned j = 0; j < n && ordered; j++)
            if (held[j] * piece_count(m, p) != nranks)
                fail("coverage", m, p, coord, n);
    }
    return checked;
}

static const uint32_t factors[] = {1, 2, 3, 4, 5, 6, 8, 12, 7, 9, 10, 11, 13, 16, 33};
#define FACTORS_FEW 8u
#define FACTORS_ALL (sizeof factors / sizeof *factors)

static placement nth_placement(unsigned number)
{
    if (number < 2)
        return (placement){.kind = number == 0 ? PLACEMENT_REPLICATE : PLACEMENT_SHARD};
    return (placement){.kind = PLACEMENT_STRIDED_SHARD, .split_factor = factors[number - 2]};
}

static uint64_t check_mesh(const mesh *m, unsigned step)
{
    const unsigned kinds = 2 + (unsigned)(m->ndim == 3 ? FACTORS_FEW : FACTORS_ALL);
    unsigned all = 1;
    uint64_t checked = 0;
    for (unsigned i = 0; i < m->ndim; i++)
        all *= kinds;
    for (unsigned number = 0; number < all; number++) {
        placement p[MESH_NDIM_MAX] = {0};
        unsigned rest = number;
        for (unsigned i = 0; i < m->ndim; i++, rest /= kinds)
            p[i] = nth_placement(rest % kinds);
        checked += check_placements(m, p, m->ndim == 3 ? step : 1);
    }
    return checked;
}

static uint64_t check_one_dim(unsigned step)
{
    uint64_t checked = 0;
    for (unsigned a = 1; a <= 4; a++) {
        checked += check_mesh(&(mesh){.ndim = 1, .sizes = {a}}, step);
        for (unsigned b = 1; b <= 4; b++) {
            checked += check_mesh(&(mesh){.ndim = 2, .sizes = {a, b}}, step);
            for (unsigned c = 1; c <= 3; c++)
                checked += check_mesh(&(mesh){.ndim = 3, .sizes = {a, b, c}}, step);
        }
    }
    return checked;
}

/* ---- several dims ---- */

static mesh draw_mesh(void)
{
    mesh m = {.ndim = 1 + draw(4)};
    for (unsigned i = 0; i < m.ndim; i++)
        m.sizes[i] = 1 + draw(3);
    return m;
}

/* Shards of random dims, written in a random order of cuts. */
static void draw_placements(const mesh *m, unsigned ndim, placement *p, unsigned *order)
{
    for (unsigned i = 0; i < m->ndim; i++) {
        p[i] = draw(4) == 0 ? (placement){.kind = PLACEMENT_REPLICATE}
                            : (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)draw(ndim)};
        const unsigned at = draw(i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    placements_set_strided(m, order, p);
}

static void check_holders(const mesh *m, const placement *p, const uint64_t *coord)
{
    shard_holders h;
    uint64_t rank;
    uint64_t count = 0;
    uint64_t last = 0;
    for (shard_holders_begin(&h, m, p, coord); shard_holders_next(&h, &rank); count++) {
        uint64_t other[MESH_NDIM_MAX];
        mesh_coord(m, rank, other);
        if ((count > 0 && rank <= last) || shard_is_first_holder(m, p, other) != (count == 0))
            fail("order of the holders", m, p, coord, rank);
        for (unsigned i = 0; i < m->ndim; i++)
            if (p[i].kind != PLACEMENT_REPLICATE && other[i] != coord[i])
                fail("holders", m, p, coord, rank);
        last = rank;
    }
    if (count * piece_count(m, p) != mesh_size(m))
        fail("number of holders", m, p, coord, count);
}

static void check_several_dims(void)
{
    const mesh m = draw_mesh();
    const unsigned ndim = 1 + draw(3);
    placement p[MESH_NDIM_MAX] = {0};
    unsigned order[MESH_NDIM_MAX];
    uint64_t shape[3];
    draw_placements(&m, ndim, p, order);
    for (unsigned d = 0; d < ndim; d++)
        shape[d] = draw(N_MAX + 1);
    for (uint64_t rank = 0; rank < mesh_size(&m); rank++) {
        uint64_t coord[MESH_NDIM_MAX], offsets[3], sizes[3];
        mesh_coord(&m, rank, coord);
        if (shard_box(&m, p, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) != FSDPCK_OK)
            fail("box refused", &m, p, coord, 0);
        for (unsigned d = 0; d < ndim; d++) {
            unsigned cutting[MESH_NDIM_MAX];
            unsigned count = 0;
            index_list l;
            for (unsigned k = 0; k < m.ndim; k++)
                if (cuts(&p[order[k]], d))
                    cutting[count++] = order[k];
            cut_in_order(&m, (unsigned)shape[d], coord, cutting, count, &l);
            if (!same(&l, (unsigned)shape[d], offsets[d], sizes[d]))
                fail("box", &m, p, coord, shape[d]);
        }
        check_holders(&m, p, coord);
    }
}

/* ---- explained back ---- */

typedef struct box_set {
    size_t count;
    uint64_t boxes[256][4]; /* offsets, sizes */
} box_set;

static void add_box(box_set *s, const uint64_t *offsets, const uint64_t *sizes)
{
    const uint64_t box[4] = {offsets[0], offsets[1], sizes[0], sizes[1]};
    if (sizes[0] == 0 || sizes[1] == 0)
        return;
    for (size_t i = 0; i < s->count; i++)
        if (memcmp(s->boxes[i], box, sizeof box) == 0)
            return;
    memcpy(s->boxes[s->count++], box, sizeof box);
}

static bool holds_all(const box_set *a, const box_set *b)
{
    box_set copy = *a;
    for (size_t i = 0; i < b->count; i++)
        add_box(&copy, b->boxes[i], b->boxes[i] + 2);
    return copy.count == a->count;
}

static void collect(const mesh *m, const placement *p, const uint64_t *shape, box_set *s)
{
    s->count = 0;
    for (uint64_t rank = 0; rank < mesh_size(m); rank++) {
        uint64_t coord[MESH_NDIM_MAX], offsets[2], sizes[2];
        mesh_coord(m, rank, coord);
        if (shard_box(m, p, 2, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) != FSDPCK_OK)
            fail("explained placements refused", m, p, coord, shape[0]);
        add_box(s, offsets, sizes);
    }
}

static mesh draw_training_mesh(void)
{
    static const char *const texts[] = {"fsdp=5",
                                        "dp_shard=3,tp=2",
                                        "dp_shard=4,tp=2",
                                        "dp_replicate=2,dp_shard=3",
                                        "dp_replicate=2,dp_shard=2,tp=2",
                                        "dp_shard=2,tp=2",
                                        "dp_shard=16",
                                        "dp_replicate=3,dp_shard=2,tp=3"};
    mesh m;
    if (mesh_parse(texts[draw(sizeof texts / sizeof *texts)], &m, NULL) != FSDPCK_OK)
        exit(1);
    return m;
}

#define TENSORS 5u

static void draw_tensor(const mesh *m, unsigned index, uint64_t *shape, placement *p)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned order[MESH_NDIM_MAX];
    mesh_roles(m, roles);
    memset(p, 0, MESH_NDIM_MAX * sizeof *p);
    for (unsigned d = 0; d < 2; d++)
        shape[d] = 1 + draw(index == 0 ? 3 : 40);
    for (unsigned i = 0; i < m->ndim; i++)
        if (roles[i] != ROLE_REPLICATE && draw(4) != 0)
            p[i] = (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)draw(2)};
    layout_cut_order(m, order);
    placements_set_strided(m, order, p);
}

static void add_tensor(catalogue *c, unsigned index, const mesh *m, const placement *p,
                       const uint64_t *shape)
{
    const char name = (char)('a' + index);
    const bool empties = draw(2) == 0;
    const cat_chunk proto = {.place = LOCATION_ROWS};
    uint32_t tensor;
    bool ok =
        catalogue_add_tensor(c, &name, 1, DTYPE_FLOAT32, 2, shape, &tensor, NULL) == FSDPCK_OK;
    for (uint64_t k = mesh_size(m); k-- > 0 && ok;) {
        uint64_t coord[MESH_NDIM_MAX], offsets[2], sizes[2];
        mesh_coord(m, index % 2 == 0 ? k : mesh_size(m) - 1 - k, coord);
        ok = shard_box(m, p, 2, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) == FSDPCK_OK;
        if (ok && (empties || box_nelems(sizes, 2) > 0))
            ok = catalogue_add_chunk(c, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK;
    }
    if (!ok)
        exit(1);
}

static void check_explained(void)
{
    const mesh m = draw_training_mesh();
    static box_set given, explained;
    placement p[TENSORS][MESH_NDIM_MAX];
    uint64_t shapes[TENSORS][2], coord[MESH_NDIM_MAX] = {0};
    budget b;
    catalogue c;
    explain x;
    mesh found_mesh;
    uint32_t file;
    bool found = false;
    budget_init(&b, 1u << 24, "metadata", NULL);
    catalogue_init(&c, &b);
    bool ok = catalogue_add_file(&c, "f", 1, 0, 0, &file, NULL) == FSDPCK_OK;
    for (unsigned i = 0; i < TENSORS; i++) {
        draw_tensor(&m, i, shapes[i], p[i]);
        add_tensor(&c, i, &m, p[i], shapes[i]);
    }
    ok = ok && catalogue_seal(&c, NULL) == FSDPCK_OK;
    mesh_infer_init(&x, mesh_size(&m), &b);
    ok = ok && mesh_infer_add(&x, &c, 1, NULL, NULL) == FSDPCK_OK;
    ok = ok && mesh_infer_solve(&x, &found_mesh, &found, NULL) == FSDPCK_OK;
    if (!ok || !found || mesh_size(&found_mesh) != mesh_size(&m))
        fail("not explained", &m, p[0], coord, 0);
    for (unsigned i = 0; i < TENSORS; i++) {
        placement again[MESH_NDIM_MAX];
        /* From the result of mesh_infer_solve, and again on the mesh that was used. */
        for (unsigned k = 0; k < 2; k++) {
            const mesh *on = k == 0 ? &found_mesh : &m;
            if (!mesh_infer_tensor(&x, i, on, again))
                fail("tensor not explained", on, p[i], coord, shapes[i][0]);
            collect(&m, p[i], shapes[i], &given);
            collect(on, again, shapes[i], &explained);
            if (!holds_all(&given, &explained) || !holds_all(&explained, &given))
                fail("explained with other boxes", on, again, coord, shapes[i][0]);
        }
    }
    mesh_infer_release(&x);
    catalogue_release(&c);
    if (b.used_bytes != 0)
        fail("memory kept", &m, p[0], coord, 0);
}

int main(int argc, char **argv)
{
    const unsigned step = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : test_stride();
    if (step == 0)
        return 1;
    const uint64_t checked = check_one_dim(step);
    for (unsigned i = 0; i < 20000; i++)
        check_several_dims();
    for (unsigned i = 0; i < 5000; i++)
        check_explained();
    printf("%llu pieces\n", (unsigned long long)checked);
    return 0;
}
