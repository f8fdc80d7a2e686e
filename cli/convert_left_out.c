#include "convert_left_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

bool convert_is_reshard(const fsdpck_report *p)
{
    return p->mesh != NULL && p->mesh[0] != '\0';
}

/* unlisted: names that the report does not have. */
static void put_first_names(FILE *to, char *const *names, size_t count, size_t shown,
                            uint64_t unlisted)
{
    char escaped[4200];
    for (size_t i = 0; i < count && i < shown; i++)
        fprintf(to, "%s%s", i == 0 ? "" : ", ",
                fsdpck_escape(escaped, sizeof escaped, names[i], strlen(names[i])));
    if (count > shown)
        fprintf(to, ", and %" PRIu64 " more%s", count - shown + unlisted,
                unlisted > 0 ? "" : " (--json lists all)");
    fputs("\n", to);
}

void convert_put_names(FILE *to, char *const *names, size_t count, size_t shown)
{
    put_first_names(to, names, count, shown, 0);
}

static const char *count_sidecars(char *text, size_t capacity, const fsdpck_report *p)
{
    uint64_t folders = 0;
    char a[32], b[32];
    for (size_t i = 0; i < p->sidecars_count; i++)
        folders += p->sidecars[i][strlen(p->sidecars[i]) - 1] == '/';
    const uint64_t files = p->sidecars_count - folders + p->sidecars_more;
    if (folders == 0)
        return report_count(text, capacity, files, "file");
    if (files == 0)
        return report_count(text, capacity, folders, "folder");
    snprintf(text, capacity, "%s and %s", report_count(a, sizeof a, files, "file"),
             report_count(b, sizeof b, folders, "folder"));
    return text;
}

static void print_names(char *const *names, size_t count)
{
    printf("  ");
    convert_put_names(stdout, names, count, CONVERT_NAMES_SHOWN);
}

/* The same for an output of whole tensors. */
static const char *left_out_hint_of_whole(const command_request *r, const fsdpck_report *p)
{
    const bool drops = r->job.select.objects == FSDPCK_OBJECTS_DROP;
    const bool has_objects = p->format_id == FSDPCK_FORMAT_PT || p->format_id == FSDPCK_FORMAT_DCP;
    if (strcmp(p->part, "all") != 0) {
        if (has_objects)
            return "; --part all includes them";
        if (p->left_out_inside > 0)
            return "; --part all includes every tensor except those in objects, a .pt includes all";
        if (p->format_id == FSDPCK_FORMAT_HDF5)
            return "; omit --part to include all tensors";
        return drops ? "; --part all includes every tensor"
                     : "; --part all includes every tensor, a .pt includes everything";
    }
    if (p->left_out_inside > 0 && !has_objects)
        return "; a .pt includes objects and the tensors in them";
    return p->format_id == FSDPCK_FORMAT_HDF5 && p->left_out_objects > 0 && !drops
               ? "; JSON cannot represent such objects, a .pt includes everything"
               : "";
}

/* The option or format that would include the omitted tensors and objects. No hint if names were selected: no option
 * includes the others besides them. */
static const char *left_out_hint(const command_request *r, const fsdpck_info *info,
                                 const fsdpck_report *p)
{
    const fsdpck_select_options *const selected = &r->job.select;
    if (selected->keys_count > 0 || selected->exclude_count > 0)
        return "";
    if (r->sources != NULL)
        return strcmp(p->part, "model") == 0 ? "; --part all includes optimizer state" : "";
    if (info->map[0] != '\0' || info->dequantized > 0 || info->merged != NULL ||
        info->has_adapter || r->given->base != NULL) /* --like takes neither */
        return "";
    if (!convert_is_reshard(p))
        return left_out_hint_of_whole(r, p);
    if (p->format_id == FSDPCK_FORMAT_FSDP1)
        return "; --format dcp includes everything";
    if (strcmp(p->part, "all") != 0 && selected->part < 0)
        return p->left_out_inside > 0
                   ? "; --part all includes every tensor except those in objects, --format dcp "
                     "includes everything"
                   : "; --part all includes every tensor, --format dcp includes everything";
    const bool chosen =
        selected->objects == FSDPCK_OBJECTS_DROP || r->open.per_rank != FSDPCK_PER_RANK_AUTO;
    if (chosen || p->left_out_objects == 0 || info->format_id != FSDPCK_FORMAT_PT_RANKS ||
        strcmp(p->part, "all") != 0)
        return "";
    return "; objects of a single rank do not apply to other ranks (--per-rank)";
}

/* The options that make a model or an adapter of a state with both, or an adapter of its tensors alone. */
static void print_adapters(const command_request *r, const fsdpck_info *info,
                           const fsdpck_report *p)
{
    char n[40];
    if (p->adapter_tensors_in == 0 || p->format_id == FSDPCK_FORMAT_PEFT)
        return;
    printf("adapters: %s of LoRA ", report_count(n, sizeof n, p->adapter_tensors_in, "tensor"));
    if (p->adapter_tensors_out == p->adapter_tensors_in)
        fputs("left in, not merged", stdout);
    else if (p->adapter_tensors_out == 0)
        fputs("left out", stdout);
    else
        printf("in the source, %s left in, not merged",
               report_number(n, sizeof n, p->adapter_tensors_out));
    if (r->sources == NULL && info->part_tensors[FSDPCK_PART_MODEL] > p->adapter_tensors_in)
        fputs("; --merge-adapter self merges them, consolidate --part adapter writes them as PEFT "
              "does\n",
              stdout);
    else
        fputs("; consolidate --part adapter writes them as PEFT does\n", stdout);
}

/* Tensors that could belong to the model, and the rule that excluded them. */
static void print_other_params(const fsdpck_report *p)
{
    char n[40], a[32];
    if (p->other_params == 0)
        return;
    printf("not part of the model: %s (%s), the first is '%s'; --part other includes them\n",
           report_count(n, sizeof n, p->other_params, "floating-point tensor"),
           report_bytes(a, sizeof a, p->other_params_nbytes), p->other_params_first);
    printf("  %s\n", p->part_rule);
}

static void put_left_out(FILE *to, const fsdpck_report *p)
{
    char a[32], b[32], n[32];
    fputs("left out: ", to);
    if (p->left_out_tensors > 0)
        fprintf(to, "%s (%s)%s", report_count(n, sizeof n, p->left_out_tensors, "tensor"),
                report_bytes(a, sizeof a, p->left_out_nbytes),
                p->left_out_objects > 0 ? " and " : "");
    if (p->left_out_objects > 0)
        fputs(report_count(b, sizeof b, p->left_out_objects, "object"), to);
}

void convert_warn_left_out(const cli *c, const fsdpck_report *p)
{
    if (p->left_out_tensors + p->left_out_objects == 0)
        return;
    flockfile(stderr);
    fprintf(stderr, "fsdpck %s: %swarning:%s ", c->command, paint(&c->err, PAINT_WARNING),
            paint(&c->err, PAINT_END));
    put_left_out(stderr, p);
    fputs(": ", stderr);
    convert_put_names(stderr, p->left_out_names, p->left_out_names_count, CONVERT_NAMES_SHOWN);
    funlockfile(stderr);
}

void convert_print_left_out(const cli *c, const command_request *r, const fsdpck_info *info,
                            const fsdpck_report *p)
{
    char a[32], n[32];
    print_adapters(r, info, p);
    if (p->left_out_tensors > 0 || p->left_out_objects > 0) {
        put_left_out(stdout, p);
        printf("%s\n  ", left_out_hint(r, info, p));
        convert_put_names(stdout, p->left_out_names, p->left_out_names_count,
                          c->verbose > 0 ? SIZE_MAX : CONVERT_NAMES_SHOWN);
    }
    if (p->carried > 0) {
        printf("left out by name, but written inside objects: %s (%s); use --exclude on these "
               "objects too\n",
               report_count(n, sizeof n, p->carried, "tensor"),
               report_bytes(a, sizeof a, p->carried_nbytes));
        fputs("  ", stdout);
        convert_put_names(stdout, p->carried_names, p->carried_names_count,
                          c->verbose > 0 ? SIZE_MAX : CONVERT_NAMES_SHOWN);
    }
    print_other_params(p);
    if (p->copied_count > 0) {
        printf("copied: %s beside the weights\n",
               report_count(n, sizeof n, p->copied_count, "file"));
        print_names(p->copied, p->copied_count);
    }
    if (p->sidecars_count > 0) {
        printf("not copied: %s beside the weights\n", count_sidecars(n, sizeof n, p));
        printf("  ");
        put_first_names(stdout, p->sidecars, p->sidecars_count, CONVERT_NAMES_SHOWN,
                        p->sidecars_more);
    }
}
