#include "run/run_report.h"
#include "run/lost_attributes.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "manifest/manifest.h"
#include "open/side_folder.h"
#include "run/group_plan.h"
#include "run/rank_totals.h"

/* Limit of files beside the weights that a report names. */
#define SIDECARS_MAX 100u

static fsdpck_status copy_names(char *const *names, size_t count, char *const **out,
                                size_t *out_count, fsdpck_error *err)
{
    char **list = calloc(count + 1, sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, count * sizeof *list);
    *out = list;
    for (size_t i = 0; i < count; i++) {
        list[i] = strdup(names[i]);
        if (list[i] == NULL)
            return error_set_nomem(err, strlen(names[i]));
        (*out_count)++;
    }
    return FSDPCK_OK;
}

/* "DST/NAME", or DST if the output is a file. */
static fsdpck_status add_output(const report_input *in, const char *name, char **list,
                                size_t *count, fsdpck_error *err)
{
    text_buf path = {0};
    text_puts(&path, in->dst);
    if (in->to->is_folder) {
        while (path.nbytes > 1 && path.text[path.nbytes - 1] == '/')
            path.text[--path.nbytes] = '\0';
        text_puts(&path, "/");
        text_puts(&path, name);
    }
    const fsdpck_status st = text_check(&path, err);
    if (st == FSDPCK_OK)
        list[(*count)++] = path.text;
    else
        text_release(&path);
    return st;
}

static fsdpck_status list_outputs(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    const size_t count = catalogue_file_count(&in->to->cat);
    const size_t most = count + in->side->files.count + 1;
    char **list = calloc(most + 1, sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, most * sizeof *list);
    r->outputs = list;
    for (size_t i = 0; i < count; i++) {
        const cat_file *f = catalogue_file(&in->to->cat, i);
        RETURN_IF(
            add_output(in, catalogue_name(&in->to->cat, f->path), list, &r->outputs_count, err));
    }
    for (size_t i = 0; i < in->side->files.count; i++) {
        const sidecar *f = VEC_AT(&in->side->files, const sidecar, i);
        if (f->copied)
            RETURN_IF(add_output(in, sidecars_output(in->side, f), list, &r->outputs_count, err));
    }
    return in->to->is_folder && !in->opt->output.no_manifest
               ? add_output(in, MANIFEST_NAME, list, &r->outputs_count, err)
               : FSDPCK_OK;
}

static bool is_index(const char *name)
{
    const size_t n = strlen(name);
    return n > 11 && strcmp(name + n - 11, ".index.json") == 0;
}

/* A folder gets a slash. */
static fsdpck_status add_sidecar(char **list, fsdpck_report *r, const char *name, path_kind kind,
                                 fsdpck_error *err)
{
    text_buf text = {0};
    if (r->sidecars_count == SIDECARS_MAX) {
        r->sidecars_more++;
        return FSDPCK_OK;
    }
    text_printf(&text, "%s%s", name, kind == PATH_FOLDER ? "/" : "");
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK) {
        list[r->sidecars_count] = strdup(text.text);
        st = list[r->sidecars_count] == NULL ? error_set_nomem(err, text.nbytes) : FSDPCK_OK;
    }
    r->sidecars_count += st == FSDPCK_OK;
    text_release(&text);
    return st;
}

/* Metadata such as '.metadata', which no catalogue lists. */
static bool is_owned(const fsdpck_checkpoint *src, const probe_input *in, const char *name,
                     uint64_t nbytes)
{
    return in == &src->probe && src->format->owns != NULL &&
           src->format->owns(in, &src->cat.origin, name, nbytes);
}

/* The checkpoint that was entered, or a folder that leads to it. */
static bool is_way_in(const fsdpck_checkpoint *src, const probe_input *above, const char *name)
{
    const size_t n = strlen(name);
    const char *below = src->probe.path;
    if (strncmp(below, above->path, strlen(above->path)) != 0)
        return false;
    below += strlen(above->path);
    below += strspn(below, "/");
    return strncmp(below, name, n) == 0 && (below[n] == '\0' || below[n] == '/');
}

static bool is_listed(const report_input *in, const probe_input *p, const char *name,
                      path_kind *kind)
{
    uint64_t nbytes = 0;
    if (is_index(name) || strcmp(name, MANIFEST_NAME) == 0 || sidecars_has(in->side, name) ||
        path_probe(&p->dir, name, kind, &nbytes, NULL) != FSDPCK_OK)
        return false;
    if (*kind == PATH_ABSENT && path_is_dangling(&p->dir, name))
        *kind = PATH_FILE;
    if ((*kind != PATH_FILE && *kind != PATH_FOLDER) ||
        (name[0] == '.' && is_owned(in->src, p, name, nbytes)))
        return false;
    if (p != &in->src->probe)
        return !is_way_in(in->src, p, name);
    return !catalogue_has_path(&in->src->cat, name) && !catalogue_has_path(&in->to->cat, name) &&
           (in->src->adapter == NULL || !catalogue_has_path(&in->src->read, name)) &&
           strcmp(name, in->src->cat.origin.side_folder) != 0;
}

static fsdpck_status list_folder(const report_input *in, const probe_input *p, char **list,
                                 fsdpck_report *r, fsdpck_error *err)
{
    for (size_t i = 0; p->is_folder && i < p->entry_count; i++) {
        path_kind kind;
        if (is_listed(in, p, p->entries[i], &kind))
            RETURN_IF(add_sidecar(list, r, p->entries[i], kind, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status list_above(const report_input *in, char **list, fsdpck_report *r,
                                fsdpck_error *err)
{
    probe_input above;
    char *path = side_folder_above(in->src);
    if (path == NULL || probe_gather(path, &above, NULL) != FSDPCK_OK) {
        free(path);
        return FSDPCK_OK;
    }
    const fsdpck_status st = list_folder(in, &above, list, r, err);
    probe_release(&above);
    free(path);
    return st;
}

/* Files and folders beside the weights that are not copied: of a published model (tokenizer, config,
 * code), or of a trainer. Files that the run rewrites for the ranks do not count. */
static fsdpck_status list_sidecars(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    char **list = calloc(SIDECARS_MAX + 1, sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, SIDECARS_MAX * sizeof *list);
    r->sidecars = list;
    RETURN_IF(list_folder(in, &in->src->probe, list, r, err));
    RETURN_IF(list_above(in, list, r, err));
    for (size_t i = 0; i < in->side->files.count; i++) {
        const sidecar *f = VEC_AT(&in->side->files, const sidecar, i);
        if (!f->copied && (in->side->of_like || strchr(f->path, '/') != NULL))
            RETURN_IF(add_sidecar(list, r, f->path, PATH_FILE, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status list_copied(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    const sidecars *s = in->side;
    char **list = calloc(s->files.count + 1, sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, s->files.count * sizeof *list);
    r->copied = list;
    for (size_t i = 0; i < s->files.count; i++) {
        const sidecar *f = VEC_AT(&s->files, const sidecar, i);
        if (!f->copied)
            continue;
        list[r->copied_count] = strdup(sidecars_output(s, f));
        if (list[r->copied_count] == NULL)
            return error_set_nomem(err, strlen(f->path));
        r->copied_count++;
    }
    return FSDPCK_OK;
}

/* Of an average: bytes of all inputs, without those of the plan. */
static uint64_t further_nbytes(const report_input *in)
{
    const fsdpck_checkpoint *src = in->src;
    const catalogue *from = plan_source(in->plan);
    uint64_t nbytes = 0;
    if (src->average == NULL || !in->opt->dry_run.mode)
        return src->average == NULL ? 0 : averager_further_nbytes(src->average);
    const average_rule *rule = &src->average_rule;
    const uint64_t inputs = rule->count + rule->has_base;
    for (uint32_t i = 0; i < catalogue_tensor_count(from); i++) {
        const cat_tensor *t = catalogue_tensor(from, i);
        if (averager_takes(src->average, i) && plan_uses_tensor(in->plan, i))
            nbytes +=
                box_nelems(catalogue_shape(from, i), t->ndim) *
                dtype_get((dtype)t->dtype)->itemsize_bytes *
                (inputs - 1 + (rule->slerp && averager_computes(src->average, i) ? inputs : 0));
    }
    return nbytes;
}

static fsdpck_status fill_plan(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    plan_totals totals;
    plan_get_totals(in->plan, &totals);
    r->items = totals.items;
    r->segments = totals.segments_at_least;
    r->read_amplification = totals.read_amplification;
    if (in->opt->dry_run.mode) {
        r->bytes_read = totals.source_bytes + further_nbytes(in);
        r->bytes_written = totals.target_bytes + totals.constant_bytes;
    }
    if (in->opt->dry_run.mode < 2)
        return FSDPCK_OK;
    text_buf text = {0};
    const fsdpck_status st = plan_print(in->plan, &text, err);
    r->plan_text = text.text; /* freed with the report, whether it is whole or not */
    return st;
}

/* The size of its files: streams overwrite bytes that tiles left for them. */
static uint64_t output_nbytes(const report_input *in)
{
    const catalogue *to = &plan_target(in->plan)->cat;
    uint64_t nbytes = 0;
    for (size_t i = 0; !in->opt->dry_run.mode && i < catalogue_file_count(to); i++)
        nbytes += catalogue_file(to, i)->nbytes;
    return nbytes;
}

/* Tensors without bytes in the source. */
static void count_filled(const plan *p, fsdpck_report *r)
{
    const catalogue *from = plan_source(p);
    for (size_t i = 0; i < catalogue_tensor_count(from); i++) {
        const cat_tensor *t = catalogue_tensor(from, i);
        uint64_t nelems = 0, sizes[NDIM_MAX];
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            if (catalogue_chunk(from, k)->place != LOCATION_FILL)
                continue;
            catalogue_chunk_box(from, k, NULL, sizes);
            nelems += box_nelems(sizes, t->ndim);
        }
        if (nelems == 0 || !plan_uses_tensor(p, (uint32_t)i))
            continue;
        r->filled++;
        r->filled_nbytes += nelems * dtype_get((dtype)t->dtype)->itemsize_bytes;
    }
}

static void fill_counts(const report_input *in, fsdpck_report *r)
{
    const select_result *a = in->selected;
    struct exec_stats done;
    exec_get_stats(in->exec, &done);
    r->tensors_in = a->tensors_in;
    r->tensors_out = a->tensors_out;
    r->objects_out = a->objects_out;
    r->cast = a->cast;
    r->renamed = a->renamed;
    r->tied = a->tied;
    r->tied_dropped = a->tied_dropped;
    r->left_out_tensors = a->left_out_tensors;
    r->left_out_objects = a->left_out_objects;
    r->left_out_nbytes = a->left_out_nbytes;
    r->left_out_inside = a->left_out_inside;
    r->nbytes_in = a->nbytes_in;
    r->nbytes_out = a->nbytes_out;
    r->tied_dropped_nbytes = a->tied_dropped_nbytes;
    r->merged = a->merged;
    r->merged_nbytes = a->merged_nbytes;
    r->carried = a->carried;
    r->carried_nbytes = a->carried_nbytes;
    r->other_params = a->other_params;
    r->other_params_nbytes = a->other_params_nbytes;
    r->attributes_lost = lost_attributes_count(in->to, in->writer->takes == STATE_NESTED).tensors;
    r->bytes_read = done.bytes_read + further_nbytes(in);
    r->bytes_written = output_nbytes(in) - done.kept_nbytes;
    r->has_checksums = in->has_checksums;
    r->resumable = in->resume->on;
    r->resumed = in->resume->continues;
    r->kept_ranges = done.kept_ranges;
    r->kept_nbytes = done.kept_nbytes;
    if (done.recorded_nbytes > done.kept_nbytes)
        r->rewritten_nbytes = done.recorded_nbytes - done.kept_nbytes;
    r->direct_nbytes = done.direct_bytes;
    r->cast_overflows = done.cast_overflows;
    r->replicas_compared = done.replicas_compared;
    r->replicas_by_checksum = done.replicas_by_crc;
    r->replicas_trusted = done.replicas_trusted;
    r->ranks = group_size(in->src->ctx->group);
    r->bytes_travelled = done.bytes_travelled;
    count_filled(in->plan, r);
}

/* If each host has its own output. */
static fsdpck_status list_hosts(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    const local_output *l = in->local;
    if (!l->on)
        return FSDPCK_OK;
    fsdpck_report_host *list = calloc(l->hosts.count, sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, l->hosts.count * sizeof *list);
    r->hosts = list;
    r->bytes_copied = l->copied_nbytes;
    for (unsigned h = 0; h < l->hosts.count; h++) {
        const char *name = group_host(in->src->ctx->group, l->hosts.leaders[h]);
        list[h] = (fsdpck_report_host){escaped_copy(name), l->totals[h].files, l->totals[h].nbytes};
        r->hosts_count++;
        if (list[h].name == NULL)
            return error_set_nomem(err, strlen(name));
    }
    return FSDPCK_OK;
}

static fsdpck_status fill_layout(const report_input *in, fsdpck_report *r, fsdpck_error *err)
{
    r->world_size = in->to->world_size;
    r->torch_minor = in->opt->output.torch_minor;
    text_buf text = {0};
    text_puts(&text, "");
    if (in->layout != NULL)
        mesh_print(&in->layout->mesh, &text);
    r->mesh = text.text; /* freed with the report, whether it is whole or not */
    RETURN_IF(text_check(&text, err));
    if (in->layout == NULL)
        return FSDPCK_OK;
    rank_totals totals;
    RETURN_IF(rank_totals_make(&totals, in->to, &in->src->parts, in->optim_state_map, false, err));
    r->rank_nbytes_min = totals.ranks[totals.rank_min].nbytes;
    r->rank_nbytes_max = totals.ranks[totals.rank_max].nbytes;
    r->rank_nbytes_total = totals.nbytes_total;
    r->empty_pieces = totals.empty_pieces;
    r->replicated = totals.replicated;
    rank_totals_release(&totals);
    return FSDPCK_OK;
}

/* Adapters stay in a state as they are, unless --keys, --exclude or --part omit them. */
static void count_adapters(const report_input *in, fsdpck_report *r)
{
    if (in->src->extract != NULL)
        return;
    checkpoint_list_adapters(in->src);
    for (size_t i = 0; i < in->src->adapters.count; i++)
        r->adapter_tensors_in += VEC_AT(&in->src->adapters, const found_adapter, i)->tensors;
    if (r->adapter_tensors_in > 0)
        r->adapter_tensors_out = adapters_count_tensors(&in->to->cat);
}

fsdpck_status report_make(const report_input *in, fsdpck_report **report, fsdpck_error *err)
{
    fsdpck_report *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set_nomem(err, sizeof *r);
    r->struct_nbytes = sizeof *r;
    r->format = in->writer->name;
    r->format_id = in->writer->id;
    r->part =
        in->src->extract != NULL ? "adapter" : fsdpck_part_name((fsdpck_part)in->opt->select.part);
    const bool dropped =
        in->writer->takes == STATE_NAMES_ONLY && in->opt->select.part == FSDPCK_PART_MODEL;
    fsdpck_status st = FSDPCK_OK;
    char *key = strdup(dropped ? in->src->parts.model_key : "");
    r->model_key = key;
    r->part_rule = strdup(in->src->parts.rule);
    r->other_params_first =
        strdup(in->selected->other_params > 0 ? in->selected->other_params_first : "");
    if (key == NULL || r->part_rule == NULL || r->other_params_first == NULL)
        GOTO_IF(error_set_nomem(err, 32), out);
    fill_counts(in, r);
    count_adapters(in, r);
    GOTO_IF(fill_plan(in, r, err), out);
    GOTO_IF(fill_layout(in, r, err), out);
    if (in->opt->dry_run.mode && in->opt->dry_run.group_size > 0)
        GOTO_IF(group_plan_make(in->exec, in->opt, &r->group, err), out);
    GOTO_IF(list_outputs(in, r, err), out);
    GOTO_IF(list_hosts(in, r, err), out);
    GOTO_IF(list_sidecars(in, r, err), out);
    GOTO_IF(list_copied(in, r, err), out);
    GOTO_IF(copy_names(in->selected->left_out_names.list, in->selected->left_out_names.count,
                       &r->left_out_names, &r->left_out_names_count, err),
            out);
    GOTO_IF(copy_names(in->selected->tied_names.list, in->selected->tied_names.count,
                       &r->tied_names, &r->tied_names_count, err),
            out);
    GOTO_IF(copy_names(in->selected->carried_names.list, in->selected->carried_names.count,
                       &r->carried_names, &r->carried_names_count, err),
            out);
out:
    if (st != FSDPCK_OK) {
        fsdpck_report_free(r);
        return st;
    }
    *report = r;
    return FSDPCK_OK;
}

static void free_names(char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free((void *)names);
}

void fsdpck_report_free(fsdpck_report *r)
{
    if (r == NULL)
        return;
    free_names(r->outputs, r->outputs_count);
    for (size_t i = 0; i < r->hosts_count; i++)
        free((void *)r->hosts[i].name);
    free((void *)r->hosts);
    free_names(r->sidecars, r->sidecars_count);
    free_names(r->copied, r->copied_count);
    free_names(r->left_out_names, r->left_out_names_count);
    free_names(r->tied_names, r->tied_names_count);
    free_names(r->carried_names, r->carried_names_count);
    free((void *)r->plan_text);
    free((void *)r->model_key);
    free((void *)r->part_rule);
    free((void *)r->other_params_first);
    free((void *)r->mesh);
    if (r->group != NULL)
        free((void *)r->group->ranks);
    free((void *)r->group);
    free(r);
}
