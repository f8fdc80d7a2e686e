/* unit_table: what FSDP1 units flatten and what each rank holds, for comparison with torch's.
 *
 *     unit_table WORLD_SIZE [SCALE] <UNITS
 *
 * UNITS is the array "units" of fsdpck-model(5); WORLD_SIZE is that of units that name none; with
 * SCALE the units are those of so many ranks. Prints a JSON array of units, with torch's words:
 * numels and is_padding of parameters and padding in order; per rank the padding at the shard's end
 * and for each parameter null or [offset in shard, count, first, last element]; and the boxes of
 * each piece as [offsets, sizes, place in memory order]. Exit status: 0, or that of the error.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/unit_json.h"
#include "tests/support/unit_print.h"

/* Lengths of parameters and paddings in turn, or which of them are padding. */
static void put_numels(json_writer *w, const unit_list *l, const unit *u, bool mask)
{
    uint64_t at = 0;
    json_member_array(w, mask ? "is_padding" : "numels");
    for (uint32_t k = 0; k <= u->nparams; k++) {
        const unit_param *p = k < u->nparams ? unit_param_at(l, u, k) : NULL;
        const uint64_t gap = (p != NULL ? p->offset : u->total) - at;
        if (gap > 0 && mask)
            json_put_bool(w, true);
        else if (gap > 0)
            json_put_u64(w, gap);
        if (p == NULL)
            break;
        if (mask)
            json_put_bool(w, false);
        else
            json_put_u64(w, p->nelems);
        at = p->offset + p->nelems;
    }
    json_end_array(w);
}

static void put_boxes(json_writer *w, const unit_list *l, const unit_param *p,
                      const unit_param_range *x)
{
    unit_boxes b;
    unit_boxes_init(&b, l, p, x->begin, x->end);
    json_begin_array(w);
    while (unit_boxes_next(&b)) {
        json_begin_array(w);
        json_put_u64s(w, b.offsets, p->ndim);
        json_put_u64s(w, b.sizes, p->ndim);
        json_put_u64(w, b.flat);
        json_end_array(w);
    }
    json_end_array(w);
}

static void put_rank(json_writer *w, const unit_list *l, const unit *u, uint32_t rank)
{
    const unit_shard s = unit_shard_of(u, rank);
    json_begin_object(w);
    json_member_u64(w, "begin", s.begin);
    json_member_u64(w, "end", s.end);
    json_member_u64(w, "padding", s.padding);
    json_member_array(w, "infos");
    for (uint32_t k = 0; k < u->nparams; k++) {
        const unit_param_range x = unit_param_range_of(l, u, k, rank);
        if (!x.in_shard) {
            json_put_null(w);
            continue;
        }
        json_begin_array(w);
        json_put_u64(w, x.shard_offset);
        json_put_u64(w, x.end - x.begin);
        json_put_u64(w, x.begin);
        json_put_i64(w, (int64_t)x.end - 1);
        json_end_array(w);
    }
    json_end_array(w);
    json_member_array(w, "boxes");
    for (uint32_t k = 0; k < u->nparams; k++) {
        const unit_param_range x = unit_param_range_of(l, u, k, rank);
        put_boxes(w, l, unit_param_at(l, u, k), &x);
    }
    json_end_array(w);
    json_end_object(w);
}

static void put_unit(json_writer *w, const unit_list *l, const unit *u)
{
    json_begin_object(w);
    json_put_key(w, "prefix", 6);
    put_unit_name(w, l, u->prefix);
    json_member_u64(w, "world_size", u->world_size);
    json_member_u64(w, "total", u->total);
    json_member_u64(w, "shard_size", u->shard_size);
    put_unit_params(w, l, u);
    put_numels(w, l, u, false);
    put_numels(w, l, u, true);
    json_member_array(w, "ranks");
    for (uint32_t rank = 0; rank < u->world_size; rank++)
        put_rank(w, l, u, rank);
    json_end_array(w);
    json_end_object(w);
}

static fsdpck_status read_units(const text_buf *text, uint32_t world_size, unit_list *l,
                                fsdpck_error *err)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, text->text, text->nbytes, FSDPCK_FINDING_MODEL_JSON);
    fsdpck_status st = json_expect(&r, JSON_ARRAY, &t, err);
    if (st == FSDPCK_OK)
        st = unit_json_read(&r, &(unit_defaults){.world_size = world_size}, l, err);
    if (st == FSDPCK_OK)
        st = json_expect(&r, JSON_END, &t, err);
    json_reader_release(&r);
    return st;
}

int main(int argc, char **argv)
{
    text_buf text = {0};
    text_buf out = {0};
    unit_list given, scaled;
    budget b;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&b, (uint64_t)1 << 30, "metadata", NULL);
    unit_list_init(&given, &b);
    unit_list_init(&scaled, &b);
    const uint32_t world_size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    const uint32_t scale = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    fsdpck_status st = read_all(&text, &err);
    if (st == FSDPCK_OK)
        st = read_units(&text, world_size, &given, &err);
    if (st == FSDPCK_OK && scale > 0)
        st = unit_list_scale(&given, scale, &scaled, &err);
    if (st == FSDPCK_OK) {
        const unit_list *l = scale > 0 ? &scaled : &given;
        json_writer w;
        json_writer_init(&w, &out, 0);
        json_begin_array(&w);
        for (uint32_t i = 0; i < unit_count(l); i++)
            put_unit(&w, l, unit_at(l, i));
        json_end_array(&w);
        st = text_check(&out, &err);
    }
    if (st == FSDPCK_OK)
        printf("%s\n", out.text);
    else
        fprintf(stderr, "unit_table: %s: %s (%s; expected %s, found %s)\n",
                fsdpck_finding_name(err.finding), err.message, err.tensor, err.expected, err.found);
    unit_list_release(&scaled);
    unit_list_release(&given);
    text_release(&text);
    text_release(&out);
    return (int)st;
}
