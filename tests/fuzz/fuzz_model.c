/* Model descriptions and lists of units. Text that begins with '[' is the array "units"; other text
 * is a whole description. An accepted text must be consistent: ranges are inside their shards and
 * parameters, boxes cover each range once, each name of a parameter is found from the first; the
 * ranks' totals are the sums of their ranges. Lines of two percent signs separate several texts. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "fsdpck.h"
#include "model/model.h"
#include "model/unit_json.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_boxes(const unit_list *l, const unit_param *p, const unit_param_range *x)
{
    unit_boxes b;
    uint64_t at = x->begin;
    unit_boxes_init(&b, l, p, x->begin, x->end);
    while (unit_boxes_next(&b)) {
        const uint64_t *shape = unit_param_shape(l, p);
        must(b.flat == at, "boxes leave a gap");
        for (unsigned d = 0; d < p->ndim; d++)
            must(b.sizes[d] > 0 && b.offsets[d] < shape[d] && b.sizes[d] <= shape[d] - b.offsets[d],
                 "box outside the parameter");
        at += box_nelems(b.sizes, p->ndim);
    }
    must(at == x->end, "boxes do not cover the piece");
}

static void check_rank(const unit_list *l, const unit *u, uint32_t rank)
{
    const unit_shard s = unit_shard_of(u, rank);
    must(s.begin <= s.end && s.end <= u->total, "shard outside the unit");
    must(s.end - s.begin + s.padding == u->shard_size, "shard size");
    for (uint32_t k = 0; k < u->nparams && k < 64; k++) {
        const unit_param *p = unit_param_at(l, u, k);
        const unit_param_range x = unit_param_range_of(l, u, k, rank);
        must(x.begin <= x.end && x.end <= p->nelems, "piece outside the parameter");
        must(x.begin == x.end || x.shard_offset + (x.end - x.begin) <= s.end - s.begin,
             "piece outside the shard");
        check_boxes(l, p, &x);
    }
}

static void check_list(const unit_list *l)
{
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        uint64_t end = 0;
        for (uint32_t k = 0; k < u->nparams; k++) {
            const unit_param *p = unit_param_at(l, u, k);
            must(p->offset >= end, "parameters overlap");
            end = p->offset + p->nelems;
        }
        must(end <= u->total, "parameters outside the unit");
        check_rank(l, u, 0);
        check_rank(l, u, u->world_size / 2);
        check_rank(l, u, u->world_size - 1);
    }
}

static void run_list(const uint8_t *data, size_t nbytes, budget *memory)
{
    json_reader r;
    json_token t;
    unit_list l, scaled;
    unit_list_init(&l, memory);
    unit_list_init(&scaled, memory);
    json_reader_init(&r, (const char *)data, nbytes, FSDPCK_FINDING_MODEL_JSON);
    if (json_expect(&r, JSON_ARRAY, &t, NULL) == FSDPCK_OK &&
        unit_json_read(&r, &(unit_defaults){.world_size = 4}, &l, NULL) == FSDPCK_OK) {
        check_list(&l);
        if (unit_list_scale(&l, 7, &scaled, NULL) == FSDPCK_OK)
            check_list(&scaled);
    }
    json_reader_release(&r);
    unit_list_release(&l);
    unit_list_release(&scaled);
}

static void check_names(const model *m)
{
    uint64_t names = 0;
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        if (model_param_first(m, i) != i)
            continue;
        for (uint32_t k = i; k != MODEL_NONE; k = model_param_at(m, k)->next_name)
            names++;
    }
    must(names == model_param_count(m), "names of parameters are lost");
}

/* Bytes of the pieces of a rank, as the public way gives them. */
static uint64_t rank_nbytes(const fsdpck_units *units, uint64_t nunits, uint64_t r)
{
    uint64_t nbytes = 0;
    for (uint64_t i = 0; i < nunits; i++) {
        fsdpck_unit u = {.struct_nbytes = sizeof u};
        fsdpck_units_get(units, i, &u);
        uint64_t nelems = 0;
        for (uint64_t k = 0; k < u.params; k++) {
            fsdpck_unit_param p = {.struct_nbytes = sizeof p};
            fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
            uint64_t unit_found, k_found;
            fsdpck_units_get_param(units, i, k, &p);
            fsdpck_units_get_param_shard(units, i, k, r, &piece);
            nbytes += piece.nelems * p.itemsize_nbytes;
            nelems += piece.nelems;
            fsdpck_unit_param found = {.struct_nbytes = sizeof found};
            must(fsdpck_units_find(units, p.fqn, p.fqn_nbytes, &unit_found, &k_found),
                 "a parameter is not found");
            fsdpck_units_get_param(units, unit_found, k_found, &found);
            must(found.fqn_nbytes == p.fqn_nbytes && memcmp(found.fqn, p.fqn, p.fqn_nbytes) == 0,
                 "another parameter is found");
        }
        must(nelems <= u.rank_nelems_max, "a rank holds more than the most");
    }
    return nbytes;
}

static void check_units(const fsdpck_model *m, uint64_t world_size, uint64_t shard_size)
{
    fsdpck_units *units = NULL;
    if (fsdpck_units_new(m, world_size, shard_size, &units, NULL) != FSDPCK_OK)
        return;
    fsdpck_units_info all = {.struct_nbytes = sizeof all};
    fsdpck_units_get_info(units, &all);
    uint64_t sum = 0;
    for (uint64_t r = 0; r < all.world_size && r < 5; r++) {
        fsdpck_units_rank rank = {.struct_nbytes = sizeof rank};
        fsdpck_units_get_rank(units, r, &rank);
        must(rank.nbytes == rank_nbytes(units, all.units, r) + all.whole_nbytes, "bytes of a rank");
        must(rank.nbytes + rank.padding_nbytes == all.rank_nbytes, "padding of a rank");
        sum += rank.nbytes;
    }
    must(all.world_size > 5 || sum == all.rank_nbytes_total, "bytes of all ranks");
    fsdpck_units_free(units);
}

static void run_public(const uint8_t *data, size_t nbytes)
{
    fsdpck_model *m = NULL;
    if (fsdpck_model_read(NULL, (const char *)data, nbytes, &m, NULL) != FSDPCK_OK)
        return;
    for (uint64_t world_size = 0; world_size < 5; world_size++)
        check_units(m, world_size, 0);
    check_units(m, 4, 2);
    fsdpck_model_close(m);
}

static void run_model(const uint8_t *data, size_t nbytes, budget *memory)
{
    model m;
    fsdpck_error err;
    fsdpck_error_init(&err);
    model_init(&m, memory);
    const fsdpck_status st = model_read(&m, (const char *)data, nbytes, &err);
    must((st == FSDPCK_OK) == (err.message[0] == '\0'), "refused without a word");
    must(st != FSDPCK_BADINPUT || err.has_offset || err.tensor[0] != '\0',
         "refused without a place");
    for (uint32_t world_size = 0; st == FSDPCK_OK && world_size < 5; world_size++) {
        unit_list l;
        unit_list_init(&l, memory);
        if (model_find_units(&m, &(model_ranks){.world_size = world_size}, &l, NULL) == FSDPCK_OK)
            check_list(&l);
        unit_list_release(&l);
    }
    if (st == FSDPCK_OK) {
        sharded_list groups;
        sharded_list_init(&groups, memory);
        check_names(&m);
        const fsdpck_status found = model_find_fully_sharded(&m, &groups, NULL);
        must(found == FSDPCK_OK || found == FSDPCK_LIMIT, "fully_shard");
        sharded_list_release(&groups);
    }
    model_release(&m);
    if (st == FSDPCK_OK)
        run_public(data, nbytes);
}

static void run_text(const uint8_t *data, size_t nbytes)
{
    budget memory;
    budget_init(&memory, (uint64_t)16 << 20, "metadata", NULL);
    if (nbytes > 0 && data[0] == '[')
        run_list(data, nbytes, &memory);
    else
        run_model(data, nbytes, &memory);
    must(memory.used_bytes == 0, "memory kept");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    for (;;) {
        const uint8_t *end = memmem(data, nbytes, "\n%%\n", 4);
        run_text(data, end == NULL ? nbytes : (size_t)(end - data));
        if (end == NULL)
            return 0;
        nbytes -= (size_t)(end + 4 - data);
        data = end + 4;
    }
}
