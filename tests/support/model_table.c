/* model_table: what a description says, for comparison with torch's.
 *
 *     model_table [WORLD_SIZE] <DESCRIPTION
 *
 * Prints a JSON object: "units" (FSDP1: prefix, world_size, unsharded, total, fqns, shapes,
 * shared), "fully_sharded" (FSDP2: module, world_size, post_forward, params), "names" (all of each
 * parameter) and "buffers". Exit status: 0, or that of the error, which is printed to stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "model/model.h"
#include "tests/support/unit_print.h"

static void put_model_name(json_writer *w, const model *m, uint32_t id)
{
    size_t nbytes;
    const char *text = model_name(m, id, &nbytes);
    json_put_string(w, text, nbytes);
}

static void put_unit(json_writer *w, const unit_list *l, const unit *u)
{
    json_begin_object(w);
    json_put_key(w, "prefix", 6);
    put_unit_name(w, l, u->prefix);
    json_member_u64(w, "world_size", u->world_size);
    json_member_bool(w, "unsharded", u->unsharded);
    json_member_u64(w, "total", u->total);
    put_unit_params(w, l, u);
    json_end_object(w);
}

static void put_sharded(json_writer *w, const model *m, const sharded_list *l)
{
    json_member_array(w, "fully_sharded");
    for (size_t i = 0; i < l->units.count; i++) {
        const sharded_unit *u = VEC_AT(&l->units, const sharded_unit, i);
        const model_module *module = model_module_at(m, u->module);
        json_begin_object(w);
        json_put_key(w, "module", 6);
        put_model_name(w, m, module->name);
        json_member_u64(w, "world_size", u->world_size);
        json_member_u64(w, "post_forward", model_sharding_of(m, module)->post_forward);
        json_member_array(w, "params");
        for (uint32_t k = u->first_param; k < u->first_param + u->nparams; k++) {
            const uint32_t param = *VEC_AT(&l->params, const uint32_t, k);
            put_model_name(w, m, model_param_at(m, param)->name);
        }
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_names(json_writer *w, const model *m)
{
    json_member_array(w, "names");
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        if (model_param_first(m, i) != i)
            continue;
        json_begin_array(w);
        for (uint32_t k = i; k != MODEL_NONE; k = model_param_at(m, k)->next_name)
            put_model_name(w, m, model_param_at(m, k)->name);
        json_end_array(w);
    }
    json_end_array(w);
    json_member_array(w, "buffers");
    for (uint32_t i = 0; i < model_buffer_count(m); i++)
        put_model_name(w, m, model_buffer_at(m, i)->name);
    json_end_array(w);
}

static fsdpck_status print_all(const model *m, const unit_list *units, const sharded_list *groups,
                               fsdpck_error *err)
{
    text_buf out = {0};
    json_writer w;
    json_writer_init(&w, &out, 1);
    json_begin_object(&w);
    json_member_array(&w, "units");
    for (uint32_t i = 0; i < unit_count(units); i++)
        put_unit(&w, units, unit_at(units, i));
    json_end_array(&w);
    put_sharded(&w, m, groups);
    put_names(&w, m);
    json_end_object(&w);
    const fsdpck_status st = text_check(&out, err);
    if (st == FSDPCK_OK)
        puts(out.text);
    text_release(&out);
    return st;
}

int main(int argc, char **argv)
{
    const uint32_t world_size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    budget b;
    model m;
    unit_list units;
    sharded_list groups;
    text_buf text = {0};
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&b, (uint64_t)1 << 30, "metadata", NULL);
    model_init(&m, &b);
    unit_list_init(&units, &b);
    sharded_list_init(&groups, &b);
    fsdpck_status st = read_all(&text, &err);
    if (st == FSDPCK_OK)
        st = model_read(&m, text.text == NULL ? "" : text.text, text.nbytes, &err);
    if (st == FSDPCK_OK)
        st = model_find_units(&m, &(model_ranks){.world_size = world_size}, &units, &err);
    if (st == FSDPCK_OK)
        st = model_find_fully_sharded(&m, &groups, &err);
    if (st == FSDPCK_OK)
        st = print_all(&m, &units, &groups, &err);
    if (st != FSDPCK_OK)
        fprintf(stderr, "%s: %s: '%s' at %" PRIu64 ": expected %s, found %s\n",
                fsdpck_finding_name(err.finding), err.message, err.tensor, err.offset_bytes,
                err.expected, err.found);
    sharded_list_release(&groups);
    unit_list_release(&units);
    model_release(&m);
    text_release(&text);
    return (int)st;
}
