#include "convert_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "average_print.h"
#include "given_options.h"
#include "group_print.h"
#include "map_print.h"
#include "python_text.h"
#include "report.h"

static bool is_flat(const fsdpck_report *p)
{
    return p->format_id == FSDPCK_FORMAT_FSDP1;
}

static void print_plan(const command_request *r, const fsdpck_report *p)
{
    char a[32], b[32], n[32], k[32];
    if (p->plan_text != NULL)
        fputs(p->plan_text, stdout);
    printf("plan: read %s in %s, write %s in %s%s, read amplification %.2f\n",
           report_bytes(a, sizeof a, p->bytes_read),
           report_count(n, sizeof n, p->segments, "segment"),
           report_bytes(b, sizeof b, p->bytes_written), report_count(k, sizeof k, p->items, "item"),
           r->job.output.gzip_level > 0 ? " before compression" : "", p->read_amplification);
}

static const char *tied_names_written(const command_request *r, const fsdpck_report *p)
{
    return p->tied_dropped > 0                      ? "only the first name was written"
           : r->job.select.tied == FSDPCK_TIED_LINK ? "names were linked"
                                                    : "every name was written";
}

/* " (--dtype bf16)": casts by options, not by --like. */
static void print_dtypes(const command_request *r)
{
    for (size_t i = 0; i < r->job.select.dtype_count; i++)
        printf("%s%s", i == 0 ? " (--dtype " : " ", r->job.select.dtype[i]);
    if (r->job.select.dtype_count > 0)
        putchar(')');
}

static void print_changes(const command_request *r, const fsdpck_report *p)
{
    char a[32], b[32];
    if (p->cast > 0) {
        printf("cast: %s", report_count(a, sizeof a, p->cast, "tensor"));
        print_dtypes(r);
        printf(", %s overflowed to infinity\n",
               report_count(b, sizeof b, p->cast_overflows, "value"));
    }
    if (p->filled > 0)
        printf("filled: %s, %s of unwritten elements, with the fill value of the file\n",
               report_count(a, sizeof a, p->filled, "tensor"),
               report_bytes(b, sizeof b, p->filled_nbytes));
    if (p->replicas_by_checksum > 0)
        printf("replicas: %s compared by their recorded checksums only\n",
               report_number(a, sizeof a, p->replicas_by_checksum));
    if (p->replicas_compared > 0)
        printf("replicas: %s compared byte by byte\n",
               report_number(a, sizeof a, p->replicas_compared));
    if (p->replicas_trusted > 0)
        printf("replicas: %s not compared: --replicas first\n",
               report_number(a, sizeof a, p->replicas_trusted));
    if (p->renamed > 0)
        printf("renamed: %s\n", report_count(a, sizeof a, p->renamed, "tensor"));
    if (p->tied == 0)
        return;
    if (is_flat(p))
        printf("tied: %s of the model, written under another name\n",
               report_count(a, sizeof a, p->tied, "tensor"));
    else
        printf("tied: %s with the data of another tensor; %s\n",
               report_count(a, sizeof a, p->tied, "tensor"), tied_names_written(r, p));
    fputs("  ", stdout);
    convert_put_names(stdout, p->tied_names, p->tied_names_count, CONVERT_NAMES_SHOWN);
}

/* Whether two printed meshes differ only in their sizes. */
static bool has_same_dims(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        if (*a == '=') {
            a += 1 + strspn(a + 1, "0123456789");
            b += 1 + strspn(b + 1, "0123456789");
        } else {
            a++;
            b++;
        }
    }
    return *a == *b;
}

char *convert_mesh_reason(const command_request *r, const fsdpck_info *info, const char *mesh,
                          char *text, size_t capacity_nbytes)
{
    const char *const was = info->mesh == NULL ? "" : info->mesh;
    if (r->given->like != NULL)
        snprintf(text, capacity_nbytes, "as --like");
    else if (r->job.sharding.mesh != NULL)
        snprintf(text, capacity_nbytes, "as given");
    else if (was[0] == '\0')
        snprintf(text, capacity_nbytes, "the source has no mesh");
    else if (strcmp(was, mesh) == 0)
        snprintf(text, capacity_nbytes, "as the source");
    else
        snprintf(text, capacity_nbytes, "the source's %s, %s to --world-size", was,
                 has_same_dims(was, mesh) ? "FSDP dim adapted" : "adapted");
    return text;
}

static void print_mesh(const command_request *r, const fsdpck_info *info, const fsdpck_report *p)
{
    char a[40], b[40], reason[512];
    printf("mesh: %s, %s (%s)\n", p->mesh, report_count(a, sizeof a, p->world_size, "rank"),
           convert_mesh_reason(r, info, p->mesh, reason, sizeof reason));
    printf("per rank: %s", report_bytes(a, sizeof a, p->rank_nbytes_min));
    if (p->rank_nbytes_min != p->rank_nbytes_max)
        printf(" to %s", report_bytes(b, sizeof b, p->rank_nbytes_max));
    printf(", %s replicated\n", report_count(a, sizeof a, p->replicated, "tensor"));
}

/* Whether DST contains a DCP folder for each part. */
static bool is_in_parts(const command_request *r, const fsdpck_report *p)
{
    size_t n = strlen(r->dst);
    while (n > 1 && r->dst[n - 1] == '/')
        n--;
    return p->outputs_count > 0 && strlen(p->outputs[0]) > n + 1 &&
           strchr(p->outputs[0] + n + 1, '/') != NULL;
}

/* The releases of torch that load files written for 2.`minor` (0: the newest). */
static const char *torch_releases(unsigned minor)
{
    static const struct {
        unsigned last;
        const char *text;
    } generations[] = {{7, "2.5 to 2.7"}, {9, "2.8 and 2.9"}, {10, "2.10"}, {12, "2.11 and 2.12"}};
    for (size_t i = 0; minor > 0 && i < sizeof generations / sizeof generations[0]; i++)
        if (minor <= generations[i].last)
            return generations[i].text;
    return "2.13 to 2.15";
}

/* "on each of 4 ranks" */
static const char *on_each_rank(const fsdpck_report *p, char *text, size_t capacity)
{
    char n[32];
    if (p->world_size == 1)
        return "on the only rank";
    snprintf(text, capacity, "on each of %s", report_count(n, sizeof n, p->world_size, "rank"));
    return text;
}

/* A model folder of Hugging Face as it is written without --like, from a source of another kind. */
static bool lacks_config(const command_request *r, const fsdpck_report *p)
{
    static const char name[] = "/config.json";
    if (p->format_id != FSDPCK_FORMAT_HF || r->given->base != NULL || r->job.dry_run.mode != 0)
        return false;
    for (size_t i = 0; i < p->outputs_count; i++) {
        const size_t n = strlen(p->outputs[i]);
        if (n >= sizeof name && strcmp(p->outputs[i] + n - sizeof name + 1, name) == 0)
            return false;
    }
    return true;
}

/* The call that loads the output in torch, or the file that it lacks; "" for a dry run or another command. */
char *convert_next_step(const command_request *r, const fsdpck_report *p, char *text,
                        size_t capacity)
{
    char path[1100], ranks[40];
    text[0] = '\0';
    if (lacks_config(r, p))
        snprintf(
            text, capacity,
            "loaders require config.json beside the weights: export with --like BASE, a folder of "
            "this model, or copy it");
    if (!convert_is_reshard(p) || r->job.dry_run.mode != 0)
        return text;
    if (python_text(path, sizeof path, r->dst)[0] == '\0')
        snprintf(path, sizeof path, "DST");
    if (p->format_id == FSDPCK_FORMAT_DCP && is_in_parts(r, p))
        snprintf(
            text, capacity,
            "call torch.distributed.checkpoint.load for each folder in %s, as the trainer does",
            path);
    else if (p->format_id == FSDPCK_FORMAT_DCP)
        snprintf(text, capacity, "torch.distributed.checkpoint.load(state_dict, checkpoint_id=%s)",
                 path);
    else if (p->format_id == FSDPCK_FORMAT_DCP_SAFETENSORS)
        snprintf(text, capacity,
                 "torch.distributed.checkpoint.load(state_dict, "
                 "storage_reader=HuggingFaceStorageReader(%s))",
                 path);
    else if (is_flat(p))
        snprintf(text, capacity,
                 "%s, load the rank's file in %s with torch.load(weights_only=False), and pass "
                 "the result to load_state_dict() under LOCAL_STATE_DICT, with strict=False for "
                 "use_orig_params; the optimizer is in the file beside it",
                 on_each_rank(p, ranks, sizeof ranks), path);
    else
        snprintf(text, capacity,
                 "%s, in its process group, call torch.load for the rank's file in "
                 "%s with weights_only=False; for torch %s, device %s (--torch, --device-type)",
                 on_each_rank(p, ranks, sizeof ranks), path, torch_releases(p->torch_minor),
                 r->job.output.device_type == NULL ? "cuda" : r->job.output.device_type);
    return text;
}

static void print_path(const char *path)
{
    char escaped[4200];
    printf("%s\n", fsdpck_escape(escaped, sizeof escaped, path, strlen(path)));
}

static void print_hosts(const fsdpck_report *p)
{
    char files[40], nbytes[32], host[300];
    for (size_t i = 0; i < p->hosts_count; i++) {
        const fsdpck_report_host *h = &p->hosts[i];
        printf("on %s: %s, %s\n", fsdpck_escape(host, sizeof host, h->name, strlen(h->name)),
               report_count(files, sizeof files, h->files, "file"),
               report_bytes(nbytes, sizeof nbytes, h->nbytes));
    }
}

static void print_outputs(const cli *c, const command_request *r, const fsdpck_report *p)
{
    char a[40];
    print_hosts(p);
    if (convert_is_reshard(p) && c->verbose == 0) {
        printf("%s in ", report_count(a, sizeof a, p->outputs_count, "file"));
        print_path(r->dst);
        return;
    }
    for (size_t i = 0; i < p->outputs_count; i++)
        print_path(p->outputs[i]);
    if (r->job.output.manifest_path != NULL)
        print_path(r->job.output.manifest_path);
}

static void print_adapter(const fsdpck_info *info)
{
    char name[300], path[4200];
    if (!info->has_adapter)
        return;
    fsdpck_escape(name, sizeof name, info->adapter, strlen(info->adapter));
    if (name[0] == '\0')
        fputs("adapter: without a name, ", stdout);
    else
        printf("adapter: '%s', ", name);
    if (info->adapter_config[0] == '\0')
        puts("config made from its tensors and the options");
    else
        printf("config from %s\n", fsdpck_escape(path, sizeof path, info->adapter_config,
                                                 strlen(info->adapter_config)));
}

static void print_like(const command_request *r, const fsdpck_info *info)
{
    char path[4200];
    if (r->given->base == NULL)
        return;
    printf("like: %s%s\n", fsdpck_escape(path, sizeof path, r->given->base, strlen(r->given->base)),
           info->has_adapter      ? " (the base model: shapes were compared)"
           : info->map[0] == '\0' ? " (no map needed: the names are equal)"
                                  : "");
}

static void print_resume(const fsdpck_report *p)
{
    char ranges[40], kept[32], rewritten[32];
    if (!p->resumed)
        return;
    printf("continued: kept %s, %s; %s written again\n",
           report_count(ranges, sizeof ranges, p->kept_ranges, "range"),
           report_bytes(kept, sizeof kept, p->kept_nbytes),
           report_bytes(rewritten, sizeof rewritten, p->rewritten_nbytes));
}

/* Several may be right: a new optimizer counts from 0. */
static void print_steps(const command_request *r, fsdpck_checkpoint *src)
{
    if (r->sources != NULL || !report_steps_differ(src))
        return;
    printf("note: steps disagree: ");
    report_print_steps(src, true);
    putchar('\n');
}

/* These commands copy data without comparing it with checksums. */
static void print_unchecked(const command_request *r, const fsdpck_report *p)
{
    text_buf verify = {0};
    if (!p->has_checksums || r->job.dry_run.mode != 0)
        return;
    if (r->sources != NULL) {
        puts("note: checksums were not compared; fsdpck verify --level checksum "
             "compares them");
        return;
    }
    given_verify_add(&verify, r->given, "", r->src);
    if (!verify.failed)
        printf("note: checksums were not compared; to compare them: %s\n", verify.text);
    text_release(&verify);
}

void convert_print_result(const cli *c, const command_request *r, const fsdpck_info *info,
                          const fsdpck_report *p)
{
    const bool dry_run = r->job.dry_run.mode != 0;
    char a[32], b[32];
    printf("%s%s -> %s: %s", dry_run ? "would write " : "", info->format, p->format,
           report_count(a, sizeof a, p->tensors_out, "tensor"));
    if (p->objects_out > 0)
        printf(" and %s", report_count(a, sizeof a, p->objects_out, "object"));
    if (!dry_run) {
        const double seconds = report_seconds_since(c->started_seconds);
        const double rate = (double)p->bytes_written / (seconds > 0 ? seconds : 1);
        printf(", %s in %.2f s (%s/s)", report_bytes(a, sizeof a, p->bytes_written), seconds,
               report_bytes(b, sizeof b, (uint64_t)rate));
    }
    putchar('\n');
}

void convert_print_text(const cli *c, const command_request *r, fsdpck_checkpoint *src,
                        const fsdpck_info *info, const fsdpck_report *p)
{
    char a[32], next[1600];
    if (r->job.dry_run.mode != 0)
        print_plan(r, p);
    if (p->group != NULL)
        group_print_text(c, r, p->group);
    convert_print_result(c, r, info, p);
    print_resume(p);
    if (convert_is_reshard(p))
        print_mesh(r, info, p);
    printf("part: %s", p->part);
    if (p->model_key[0] != '\0')
        printf(" (outer key '%s' removed from the names)", p->model_key);
    putchar('\n');
    print_adapter(info);
    average_print_text(c, r, src);
    map_print_text(info);
    print_like(r, info);
    /* The note of a Hugging Face folder is about the sidecars, which are listed below. */
    if (info->note[0] != '\0' && p->sidecars_count + p->copied_count == 0)
        printf("note: %s\n", info->note);
    print_changes(r, p);
    if (c->verbose > 0 && p->ranks > 1)
        printf("ranks: %u; %s sent between them\n", p->ranks,
               report_bytes(a, sizeof a, p->bytes_travelled));
    convert_print_left_out(c, r, info, p);
    print_steps(r, src);
    print_outputs(c, r, p);
    print_unchecked(r, p);
    if (convert_next_step(r, p, next, sizeof next)[0] != '\0')
        printf("next: %s\n", next);
}
