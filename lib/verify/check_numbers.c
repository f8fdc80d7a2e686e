/* What the elements of a tensor say about it. */
#include <inttypes.h>
#include <string.h>

#include "verify/check_parts.h"

/* Fewer zeros than this are nothing to speak of: fresh biases, masks. */
#define ZEROS_LEAST 4096u

static bool ends_with(const char *name, size_t nbytes, const char *end)
{
    const size_t n = strlen(end);
    return nbytes >= n && memcmp(name + nbytes - n, end, n) == 0;
}

/* Adam's and RMSprop's: means of squares. */
static bool is_second_moment(const char *name, size_t nbytes)
{
    static const char *const keys[] = {".exp_avg_sq", ".max_exp_avg_sq", ".square_avg",
                                       ".exp_avg_sq_row", ".exp_avg_sq_col"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ends_with(name, nbytes, keys[i]))
            return true;
    return false;
}

static void tell(check *c, uint64_t tensor, const char *id, const char *message, uint64_t count,
                 uint64_t of, const char *next)
{
    const catalogue *cat = c->r->cat;
    fsdpck_error what;
    fsdpck_error_init(&what);
    error_set(&what, FSDPCK_BADINPUT, id, "%s", message);
    error_tensor(&what, catalogue_name(cat, catalogue_tensor(cat, tensor)->name));
    if (of > 0)
        error_found(&what, "%" PRIu64 " of %" PRIu64 " numbers", count, of);
    if (next != NULL)
        error_next(&what, "%s", next);
    findings_tell(c->found, &what);
}

void check_numbers(check *c)
{
    const catalogue *cat = c->r->cat;
    for (uint64_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const scan_sums *s = &c->sums[i];
        const uint32_t id = catalogue_tensor(cat, i)->name;
        const char *name = catalogue_name(cat, id);
        const size_t nbytes = catalogue_name_nbytes(cat, id);
        if (s->nelems == 0)
            continue;
        if (s->nan > 0)
            tell(c, i, "NUM-NAN", "tensor holds NaN", s->nan, s->nelems,
                 "training from here gives NaN: go back to an earlier checkpoint");
        if (s->inf > 0)
            tell(c, i, "NUM-INF", "tensor holds infinities", s->inf, s->nelems, NULL);
        if (s->zeros == s->nelems && s->nelems >= ZEROS_LEAST)
            tell(c, i, "NUM-ZERO", "tensor is all zeros", s->zeros, s->nelems, NULL);
        if (s->negative && is_second_moment(name, nbytes))
            tell(c, i, "NUM-NEGATIVE", "means of squares are below zero", 0, 0,
                 "the optimizer state is damaged");
    }
}
