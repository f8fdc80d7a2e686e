/* convert_report_json.c: the report of consolidate, reshard or average as JSON. */
#include <string.h>

#include "average_print.h"
#include "convert_report.h"
#include "given_options.h"
#include "group_print.h"
#include "layout_print.h"
#include "map_print.h"
#include "next_command.h"
#include "report.h"

static void put_counts(json_report *r, const fsdpck_report *p)
{
    json_writer *const w = &r->w;
    report_begin_member(r, REPORT_COUNTS);
    JSON_COUNTS(w, {"in", p->tensors_in}, {"out", p->tensors_out}, {"objects_out", p->objects_out},
                {"cast", p->cast}, {"cast_overflows", p->cast_overflows}, {"renamed", p->renamed},
                {"tied", p->tied}, {"tied_dropped", p->tied_dropped},
                {"left_out", p->left_out_tensors}, {"left_out_objects", p->left_out_objects},
                {"left_out_bytes", p->left_out_nbytes}, {"merged", p->merged},
                {"in_bytes", p->nbytes_in}, {"out_bytes", p->nbytes_out},
                {"tied_dropped_bytes", p->tied_dropped_nbytes}, {"merged_bytes", p->merged_nbytes});
    if (p->carried > 0)
        JSON_COUNTS(w, {"carried", p->carried}, {"carried_bytes", p->carried_nbytes});
    if (p->attributes_lost > 0)
        json_member_u64(w, "attributes_lost", p->attributes_lost);
    if (p->adapter_tensors_in > 0)
        JSON_COUNTS(w, {"adapter_tensors_in", p->adapter_tensors_in},
                    {"adapter_tensors_out", p->adapter_tensors_out});
    JSON_COUNTS(w, {"other_params", p->other_params},
                {"other_params_bytes", p->other_params_nbytes}, {"bytes_read", p->bytes_read},
                {"bytes_written", p->bytes_written}, {"bytes_written_direct", p->direct_nbytes},
                {"replicas_compared", p->replicas_compared},
                {"replicas_by_checksum", p->replicas_by_checksum});
    if (p->replicas_trusted > 0)
        json_member_u64(w, "replicas_not_compared", p->replicas_trusted);
    if (p->filled > 0)
        JSON_COUNTS(w, {"filled", p->filled}, {"filled_bytes", p->filled_nbytes});
    if (p->ranks > 1)
        JSON_COUNTS(w, {"ranks", p->ranks}, {"bytes_travelled", p->bytes_travelled});
    if (p->hosts_count > 0)
        json_member_u64(w, "bytes_copied", p->bytes_copied);
    if (convert_is_reshard(p))
        JSON_COUNTS(w, {"replicated", p->replicated}, {"empty_pieces", p->empty_pieces});
    JSON_COUNTS(w, {"items", p->items}, {"segments", p->segments});
    json_end_object(w);
}

static void put_mesh(json_writer *w, const fsdpck_report *p)
{
    json_member_string(w, "mesh", p->mesh);
    json_member_u64(w, "world_size", p->world_size);
    json_member_object(w, "rank_nbytes");
    JSON_COUNTS(w, {"min", p->rank_nbytes_min}, {"max", p->rank_nbytes_max});
    layout_put_sum(w, p->rank_nbytes_max, p->rank_nbytes_total, p->world_size);
    json_end_object(w);
}

static void put_outputs(json_report *out, const command_request *r, const fsdpck_report *p)
{
    if (r->job.dry_run.mode != 0)
        json_member_array(&out->w, "planned_outputs");
    else
        report_begin_member(out, REPORT_OUTPUTS);
    for (size_t i = 0; i < p->outputs_count; i++)
        report_put_path(&out->w, p->outputs[i]);
    if (r->job.output.manifest_path != NULL)
        report_put_path(&out->w, r->job.output.manifest_path);
    json_end_array(&out->w);
}

static void put_hosts(json_writer *w, const fsdpck_report *p)
{
    if (p->hosts_count == 0)
        return;
    json_member_array(w, "hosts");
    for (size_t i = 0; i < p->hosts_count; i++) {
        json_begin_object(w);
        json_member_string(w, "host", p->hosts[i].name);
        JSON_COUNTS(w, {"files", p->hosts[i].files}, {"bytes", p->hosts[i].nbytes});
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_adapter(json_writer *w, const fsdpck_info *info)
{
    if (!info->has_adapter)
        return;
    json_member_object(w, "adapter");
    report_name(w, "name", info->adapter, strlen(info->adapter));
    json_put_key(w, "config", strlen("config"));
    report_put_path(w, info->adapter_config);
    json_end_object(w);
}

static void put_resume(json_writer *w, const fsdpck_report *p)
{
    if (!p->resumable)
        return;
    json_member_object(w, "resume");
    json_member_bool(w, "continued", p->resumed != 0);
    JSON_COUNTS(w, {"kept_ranges", p->kept_ranges}, {"kept_bytes", p->kept_nbytes},
                {"rewritten_bytes", p->rewritten_nbytes});
    json_end_object(w);
}

/* After a plan, a check of the source and the run; after a run, how to load and to check the output. */
static void put_next(json_report *out, const cli *c, const command_request *r,
                     const fsdpck_report *p)
{
    char step[1600];
    text_buf line = {0};
    report_begin_member(out, REPORT_NEXT);
    if (convert_next_step(r, p, step, sizeof step)[0] != '\0')
        report_put_text(&out->w, step);
    if (r->job.dry_run.mode != 0) {
        const size_t n = r->sources == NULL ? 1 : r->source_count;
        for (size_t i = 0; i < n; i++) {
            next_command_verify(&line, r->given, r->sources == NULL ? r->src : r->sources[i]);
            next_command_put(&out->w, &line);
        }
        next_command_run(&line, c);
    } else {
        text_puts(&line, "fsdpck verify --level checksum ");
        given_path_add(&line, r->dst);
    }
    next_command_put(&out->w, &line);
    json_end_array(&out->w);
}

int convert_print_json(const cli *c, const command_request *r, fsdpck_checkpoint *src,
                       const fsdpck_info *info, const fsdpck_report *p)
{
    json_report out;
    json_writer *const w = report_begin(&out, c, 0, "none", info);
    if (r->sources == NULL)
        report_put_page_steps(c, w, "steps", src);
    json_member_string(w, "format", p->format);
    json_member_string(w, "part", p->part);
    json_member_string(w, "model_key", p->model_key);
    json_member_string(w, "part_rule", p->part_rule);
    put_adapter(w, info);
    average_put_json(r, src, w);
    map_put_json(w, info);
    report_path(w, "like", r->given->base);
    json_member_bool(w, "dry_run", r->job.dry_run.mode != 0);
    if (convert_is_reshard(p))
        put_mesh(w, p);
    put_outputs(&out, r, p);
    json_member_string(w, "note", info->note);
    put_hosts(w, p);
    put_counts(&out, p);
    put_resume(w, p);
    /* These commands do not compare the checksums of the source. */
    report_begin_member(&out, REPORT_UNCHECKED);
    JSON_COUNTS(w, {"tensors", p->tensors_out}, {"bytes", p->bytes_written + p->kept_nbytes});
    json_member_bool(w, "has_checksums", p->has_checksums != 0);
    json_end_object(w);
    report_texts(w, "left_out", p->left_out_names, p->left_out_names_count);
    report_texts(w, "tied", p->tied_names, p->tied_names_count);
    if (p->carried > 0)
        report_texts(w, "carried", p->carried_names, p->carried_names_count);
    report_paths(w, "sidecars", p->sidecars, p->sidecars_count);
    report_paths(w, "copied", p->copied, p->copied_count);
    json_member_string(w, "plan", p->plan_text);
    if (p->group != NULL)
        group_put_json(c, r, p->group, w);
    put_next(&out, c, r, p);
    return report_end(&out);
}
