#include "state/step_files.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

#define STEPS_MAX 16u
/* Parameters of a step that must show a mixture: fewer may be a coincidence. */
#define MIXED_MIN 4u

typedef struct step_count {
    double step;
    uint64_t tensors, first; /* first: the tensor */
    uint64_t mixed;          /* tensors that show a mixture of files */
} step_count;

typedef struct step_counts {
    const catalogue *cat;
    step_count list[STEPS_MAX];
    size_t n;
    uint8_t *at;          /* by tensor: its step in `list`; STEPS_MAX: none */
    uint32_t *files;      /* by file: its steps, as bits of `list` */
    uint64_t files_count; /* that have some */
    bool is_by_file;      /* each step is in one file, and no file has two different ones */
} step_counts;

static const char suffix[] = ".step";
enum { SUFFIX_BYTES = sizeof suffix - 1 };

/* ---- counting ---- */

bool step_files_is_step(const catalogue *cat, uint64_t tensor)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    return dtype_get((dtype)t->dtype)->kind == DTYPE_IS_FLOAT &&
           text_ends_with(catalogue_name(cat, t->name), catalogue_name_nbytes(cat, t->name),
                          suffix) &&
           catalogue_tensor_nelems(cat, tensor) == 1;
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
    const cat_tensor *t = catalogue_tensor(s->cat, tensor);
    size_t i = find_step(s, step);
    if (i == STEPS_MAX && s->n < STEPS_MAX) {
        i = s->n++;
        s->list[i] = (step_count){.step = step, .first = tensor};
    }
    const uint32_t file =
        t->nchunks == 1 ? catalogue_chunk(s->cat, t->first_chunk)->file : CAT_NONE;
    s->at[tensor] = (uint8_t)i;
    if (i < STEPS_MAX)
        s->list[i].tensors++;
    if (i == STEPS_MAX || file >= catalogue_file_count(s->cat)) {
        s->is_by_file = false;
        return;
    }
    s->files_count += s->files[file] == 0;
    s->files[file] |= 1u << i;
    s->is_by_file = s->is_by_file && s->files[file] == 1u << i;
}

/* ---- files of two saves ---- */

uint32_t step_files_state(const catalogue *cat, uint64_t tensor, size_t index)
{
    static const char *const keys[] = {"exp_avg", "momentum_buffer", "square_avg", "exp_inf",
                                       "sum"};
    const uint32_t id = catalogue_tensor(cat, tensor)->name;
    uint32_t state = CAT_NONE;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        text_buf name = {0};
        text_printf(&name, "%.*s.%s", (int)(catalogue_name_nbytes(cat, id) - SUFFIX_BYTES),
                    catalogue_name(cat, id), keys[i]);
        state = text_check(&name, NULL) == FSDPCK_OK ? catalogue_find(cat, name.text, name.nbytes)
                                                     : CAT_NONE;
        text_release(&name);
        if (state != CAT_NONE && index-- == 0)
            return state;
    }
    return CAT_NONE;
}

/* Whether other state of the same parameter is in a file of another step: its shards are in files of several ranks.
 * A stage of a pipeline, or an expert, is in the files of its own ranks only. */
static bool is_sharded_over_steps(const step_counts *s, uint64_t tensor, size_t step)
{
    const catalogue *cat = s->cat;
    uint32_t state;
    for (size_t i = 0; (state = step_files_state(cat, tensor, i)) != CAT_NONE; i++) {
        const cat_tensor *t = catalogue_tensor(cat, state);
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            const uint32_t file = catalogue_chunk(cat, k)->file;
            if (file < catalogue_file_count(cat) && (s->files[file] & ~(1u << step)) != 0)
                return true;
        }
    }
    return false;
}

/* Whether the parameters of two steps, of one of them several, are sharded over files of other steps; or those of one step,
 * where all steps have several: other files of replicated ranks hold no steps. Frozen ones could be in such files only by
 * chance, as the names and sizes of all decide where the steps are. */
static bool is_mixture(step_counts *s)
{
    size_t mixed = 0;
    bool has_several = false, all_have_several = true;
    if (!s->is_by_file)
        return false;
    for (uint64_t i = 0; i < catalogue_tensor_count(s->cat); i++)
        if (s->at[i] < s->n && is_sharded_over_steps(s, i, s->at[i]))
            s->list[s->at[i]].mixed++;
    for (size_t i = 0; i < s->n; i++) {
        mixed += s->list[i].mixed > 0;
        has_several = has_several || s->list[i].mixed >= MIXED_MIN;
        all_have_several = all_have_several && s->list[i].tensors >= MIXED_MIN;
    }
    return has_several && (mixed > 1 || all_have_several);
}

/* ---- the result ---- */

static void put_result(step_counts *s, step_files *out)
{
    size_t most = 0;
    for (size_t i = 1; i < s->n; i++)
        if (s->list[i].tensors > s->list[most].tensors)
            most = i;
    const size_t odd = most == 0 ? 1 : 0;
    *out = (step_files){.files = s->files_count, .steps = s->n};
    if (s->n < 2)
        return;
    out->is_mixture = is_mixture(s);
    out->most = (step_group){s->list[most].step, s->list[most].tensors, s->list[most].first};
    out->odd = (step_group){s->list[odd].step, s->list[odd].tensors, s->list[odd].first};
}

fsdpck_status step_files_judge(const catalogue *cat, step_of_fn get, void *ctx, budget *memory,
                               step_files *out, fsdpck_error *err)
{
    step_counts s = {.cat = cat, .is_by_file = true};
    const uint64_t count = catalogue_tensor_count(cat);
    const uint64_t nbytes = (catalogue_file_count(cat) + 1) * sizeof *s.files;
    double step;
    *out = (step_files){0};
    s.at = budget_alloc(memory, count + 1, err);
    s.files = s.at == NULL ? NULL : budget_alloc(memory, nbytes, err);
    const fsdpck_status st = s.files == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK) {
        memset(s.at, STEPS_MAX, count + 1);
        memset(s.files, 0, nbytes);
        for (uint64_t i = 0; i < count; i++)
            if (step_files_is_step(cat, i) && get(ctx, i, &step))
                count_step(&s, i, step);
        put_result(&s, out);
    }
    budget_free(memory, s.files, s.files == NULL ? 0 : nbytes);
    budget_free(memory, s.at, s.at == NULL ? 0 : count + 1);
    return st;
}

void step_files_describe(const catalogue *cat, const step_files *f, fsdpck_error *what)
{
    FAIL_WITH(
        what, BADINPUT, NUM_STEP,
        ("%s", f->is_mixture
                   ? "parameters are at different steps, and each file has only one of these steps"
                   : "parameters are at different steps"),
        (tensor, catalogue_name(cat, catalogue_tensor(cat, f->odd.first)->name)),
        (expected, "step %.0f, as for %" PRIu64 " parameter%s", f->most.step, f->most.tensors,
         text_plural(f->most.tensors)),
        (found, "step %.0f for %" PRIu64 " parameter%s; %zu%s different steps in total",
         f->odd.step, f->odd.tensors, text_plural(f->odd.tensors), f->steps,
         f->steps == STEPS_MAX ? " or more" : ""));
    if (f->is_mixture)
        error_next(what,
                   "take all files from one save; ignore this if these parameters were frozen "
                   "for some steps");
}
