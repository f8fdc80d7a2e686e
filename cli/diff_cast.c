#include "diff_cast.h"

#include <string.h>

#include "given_options.h"

#define MOST_NAMES 3u /* in one next step */

/* The one cast of all tensors of another dtype. */
typedef struct cast_step {
    const char *from, *to; /* arguments of --as; NULL: not known */
    bool narrows;          /* from A to B */
    bool is_model; /* all of them are of the model, whose floats --as casts without a name */
    uint64_t tensors;
} cast_step;

/* The dtype as an argument of --as, or NULL. *nbytes: size of an element. */
static const char *float_option_name(const char *dtype, unsigned *nbytes)
{
    static const struct {
        const char *name, *word;
        unsigned nbytes;
    } floats[] = {{"bfloat16", "bf16", 2},
                  {"float16", "fp16", 2},
                  {"float32", "fp32", 4},
                  {"float64", "fp64", 8}};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (strcmp(dtype, floats[i].name) == 0) {
            *nbytes = floats[i].nbytes;
            return floats[i].word;
        }
    return NULL;
}

/* Adds a tensor of another dtype. False if it is no float of the same shape in both, or of another cast. */
static bool add_cast(cast_step *step, const fsdpck_diff_row *r)
{
    unsigned a_nbytes = 0, b_nbytes = 0;
    if (r->file != NULL || r->ndim_a != r->ndim_b || /* a file beside is not compared with --as */
        (r->ndim_a > 0 && memcmp(r->shape_a, r->shape_b, r->ndim_a * sizeof *r->shape_a) != 0))
        return false;
    const char *const a = float_option_name(r->dtype_a, &a_nbytes);
    const char *const b = float_option_name(r->dtype_b, &b_nbytes);
    if (a == NULL || b == NULL || (step->tensors > 0 && (step->from != a || step->to != b)))
        return false;
    step->from = a;
    step->to = b;
    step->narrows = b_nbytes <= a_nbytes;
    step->is_model = (step->is_model || step->tensors == 0) && r->part == FSDPCK_PART_MODEL;
    step->tensors++;
    return true;
}

static bool find_cast(const fsdpck_diff *d, uint64_t rows, cast_step *step)
{
    *step = (cast_step){0};
    for (uint64_t i = 0; i < rows; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &row);
        if (row.kind == FSDPCK_DIFF_TYPE && !add_cast(step, &row))
            return false;
    }
    return step->tensors > 0;
}

/* Whether --as without a name casts only what differs. */
static bool is_of_all_floats(const fsdpck_diff *d, uint64_t compared, const cast_step *step)
{
    const char *const to = step->narrows ? step->to : step->from;
    bool found = step->is_model;
    for (uint64_t i = 0; found && i < compared; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        unsigned nbytes;
        (void)fsdpck_diff_get_compared(d, i, &row);
        const char *const dtype = float_option_name(row.dtype_a, &nbytes);
        found = row.file != NULL || row.part != FSDPCK_PART_MODEL || dtype == NULL || dtype == to;
    }
    return found;
}

/* Whether a glob of the name matches no other, and a shell reads it as one word. */
static bool is_plain(const fsdpck_diff_row *r)
{
    return r->name[0] != '-' && strlen(r->name) == r->name_nbytes &&
           strpbrk(r->name, "*?[]\\'") == NULL;
}

/* " --as 'NAME=bf16'" for each tensor of another dtype. False: there are too many, or a name is no glob. */
static bool add_names(const fsdpck_diff *d, uint64_t rows, const cast_step *step, text_buf *text)
{
    bool ok = step->tensors <= MOST_NAMES;
    for (uint64_t i = 0; ok && i < rows; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &row);
        if (row.kind != FSDPCK_DIFF_TYPE)
            continue;
        ok = is_plain(&row);
        text_printf(text, " --as '%s=%s'", row.name, step->narrows ? step->to : step->from);
    }
    return ok;
}

bool diff_cast_next(const command_request *r, const fsdpck_diff *d, text_buf *next)
{
    fsdpck_diff_info k = FSDPCK_INIT(fsdpck_diff_info);
    cast_step step;
    fsdpck_diff_get_info(d, &k);
    if (k.stopped || r->job.select.dtype_count > 0 || !find_cast(d, k.rows, &step))
        return false;
    const char *const side = step.narrows ? "A" : "B";
    const char *const word = step.narrows ? step.to : step.from;
    text_puts(next, step.narrows ? "give" : "swap A and B, and give");
    if (is_of_all_floats(d, k.tensors_compared, &step)) {
        text_printf(next, " --as %s to cast %s's floats before the comparison", word, side);
        return true;
    }
    const size_t at = next->nbytes;
    if (!add_names(d, k.rows, &step, next)) {
        next->nbytes = at;
        text_printf(next, " --as 'GLOB=%s' for each tensor of another dtype", word);
    }
    text_printf(next, " to cast %s in %s before the comparison", step.tensors == 1 ? "it" : "them",
                side);
    return true;
}
