/* Text output of fsdpck inspect: summary, table, objects. inspect_tree.c prints the tree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect_print.h"
#include "report.h"
#include "table.h"
#include "text_width.h"

#define NAME_CAPACITY 1024u

static const char *escaped_name(char *out, const char *name, size_t nbytes)
{
    return fsdpck_escape(out, NAME_CAPACITY, name, nbytes);
}

/* ---- summary ---- */

/* With their sources: all of them if they differ, else the first. */
static void print_steps(fsdpck_checkpoint *ckpt)
{
    fsdpck_step first = FSDPCK_INIT(fsdpck_step);
    const bool differ = report_steps_differ(ckpt);
    if (!fsdpck_get_step(ckpt, 0, &first))
        return;
    printf("%s", differ ? ", steps disagree: " : ", step ");
    report_print_steps(ckpt, differ);
}

static void print_origin(const cli *c, fsdpck_checkpoint *ckpt, const fsdpck_info *info)
{
    char path[4200];
    printf("%s%s%s\n", paint(&c->out, PAINT_HEADING),
           fsdpck_escape(path, sizeof path, info->path, strlen(info->path)),
           paint(&c->out, PAINT_END));
    printf("  format      %s", info->format);
    if (info->torch_version[0] != '\0')
        printf(", torch %s", info->torch_version);
    if (info->trainer[0] != '\0')
        printf(", %s", info->trainer);
    print_steps(ckpt);
    putchar('\n');
    if (info->note[0] != '\0')
        printf("  note        %s\n", info->note);
    if (info->world_size > 0)
        printf("  ranks       %" PRId64 "\n", info->world_size);
    if (info->recorded_world_size > 0)
        printf("  recorded    world size %" PRId64 " (checkpoint_manifest.json)\n",
               info->recorded_world_size);
    char n[40];
    if (info->mesh != NULL && info->mesh[0] != '\0')
        printf("  mesh        %s%s", info->mesh,
               strchr(info->mesh, '=') == NULL ? " (dims without names)" : "");
    if (info->sharded_otherwise > 0)
        printf(", %s sharded differently",
               report_count(n, sizeof n, info->sharded_otherwise, "tensor"));
    if (info->mesh != NULL && info->mesh[0] != '\0')
        putchar('\n');
}

static void print_parts(const fsdpck_info *info, bool has_optimizer)
{
    char a[40], b[40], n[40], k[40];
    printf("  tensors     %s, %s, %s in %s\n", report_number(a, sizeof a, info->tensors),
           report_count(b, sizeof b, info->nelems, "element"),
           report_bytes(n, sizeof n, info->nbytes),
           report_count(k, sizeof k, info->chunks, "chunk"));
    for (int part = 0; part < 3; part++) {
        if (info->part_tensors[part] == 0 && info->part_objects[part] == 0)
            continue;
        printf("  %-11s %s, %s", fsdpck_part_name((fsdpck_part)part),
               report_count(a, sizeof a, info->part_tensors[part], "tensor"),
               report_bytes(b, sizeof b, info->part_nbytes[part]));
        if (info->part_objects[part] > 0)
            printf(", %s", report_count(n, sizeof n, info->part_objects[part], "object"));
        if (part == FSDPCK_PART_MODEL && info->model_key[0] != '\0')
            printf(" (under '%s')", info->model_key);
        putchar('\n');
    }
    printf("  parts       %s%s\n", info->part_rule,
           has_optimizer ? "; a file beside has optimizer state" : "");
}

static void print_number(const char *name, int64_t number, int64_t least)
{
    if (number >= least)
        printf(", %s %" PRId64, name, number);
}

static void print_megatron(fsdpck_checkpoint *ckpt)
{
    fsdpck_megatron m = FSDPCK_INIT(fsdpck_megatron);
    if (!fsdpck_get_megatron(ckpt, &m))
        return;
    printf("  training    Megatron-Core");
    if (m.is_unread)
        printf(", its record cannot be read");
    print_number("iteration", m.iteration, 0);
    if (m.checkpoint_version[0] != '\0')
        printf(", checkpoint version %s", m.checkpoint_version);
    print_number("world size", m.world_size, 0);
    print_number("tensor parallel", m.tensor_parallel, 0);
    print_number("pipeline parallel", m.pipeline_parallel, 0);
    print_number("expert parallel", m.expert_parallel, 2);
    print_number("context parallel", m.context_parallel, 2);
    if (m.optimizer[0] != '\0')
        printf(", optimizer %s", m.optimizer);
    putchar('\n');
}

static void print_adapters(fsdpck_checkpoint *ckpt)
{
    char n[40], b[32], name[NAME_CAPACITY];
    fsdpck_adapter a = FSDPCK_INIT(fsdpck_adapter);
    for (size_t i = 0; fsdpck_get_adapter(ckpt, i, &a); i++) {
        printf("  %-11s %s%s%s, %s", i == 0 ? "adapters" : "", a.name[0] == '\0' ? "" : "'",
               a.name[0] == '\0' ? "one without a name"
                                 : escaped_name(name, a.name, strlen(a.name)),
               a.name[0] == '\0' ? "" : "'", report_count(n, sizeof n, a.modules, "module"));
        if (a.rank_max > 0 && a.rank_min == a.rank_max)
            printf(" of rank %" PRIu64, a.rank_max);
        else if (a.rank_max > 0)
            printf(" of ranks %" PRIu64 " to %" PRIu64, a.rank_min, a.rank_max);
        if (a.use_dora)
            fputs(" with DoRA", stdout);
        if (a.saved_modules > 0)
            printf(", %s trained whole", report_count(n, sizeof n, a.saved_modules, "module"));
        if (a.token_modules > 0)
            printf(", trainable tokens of %s",
                   report_count(n, sizeof n, a.token_modules, "module"));
        printf(", %s, %s\n", report_count(n, sizeof n, a.tensors, "tensor"),
               report_bytes(b, sizeof b, a.nbytes));
    }
}

static void print_state_files(fsdpck_checkpoint *ckpt)
{
    char n[40], b[32], name[NAME_CAPACITY];
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    for (size_t i = 0; fsdpck_get_state_file(ckpt, i, &f); i++) {
        printf("  %-11s %s, %s: %s", i == 0 ? "beside" : "",
               escaped_name(name, f.name, strlen(f.name)), report_bytes(b, sizeof b, f.nbytes),
               inspect_state_words(f.kind));
        if (f.tensors > 0)
            printf(", %s", report_count(n, sizeof n, f.tensors, "tensor"));
        if (f.step >= 0)
            printf(", step %" PRId64, f.step);
        putchar('\n');
    }
}

static void print_left_out(const fsdpck_info *info)
{
    if (info->left_out > 0)
        printf("  left out    %s\n", info->left_out_kinds);
}

static void print_balance(const inspect_totals *s)
{
    if (s->rank_count < 2)
        return;
    size_t least = 0, most = 0;
    uint64_t all = 0;
    for (size_t i = 0; i < s->rank_count; i++) {
        all += s->rank_nbytes[i];
        if (s->rank_nbytes[i] < s->rank_nbytes[least])
            least = i;
        if (s->rank_nbytes[i] > s->rank_nbytes[most])
            most = i;
    }
    if (all == 0)
        return;
    char a[32], b[32];
    if (s->rank_nbytes[least] == s->rank_nbytes[most]) {
        printf("  per rank    %s\n", report_bytes(a, sizeof a, s->rank_nbytes[least]));
        return;
    }
    report_bytes(a, sizeof a, s->rank_nbytes[least]);
    report_bytes(b, sizeof b, s->rank_nbytes[most]);
    if (strcmp(a, b) == 0) { /* they differ below the digits that are shown */
        report_count(a, sizeof a, s->rank_nbytes[least], "byte");
        report_count(b, sizeof b, s->rank_nbytes[most], "byte");
    }
    printf("  per rank    %s (rank %zu) to %s (rank %zu)\n", a, least, b, most);
}

static void print_largest(const cli *c, const fsdpck_checkpoint *ckpt, const inspect_totals *s)
{
    for (size_t i = 0; i < s->largest_count; i++) {
        char a[32], name[NAME_CAPACITY], shape[512], type[600];
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(ckpt, s->largest[i], &t);
        snprintf(type, sizeof type, " %s %s, %s", t.dtype,
                 report_shape(shape, sizeof shape, t.shape, t.ndim),
                 report_bytes(a, sizeof a, t.nbytes));
        const size_t others = (size_t)printf("  %-11s ", i == 0 ? "largest" : "") + strlen(type);
        const size_t columns = c->out.columns == 0 ? SIZE_MAX : c->out.columns;
        escaped_name(name, t.name, t.name_nbytes);
        text_print(name, strlen(name),
                   columns > others + SHORTENED_WIDTH_MIN ? columns - others : SHORTENED_WIDTH_MIN);
        puts(type);
    }
}

int inspect_print_summary(const cli *c, fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                          const command_options *given)
{
    inspect_totals s;
    if (!inspect_collect(ckpt, damage, given, &s))
        return report_no_memory(c);
    char a[32], b[32];
    print_origin(c, ckpt, &s.info);
    if (damage != NULL)
        printf("  damaged     %s%s%s [%s]\n", paint(&c->out, PAINT_ERROR), damage->message,
               paint(&c->out, PAINT_END), fsdpck_finding_name(damage->finding));
    print_megatron(ckpt);
    print_parts(&s.info, s.has_state_beside);
    print_adapters(ckpt);
    print_state_files(ckpt);
    print_left_out(&s.info);
    for (size_t i = 0; i < s.dtype_count; i++)
        printf("  %-11s %s %s, %s\n", i == 0 ? "dtypes" : "", s.dtypes[i].dtype,
               report_count(a, sizeof a, s.dtypes[i].tensors, "tensor"),
               report_bytes(b, sizeof b, s.dtypes[i].nbytes));
    print_largest(c, ckpt, &s);
    print_balance(&s);
    for (size_t i = 0; i < s.next_count; i++)
        printf("  %-11s %s\n", i == 0 ? "next" : "", s.next[i].text);
    inspect_totals_release(&s);
    return 0;
}

/* ---- table ---- */

int inspect_print_table(const cli *c, const fsdpck_checkpoint *ckpt, name_order order)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},   {"DTYPE", TABLE_TEXT},
                                           {"SHAPE", TABLE_TEXT},  {"BYTES", TABLE_NUMBER},
                                           {"LAYOUT", TABLE_TEXT}, {"PART", TABLE_TEXT}};
    table *rows = table_new(&c->out, columns, 6);
    table_may_omit(rows, "PART");
    table_may_omit(rows, "LAYOUT");
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(ckpt, &info);
    uint64_t *indices = name_order_tensors(ckpt, order);
    for (uint64_t i = 0; indices != NULL && i < info.tensors; i++) {
        char name[NAME_CAPACITY], shape[512], nbytes[32], layout[128];
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(ckpt, indices[i], &t);
        fsdpck_describe_chunks(ckpt, indices[i], layout, sizeof layout);
        const char *const cells[] = {escaped_name(name, t.name, t.name_nbytes),
                                     t.dtype,
                                     report_shape(shape, sizeof shape, t.shape, t.ndim),
                                     report_bytes(nbytes, sizeof nbytes, t.nbytes),
                                     layout,
                                     fsdpck_part_name(t.part)};
        table_add(rows, cells);
    }
    const bool ok = indices != NULL;
    free(indices);
    return table_print(rows) && ok ? 0 : report_no_memory(c);
}

/* ---- objects ---- */

int inspect_print_objects(const cli *c, fsdpck_checkpoint *ckpt)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(ckpt, &info);
    (void)c;
    for (uint64_t i = 0; i < info.objects; i++) {
        fsdpck_object o = FSDPCK_INIT(fsdpck_object);
        fsdpck_error err = FSDPCK_ERROR_INIT;
        char name[NAME_CAPACITY], rank[40] = "", *text = NULL;
        fsdpck_get_object(ckpt, i, &o);
        escaped_name(name, o.name, o.name_nbytes);
        if (o.rank >= 0)
            snprintf(rank, sizeof rank, " (rank %" PRId64 ")", o.rank);
        if (fsdpck_print_object(ckpt, i, 400, &text, &err) == FSDPCK_OK)
            printf("%s%s = %s\n", name, rank, text == NULL ? "" : text);
        else
            printf("%s%s: %s%s%s%s\n", name, rank, err.message,
                   err.finding != FSDPCK_FINDING_NONE ? " [" : "", fsdpck_finding_name(err.finding),
                   err.finding != FSDPCK_FINDING_NONE ? "]" : "");
        free(text);
    }
    return 0;
}
