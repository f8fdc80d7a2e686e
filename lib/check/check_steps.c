/* check_steps.c: steps of the optimizer: torch keeps one for each parameter.
 *
 * Frozen parameters, and experts without tokens, have fewer steps: a note. Files of two saves show in another way.
 * All ranks have the same step of a parameter, and torch.distributed.checkpoint writes it into the file of one rank,
 * whichever has less to write. Files of another save then have another step for these parameters, whatever their
 * modules are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "check/check_internal.h"

#define STEPS_MAX 16u
/* Parameters of one step that must show a mixture: fewer may be a coincidence. */
#define MIXED_MIN 4u

typedef struct step_count {
    double step;
    uint64_t tensors, first; /* first: the tensor */
    uint64_t mixed;          /* tensors that show a mixture of files */
} step_count;

typedef struct step_counts {
    check *c;
    step_count list[STEPS_MAX];
    size_t n;
    uint32_t *files; /* by file: its steps, as bits of `list`; NULL: no memory */
    bool is_by_file; /* each step is in one file, and no file has two different ones */
} step_counts;

static const char suffix[] = ".step";
enum { SUFFIX_BYTES = sizeof suffix - 1 };

/* ---- counting ---- */

static bool get_step(const check *c, uint64_t tensor, double *step)
{
    const cat_tensor *t = catalogue_tensor(c->r->cat, tensor);
    const scan_counts *s = &c->sums[tensor];
    if (s->nelems != 1 || s->nan + s->inf > 0 ||
        dtype_get((dtype)t->dtype)->kind != DTYPE_IS_FLOAT ||
        !text_ends_with(catalogue_name(c->r->cat, t->name),
                        catalogue_name_nbytes(c->r->cat, t->name), suffix))
        return false;
    *step = element_number((dtype)t->dtype, s->first);
    return true;
}

/* Its index, or STEPS_MAX. */
static size_t find_step(const step_counts *s, double step)
{
    size_t i = 0;
    while (i < s->n && s->list[i].step != step)
        i++;
    return i < s->n ? i : STEPS_MAX;
}

static void count_step(step_counts *s, uint64_t tensor, double step)
{
    const catalogue *cat = s->c->r->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    size_t i = find_step(s, step);
    if (i == STEPS_MAX && s->n < STEPS_MAX) {
        i = s->n++;
        s->list[i] = (step_count){.step = step, .first = tensor};
    }
    const uint32_t file = t->nchunks == 1 ? catalogue_chunk(cat, t->first_chunk)->file : CAT_NONE;
    if (i < STEPS_MAX)
        s->list[i].tensors++;
    if (i == STEPS_MAX || file >= catalogue_file_count(cat) || s->files == NULL) {
        s->is_by_file = false;
        return;
    }
    s->c->result->step_files += s->files[file] == 0;
    s->files[file] |= 1u << i;
    s->is_by_file = s->is_by_file && s->files[file] == 1u << i;
}

/* ---- files of two saves ---- */

/* Whether other state of the same parameter is in a file of another step: its shards are in files of several ranks.
 * A stage of a pipeline, or an expert, is in the files of its own ranks only. */
static bool is_sharded_over_steps(const step_counts *s, uint64_t tensor, size_t step)
{
    static const char *const keys[] = {"exp_avg", "momentum_buffer", "square_avg", "exp_inf", "sum"};
    const catalogue *cat = s->c->r->cat;
    const uint32_t id = catalogue_tensor(cat, tensor)->name;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        text_buf name = {0};
        text_printf(&name, "%.*s.%s", (int)(catalogue_name_nbytes(cat, id) - SUFFIX_BYTES),
                    catalogue_name(cat, id), keys[i]);
        const uint32_t state =
            text_check(&name, NULL) == FSDPCK_OK ? catalogue_find(cat, name.text, name.nbytes) : CAT_NONE;
        text_release(&name);
        if (state == CAT_NONE)
            continue;
        const cat_tensor *t = catalogue_tensor(cat, state);
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            const uint32_t file = catalogue_chunk(cat, k)->file;
            if (file < catalogue_file_count(cat) && (s->files[file] & ~(1u << step)) != 0)
                return true;
        }
    }
    return false;
}

/* The last part of the parameter's name, such as "weight"; "" if it is a number. */
static const char *kind_of(const check *c, uint64_t tensor, size_t *nbytes)
{
    const uint32_t id = catalogue_tensor(c->r->cat, tensor)->name;
    const char *name = catalogue_name(c->r->cat, id);
    const size_t end = catalogue_name_nbytes(c->r->cat, id) - SUFFIX_BYTES;
    size_t begin = end;
    while (begin > 0 && name[begin - 1] != '.')
        begin--;
    *nbytes = strspn(name + begin, "0123456789") >= end - begin ? 0 : end - begin;
    return name + begin;
}

/* *kinds: uint32_t, by id in `names`: the steps of parameters of this kind. */
static fsdpck_status list_kinds(const step_counts *s, strtab *names, vec *kinds)
{
    double step;
    for (uint64_t i = 0; i < catalogue_tensor_count(s->c->r->cat); i++) {
        size_t nbytes;
        uint32_t id;
        if (!get_step(s->c, i, &step))
            continue;
        const char *kind = kind_of(s->c, i, &nbytes);
        RETURN_IF(strtab_intern(names, kind, nbytes, &id, NULL));
        if (id >= kinds->count)
            RETURN_IF(vec_add(kinds, &(uint32_t){0}, NULL));
        *VEC_AT(kinds, uint32_t, id) |= 1u << find_step(s, step);
    }
    return FSDPCK_OK;
}

/* Counts the parameters that no module, no stage and no kind of names explains. */
static fsdpck_status count_mixed(step_counts *s, strtab *names, vec *kinds)
{
    double step;
    RETURN_IF(list_kinds(s, names, kinds));
    for (uint64_t i = 0; i < catalogue_tensor_count(s->c->r->cat); i++) {
        size_t nbytes;
        if (!get_step(s->c, i, &step))
            continue;
        const char *kind = kind_of(s->c, i, &nbytes);
        const size_t at = find_step(s, step);
        const uint32_t steps = *VEC_AT(kinds, uint32_t, strtab_find(names, kind, nbytes));
        if ((steps & ~(1u << at)) != 0 && is_sharded_over_steps(s, i, at))
            s->list[at].mixed++;
    }
    return FSDPCK_OK;
}

static bool is_mixture(step_counts *s)
{
    strtab names;
    vec kinds = VEC_OF(uint32_t, s->c->r->metadata);
    size_t mixed = 0;
    if (!s->is_by_file)
        return false;
    strtab_init(&names, s->c->r->metadata);
    if (count_mixed(s, &names, &kinds) == FSDPCK_OK)
        for (size_t i = 0; i < s->n; i++)
            mixed += s->list[i].mixed >= MIXED_MIN;
    vec_release(&kinds);
    strtab_release(&names);
    return mixed > 1;
}

/* ---- the finding ---- */

static void report_steps(step_counts *s)
{
    check *c = s->c;
    const step_count *list = s->list;
    size_t most = 0, odd = 0;
    fsdpck_error what;
    for (size_t i = 1; i < s->n; i++)
        if (list[i].tensors > list[most].tensors)
            most = i;
    odd = most == 0 ? 1 : 0;
    const bool mixed = is_mixture(s);
    FAIL_WITH(&what, BADINPUT, NUM_STEP,
              ("%s", mixed ? "parameters are at different steps, and each file has only one of these steps"
                           : "parameters are at different steps"),
              (tensor,
               catalogue_name(c->r->cat, catalogue_tensor(c->r->cat, list[odd].first)->name)),
              (expected, "step %.0f, as for %" PRIu64 " parameter%s", list[most].step,
               list[most].tensors, text_plural(list[most].tensors)),
              (found, "step %.0f for %" PRIu64 " parameter%s; %zu%s different steps in total",
               list[odd].step, list[odd].tensors, text_plural(list[odd].tensors), s->n,
               s->n == STEPS_MAX ? " or more" : ""));
    if (!mixed) {
        findings_report(c->found, &what);
        return;
    }
    const cat_tensor *t = catalogue_tensor(c->r->cat, list[odd].first);
    check_add_path(c, catalogue_chunk(c->r->cat, t->first_chunk)->file, &what);
    error_next(&what, "take all files from one save: frozen parameters are unlikely to fill whole files, and their shards "
                      "are in files of other steps");
    findings_report_as(c->found, FINDING_WARNING, &what);
}

void check_steps(check *c)
{
    step_counts s = {.c = c, .is_by_file = true};
    const uint64_t nbytes = (catalogue_file_count(c->r->cat) + 1) * sizeof *s.files;
    double step;
    s.files = budget_alloc(c->r->metadata, nbytes, NULL);
    if (s.files != NULL)
        memset(s.files, 0, nbytes);
    c->result->step_files = 0;
    for (uint64_t i = 0; i < catalogue_tensor_count(c->r->cat); i++)
        if (get_step(c, i, &step))
            count_step(&s, i, step);
    if (s.n > 1)
        report_steps(&s);
    budget_free(c->r->metadata, s.files, s.files == NULL ? 0 : nbytes);
}
