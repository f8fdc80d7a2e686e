/* JSON report of fsdpck inspect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect_print.h"
#include "report.h"

static void put_tensor(json_writer *w, const fsdpck_checkpoint *ckpt, uint64_t index)
{
    char layout[128];
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_get_tensor(ckpt, index, &t);
    fsdpck_describe_chunks(ckpt, index, layout, sizeof layout);
    json_begin_object(w);
    report_name(w, "name", t.name, t.name_nbytes);
    json_member_string(w, "dtype", t.dtype);
    json_member_u64s(w, "shape", t.shape, t.ndim);
    JSON_COUNTS(w, {"bytes", t.nbytes}, {"chunks", t.nchunks});
    json_member_string(w, "layout", layout);
    json_member_string(w, "part", fsdpck_part_name(t.part));
    json_end_object(w);
}

static void put_counts(json_report *r, const fsdpck_info *info)
{
    json_writer *const w = &r->w;
    REPORT_MEMBER_COUNTS(r, REPORT_COUNTS, {"tensors", info->tensors}, {"objects", info->objects},
                         {"files", info->files}, {"chunks", info->chunks},
                         {"elements", info->nelems}, {"bytes", info->nbytes},
                         {"file_bytes", info->file_nbytes}, {"left_out", info->left_out});
    json_member_object(w, "parts");
    for (int i = 0; i < 3; i++)
        JSON_MEMBER_COUNTS(w, fsdpck_part_name((fsdpck_part)i), {"tensors", info->part_tensors[i]},
                           {"elements", info->part_nelems[i]}, {"bytes", info->part_nbytes[i]},
                           {"objects", info->part_objects[i]});
    json_end_object(w);
    json_member_string(w, "model_key", info->model_key);
    json_member_string(w, "part_rule", info->part_rule);
    json_member_string(w, "note", info->note);
}

static void put_adapters(json_writer *w, fsdpck_checkpoint *ckpt)
{
    fsdpck_adapter a = FSDPCK_INIT(fsdpck_adapter);
    if (!fsdpck_get_adapter(ckpt, 0, &a))
        return;
    json_member_array(w, "adapters");
    for (size_t i = 0; fsdpck_get_adapter(ckpt, i, &a); i++) {
        json_begin_object(w);
        report_name(w, "name", a.name, strlen(a.name));
        JSON_COUNTS(w, {"tensors", a.tensors}, {"bytes", a.nbytes}, {"modules", a.modules},
                    {"rank_min", a.rank_min}, {"rank_max", a.rank_max},
                    {"saved_modules", a.saved_modules}, {"token_modules", a.token_modules});
        json_member_bool(w, "use_dora", a.use_dora);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_state_files(json_writer *w, fsdpck_checkpoint *ckpt)
{
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    if (!fsdpck_get_state_file(ckpt, 0, &f))
        return;
    json_member_array(w, "state_files");
    for (size_t i = 0; fsdpck_get_state_file(ckpt, i, &f); i++) {
        json_begin_object(w);
        report_path(w, "name", f.name);
        json_member_string(w, "content", inspect_state_words(f.kind));
        JSON_COUNTS(w, {"bytes", f.nbytes}, {"tensors", f.tensors},
                    {"tensor_bytes", f.tensor_nbytes});
        if (f.step >= 0)
            json_member_i64(w, "step", f.step);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_totals(json_report *r, const fsdpck_checkpoint *ckpt, const inspect_totals *s)
{
    json_writer *const w = &r->w;
    json_member_object(w, "dtypes");
    for (size_t i = 0; i < s->dtype_count; i++)
        JSON_MEMBER_COUNTS(w, s->dtypes[i].dtype, {"tensors", s->dtypes[i].tensors},
                           {"bytes", s->dtypes[i].nbytes});
    json_end_object(w);
    json_member_array(w, "largest");
    for (size_t i = 0; i < s->largest_count; i++)
        put_tensor(w, ckpt, s->largest[i]);
    json_end_array(w);
    json_member_u64s(w, "bytes_per_rank", s->rank_nbytes, s->rank_count);
    if (r->exit_code != 0)
        return; /* the next step of the failure */
    report_begin_member(r, REPORT_NEXT);
    for (size_t i = 0; i < s->next_count; i++)
        json_put_cstr(w, s->next[i].text);
    json_end_array(w);
}

static void put_object(json_writer *w, fsdpck_checkpoint *ckpt, uint64_t index)
{
    fsdpck_object o = FSDPCK_INIT(fsdpck_object);
    fsdpck_error err = FSDPCK_ERROR_INIT;
    char *text = NULL;
    fsdpck_get_object(ckpt, index, &o);
    json_begin_object(w);
    report_name(w, "name", o.name, o.name_nbytes);
    json_member_string(w, "part", fsdpck_part_name(o.part));
    if (o.rank >= 0)
        json_member_i64(w, "rank", o.rank);
    if (fsdpck_print_object(ckpt, index, 4000, &text, &err) == FSDPCK_OK)
        json_member_string(w, "value", text == NULL ? "" : text);
    else
        json_member_string(w, "error", err.message);
    free(text);
    json_end_object(w);
}

/* `tensors`: their order, or NULL. */
static void put_lists(json_report *r, fsdpck_checkpoint *ckpt, const fsdpck_info *info,
                      const uint64_t *tensors, bool objects)
{
    if (tensors != NULL) {
        json_member_array(&r->w, "tensors");
        for (uint64_t i = 0; i < info->tensors; i++)
            put_tensor(&r->w, ckpt, tensors[i]);
        json_end_array(&r->w);
    }
    if (objects) {
        json_member_array(&r->w, "objects");
        for (uint64_t i = 0; i < info->objects; i++)
            put_object(&r->w, ckpt, i);
        json_end_array(&r->w);
    }
}

static void put_number(json_writer *w, const char *key, int64_t number)
{
    if (number >= 0)
        json_member_i64(w, key, number);
}

static void put_megatron(json_writer *w, fsdpck_checkpoint *ckpt)
{
    fsdpck_megatron m = FSDPCK_INIT(fsdpck_megatron);
    if (!fsdpck_get_megatron(ckpt, &m))
        return;
    json_member_object(w, "megatron");
    if (m.checkpoint_version[0] != '\0')
        json_member_string(w, "checkpoint_version", m.checkpoint_version);
    if (m.optimizer[0] != '\0')
        json_member_string(w, "optimizer", m.optimizer);
    put_number(w, "iteration", m.iteration);
    put_number(w, "world_size", m.world_size);
    put_number(w, "tensor_parallel", m.tensor_parallel);
    put_number(w, "pipeline_parallel", m.pipeline_parallel);
    put_number(w, "expert_parallel", m.expert_parallel);
    put_number(w, "context_parallel", m.context_parallel);
    json_member_bool(w, "unread", m.is_unread != 0);
    json_end_object(w);
}

int inspect_print_json(const cli *c, fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                       const command_options *given, bool tensors, bool objects, name_order order)
{
    inspect_totals s;
    json_report r;
    if (!inspect_collect(ckpt, damage, given, &s))
        return report_no_memory(c);
    uint64_t *indices = tensors ? name_order_tensors(ckpt, order) : NULL;
    if (tensors && indices == NULL) {
        inspect_totals_release(&s);
        return report_no_memory(c);
    }
    report_set_step(ckpt, &s.info);
    if (damage == NULL)
        report_begin(&r, c, 0, "none", &s.info);
    else
        report_begin_failure(&r, c, &s.info, damage);
    report_put_steps(&r.w, "steps", ckpt);
    put_megatron(&r.w, ckpt);
    put_counts(&r, &s.info);
    put_adapters(&r.w, ckpt);
    put_state_files(&r.w, ckpt);
    put_totals(&r, ckpt, &s);
    put_lists(&r, ckpt, &s.info, indices, objects);
    free(indices);
    inspect_totals_release(&s);
    return report_end(&r);
}
