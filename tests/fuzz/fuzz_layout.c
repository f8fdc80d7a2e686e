/* Meshes, TP plans and placements from arbitrary bytes. The first byte chooses:
 *
 *     m   the rest is the text of a mesh
 *     p   the rest is a TP plan
 *     l   placements for two dims, one pair a line
 *
 * and M, P the same a line each, so that one file holds many;
 *     l   placements, one a line
 *
 *     else numbers: a mesh, placements, a shape, then boxes for all ranks, and back from the boxes
 */
#include <stdlib.h>
#include <string.h>

#include "layout/mesh_infer.h"
#include "layout/placement_text.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/support/must.h"

#define RANKS_MAX 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static uint64_t consume_number(reader *r)
{
    const uint8_t kind = take(r);
    uint64_t v = kind & 0x3f;
    if (kind & 0x80) /* wide: any 63 bits */
        for (unsigned i = 0; i < 8; i++)
            v = v << 8 | take(r);
    if (kind & 0x40)
        v = v << 8 | take(r);
    return v >> 1;
}

/* The printed form reads back as the same mesh. */
static void run_mesh(reader *r)
{
    char text[256];
    mesh m, again;
    text_buf out = {0};
    const size_t nbytes = r->nbytes < sizeof text - 1 ? r->nbytes : sizeof text - 1;
    memcpy(text, r->data, nbytes);
    text[nbytes] = '\0';
    fsdpck_error err;
    if (mesh_parse(text, &m, &err) != FSDPCK_OK)
        return;
    MUST(mesh_check(&m, NULL) == FSDPCK_OK);
    mesh_print(&m, &out);
    MUST(mesh_parse(out.text, &again, NULL) == FSDPCK_OK && mesh_equal(&m, &again));
    text_release(&out);
}

static void run_plan(reader *r)
{
    static const uint64_t shape[] = {12, 8};
    layout_tensor t = {
        .fqn = "layers.0.wq.weight", .dtype = DTYPE_FLOAT32, .ndim = 2, .shape = shape};
    budget b;
    layout l;
    budget_init(&b, 1u << 20, "metadata", NULL);
    layout_init(&l, &b);
    MUST(mesh_parse("dp_replicate=2,dp_shard=4,ep=2,tp=2", &l.mesh, NULL) == FSDPCK_OK);
    fsdpck_error err;
    if (layout_read_tp_plan(&l, (const char *)r->data, r->nbytes, &err) == FSDPCK_OK) {
        placement p[MESH_NDIM_MAX];
        uint64_t coord[MESH_NDIM_MAX], offsets[2], sizes[2];
        if (layout_get_placements(&l, &t, false, p, NULL) == FSDPCK_OK) {
            mesh_coord(&l.mesh, 17, coord);
            MUST(shard_box(&l.mesh, p, 2, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) ==
                 FSDPCK_OK);
        }
        (void)!layout_check_used(&l, &err);
    }
    layout_release(&l);
    MUST(b.used_bytes == 0);
}

static mesh consume_mesh(reader *r)
{
    mesh m = {.ndim = take(r) % (MESH_NDIM_MAX + 2)};
    for (unsigned i = 0; i < m.ndim && i < MESH_NDIM_MAX; i++) {
        m.sizes[i] = consume_number(r);
        const unsigned name = take(r);
        memset(m.names[i], "\0tdf"[name & 3], name >> 2 & 3);
    }
    return m;
}

static void consume_placements(reader *r, placement *p)
{
    for (unsigned i = 0; i < MESH_NDIM_MAX; i++) {
        const uint8_t how = take(r);
        p[i] = (placement){.kind = how % 5, .dim = how / 5 % 4};
        if (p[i].kind == PLACEMENT_STRIDED_SHARD)
            p[i].split_factor = (uint32_t)consume_number(r);
    }
}

static void check_box(const uint64_t *shape, unsigned ndim, const uint64_t *offsets,
                      const uint64_t *sizes)
{
    for (unsigned d = 0; d < ndim; d++) {
        MUST(offsets[d] <= shape[d] && sizes[d] <= shape[d] - offsets[d]);
        MUST(sizes[d] > 0 || offsets[d] == shape[d] || shape[d] == 0);
    }
}

/* Boxes of all ranks into a catalogue; they cover the tensor or it was refused. */
static void run_explain(const catalogue *c, uint64_t world_size, budget *b, const mesh *m)
{
    explain x;
    mesh found_mesh;
    placement again[MESH_NDIM_MAX];
    bool found;
    mesh_infer_init(&x, world_size, b);
    MUST(mesh_infer_add(&x, c, 1, NULL, NULL) == FSDPCK_OK);
    MUST(mesh_infer_solve(&x, &found_mesh, &found, NULL) == FSDPCK_OK);
    MUST(mesh_check(&found_mesh, NULL) == FSDPCK_OK);
    MUST(mesh_infer_tensor(&x, 0, &found_mesh, again) || !found);
    (void)mesh_infer_tensor(&x, 0, m, again);
    mesh_infer_release(&x);
}

static void run_numbers(reader *r)
{
    placement p[MESH_NDIM_MAX];
    uint64_t shape[3];
    budget b;
    catalogue c;
    uint32_t file, tensor;
    const mesh m = consume_mesh(r);
    const unsigned ndim = take(r) % 4;
    consume_placements(r, p);
    for (unsigned d = 0; d < ndim; d++)
        shape[d] = consume_number(r);
    if (mesh_check(&m, NULL) != FSDPCK_OK)
        return;
    budget_init(&b, 1u << 24, "metadata", NULL);
    catalogue_init(&c, &b);
    MUST(catalogue_add_file(&c, "f", 1, 0, 0, &file, NULL) == FSDPCK_OK);
    bool ok =
        catalogue_add_tensor(&c, "t", 1, DTYPE_UINT8, ndim, shape, &tensor, NULL) == FSDPCK_OK;
    const uint64_t step = mesh_size(&m) / RANKS_MAX + 1;
    for (uint64_t rank = 0; rank < mesh_size(&m); rank += step) {
        static const cat_chunk proto = {.place = LOCATION_ROWS};
        uint64_t coord[MESH_NDIM_MAX], offsets[3], sizes[3];
        fsdpck_error err;
        mesh_coord(&m, rank, coord);
        if (shard_box(&m, p, ndim, shape, coord, SHARD_RECORDED, offsets, sizes, &err) == FSDPCK_OK)
            check_box(shape, ndim, offsets, sizes);
        if (shard_box(&m, p, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, &err) != FSDPCK_OK)
            continue;
        check_box(shape, ndim, offsets, sizes);
        if (ok)
            MUST(catalogue_add_chunk(&c, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK);
    }
    if (ok) {
        MUST(catalogue_seal(&c, NULL) == FSDPCK_OK);
        run_explain(&c, mesh_size(&m), &b, &m);
    }
    catalogue_release(&c);
    MUST(b.used_bytes == 0);
}

/* The printed form reads back as the same placement. */
static void run_placements(reader *r)
{
    char text[128];
    placement p[MESH_NDIM_MAX], again[MESH_NDIM_MAX];
    const size_t nbytes = r->nbytes < sizeof text - 1 ? r->nbytes : sizeof text - 1;
    memcpy(text, r->data, nbytes);
    text[nbytes] = '\0';
    fsdpck_error err;
    if (placements_parse(text, 2, p, &err) != FSDPCK_OK)
        return;
    for (unsigned i = 0; i < 2; i++) {
        text_buf out = {0};
        placements_print(&p[i], 1, &out);
        MUST(placements_parse(out.text, 1, again, NULL) == FSDPCK_OK &&
             again[0].kind == p[i].kind && again[0].dim == p[i].dim &&
             again[0].split_factor == p[i].split_factor);
        text_release(&out);
    }
}

static void run_lines(reader *r, void (*run)(reader *))
{
    while (r->nbytes > 0) {
        const uint8_t *end = memchr(r->data, '\n', r->nbytes);
        reader line = {r->data, end == NULL ? r->nbytes : (size_t)(end - r->data)};
        const size_t used = line.nbytes + (end != NULL);
        run(&line);
        r->data += used;
        r->nbytes -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    reader r = {data, nbytes};
    const uint8_t what = take(&r);
    if (what == 'm')
        run_mesh(&r);
    else if (what == 'p')
        run_plan(&r);
    else if (what == 'M')
        run_lines(&r, run_mesh);
    else if (what == 'P')
        run_lines(&r, run_plan);
    else if (what == 'l')
        run_lines(&r, run_placements);
    else
        run_numbers(&r);
    return 0;
}
