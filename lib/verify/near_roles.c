#include "verify/near_roles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/near_fault.h"

/* A tensor is far if its score is less than this part of that of the others. */
#define FAR_PART 0.5
/* A tensor whose norm became so much larger was nothing before: zeros, or noise in their place. */
#define GROWN 10.0
/* The same of small tensors, by the root of their elements: what training adds may cancel, by chance,
 * as much of the first values as one element in so many. */
#define GROWN_BY_ROOT 0.1
#define NELEMS_MIN    256u
/* Values that a training made so much larger have another direction: from here on they are only multiplied.
 * Of small tensors too, GROWN is needed: gains that began as ones grow alike, but not so far. */
#define SCALED_COSINE 0.99
/* Fewer elements of a norm may change by 1 in a training. */
#define NORM_NELEMS_MIN 4u
/* A norm is moved by 1 if this takes the distance to so little of itself, in squares. */
#define MOVED_PART 0.01

/* ---- roles ---- */

/* The name with a '*' in place of each component that is a number. */
static void put_role(const char *name, size_t nbytes, text_buf *role)
{
    role->nbytes = 0;
    for (size_t at = 0; at <= nbytes;) {
        const char *dot = memchr(name + at, '.', nbytes - at);
        const size_t end = dot == NULL ? nbytes : (size_t)(dot - name);
        size_t digits = 0;
        while (at + digits < end && name[at + digits] >= '0' && name[at + digits] <= '9')
            digits++;
        if (at > 0)
            text_append(role, ".", 1);
        if (digits > 0 && at + digits == end)
            text_append(role, "*", 1);
        else
            text_append(role, name + at, end - at);
        at = end + 1;
    }
}

static fsdpck_status find_role(near_roles *near, const catalogue *c, uint32_t tensor,
                               uint32_t *role, fsdpck_error *err)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    text_buf text = {.limit_bytes = UINT32_MAX};
    put_role(catalogue_name(c, name), catalogue_name_nbytes(c, name), &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st =
            strtab_intern(&near->names, text.text == NULL ? "" : text.text, text.nbytes, role, err);
    text_release(&text);
    return st;
}

/* ---- rows ---- */

/* Vectors, norms and biases, begin as ones or zeros. */
static bool is_small(const catalogue *c, uint32_t tensor)
{
    unsigned large = 0;
    for (unsigned d = 0; d < catalogue_tensor(c, tensor)->ndim; d++)
        large += catalogue_shape(c, tensor)[d] > 1;
    return large < 2 || catalogue_tensor_nelems(c, tensor) < NELEMS_MIN;
}

/* Biases may become zero: a training may begin with new ones. */
static bool is_weight(const catalogue *c, uint32_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    return t->ndim >= 2 ||
           (t->ndim == 1 && text_ends_with(catalogue_name(c, t->name),
                                           catalogue_name_nbytes(c, t->name), ".weight"));
}

static fsdpck_near_state state_of(const near_tensor *t, const catalogue *c)
{
    if (t->is_unread)
        return FSDPCK_NEAR_COMPRESSED;
    if (!(t->sums.aa > 0 && t->sums.bb > 0))
        return t->sums.not_finite > 0 ? FSDPCK_NEAR_NOT_FINITE : FSDPCK_NEAR_ZERO;
    if (is_small(c, t->tensor))
        return FSDPCK_NEAR_SMALL;
    const double by_root = GROWN_BY_ROOT * sqrt((double)catalogue_tensor_nelems(c, t->tensor));
    const double ratio = sqrt(t->sums.aa) / sqrt(t->sums.bb);
    if (ratio > GROWN && fabs(cosine_sums_cosine(&t->sums)) >= SCALED_COSINE)
        return FSDPCK_NEAR_SCALED;
    return ratio > (by_root < GROWN ? by_root : GROWN) ? FSDPCK_NEAR_GROWN : FSDPCK_NEAR_JUDGED;
}

static near_change change_of(const near_tensor *t, const catalogue *c)
{
    const uint64_t n = catalogue_tensor_nelems(c, t->tensor);
    if (!t->is_unread && t->sums.spoilt > 0)
        return NEAR_CHANGE_SPOILT;
    if (t->is_unread || t->sums.not_finite > 0 || !is_weight(c, t->tensor))
        return NEAR_CHANGE_NONE;
    if (catalogue_tensor(c, t->tensor)->ndim == 1 && !t->is_streamed && n >= NORM_NELEMS_MIN) {
        const double most = MOVED_PART * cosine_sums_distance(&t->sums, 0, n);
        if (cosine_sums_distance(&t->sums, 1, n) < most)
            return NEAR_CHANGE_LESS;
        if (cosine_sums_distance(&t->sums, -1, n) < most)
            return NEAR_CHANGE_MORE;
    }
    if (state_of(t, c) == FSDPCK_NEAR_SCALED)
        return NEAR_CHANGE_SCALED;
    return t->sums.bb > 0 && !(t->sums.aa > 0) ? NEAR_CHANGE_ZEROS : NEAR_CHANGE_NONE;
}

/* To nine digits: the last ones of a sum depend on the order of the parts. */
static double round_number(double x)
{
    return isfinite(x) ? round(x * 1e9) / 1e9 : x;
}

static fsdpck_status fill_rows(near_roles *near, const nearness *n, const catalogue *c,
                               fsdpck_error *err)
{
    for (uint32_t i = 0; i < near->row_count; i++) {
        const near_tensor *t = VEC_AT(&n->found, const near_tensor, i);
        near_row *row = &near->rows[i];
        *row = (near_row){.tensor = t->tensor,
                          .pair = i,
                          .state = state_of(t, c),
                          .cosine = round_number(cosine_sums_cosine(&t->sums)),
                          .projection = round_number(cosine_sums_projection(&t->sums)),
                          .score = round_number(cosine_sums_score(&t->sums)),
                          .not_finite = t->sums.not_finite,
                          .spoilt = t->sums.spoilt,
                          .change = change_of(t, c)};
        RETURN_IF(find_role(near, c, t->tensor, &row->role, err));
        near->judged += row->state == FSDPCK_NEAR_JUDGED;
        near->compressed += row->state == FSDPCK_NEAR_COMPRESSED;
    }
    return FSDPCK_OK;
}

static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_rows(const void *left, const void *right)
{
    const near_row *a = left, *b = right;
    const int a_last = a->state != FSDPCK_NEAR_JUDGED, b_last = b->state != FSDPCK_NEAR_JUDGED;
    if (a->role != b->role)
        return a->role < b->role ? -1 : 1;
    if (a_last != b_last)
        return a_last - b_last;
    const int order = compare_numbers(a->score, b->score);
    return order != 0 ? order : (a->pair > b->pair) - (a->pair < b->pair);
}

static int compare_roles(const void *left, const void *right)
{
    const near_role *a = left, *b = right;
    const int order = compare_numbers(a->cosine_median, b->cosine_median);
    return order != 0 ? order : (a->name > b->name) - (a->name < b->name);
}

/* ---- medians ---- */

static int compare_doubles(const void *left, const void *right)
{
    return compare_numbers(*(const double *)left, *(const double *)right);
}

/* Sorts them; NaN if there are none. The upper of two middles: one far role of two is then far. */
static double median_of(double *numbers, size_t n)
{
    if (n == 0)
        return (double)NAN;
    qsort(numbers, n, sizeof *numbers, compare_doubles);
    return numbers[n / 2];
}

static double at_most_1(double x)
{
    return x > 1 ? 1 : x;
}

static void fill_role(const near_roles *near, near_role *role, double *scratch)
{
    size_t n = 0;
    for (uint32_t i = role->first; i < role->end; i++)
        role->judged += near->rows[i].state == FSDPCK_NEAR_JUDGED;
    for (uint32_t i = role->first; i < role->end && near->rows[i].state == FSDPCK_NEAR_JUDGED; i++)
        scratch[n++] = at_most_1(near->rows[i].score);
    role->score_median = median_of(scratch, n);
    n = 0;
    for (uint32_t i = role->first; i < role->end; i++)
        if ((role->judged == 0 || near->rows[i].state == FSDPCK_NEAR_JUDGED) &&
            !isnan(near->rows[i].cosine))
            scratch[n++] = near->rows[i].cosine;
    role->cosine_median = median_of(scratch, n);
    role->cosine_min = n > 0 ? scratch[0] : (double)NAN;
}

static void fill_roles(near_roles *near, double *scratch)
{
    uint32_t row = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < near->role_count; i++) {
        near_role *role = &near->roles[i];
        *role = (near_role){.name = i, .first = row};
        while (row < near->row_count && near->rows[row].role == i)
            row++;
        role->end = row;
        fill_role(near, role, scratch);
        near->judged_roles += role->judged > 0;
    }
    for (uint32_t i = 0; i < near->role_count; i++)
        if (near->roles[i].judged > 0)
            scratch[n++] = near->roles[i].score_median;
    near->score_median = median_of(scratch, n);
    n = 0;
    for (uint32_t i = 0; i < near->role_count; i++)
        if (near->roles[i].judged > 0)
            scratch[n++] = near->roles[i].cosine_median;
    near->cosine_median = median_of(scratch, n);
    qsort(near->roles, near->role_count, sizeof *near->roles, compare_roles);
}

fsdpck_status near_roles_make(near_roles *near, const nearness *n, const catalogue *c,
                              fsdpck_error *err)
{
    const size_t count = n->found.count;
    near->row_count = (uint32_t)count;
    near->other_tensors = n->other_tensors;
    near->rows = calloc(count + 1, sizeof *near->rows);
    if (near->rows == NULL)
        return error_set_nomem(err, count * sizeof *near->rows);
    RETURN_IF(fill_rows(near, n, c, err));
    qsort(near->rows, count, sizeof *near->rows, compare_rows);
    near->role_count = (uint32_t)strtab_count(&near->names);
    near->roles = calloc(near->role_count + 1, sizeof *near->roles);
    double *scratch = calloc(count + 1, sizeof *scratch);
    if (near->roles != NULL && scratch != NULL)
        fill_roles(near, scratch);
    free(scratch);
    return near->roles == NULL || scratch == NULL ? error_set_nomem(err, count * sizeof *scratch)
                                                  : FSDPCK_OK;
}

/* ---- judgement ---- */

bool near_roles_are_unrelated(const near_roles *near)
{
    return near->judged > 0 && near->score_median < NEAR_SCORE_MIN;
}

void near_roles_mark(near_roles *near)
{
    const double of_model =
        near_roles_are_unrelated(near) ? 1 : near->score_median; /* the others should be near 1 */
    for (uint32_t i = 0; i < near->role_count; i++) {
        near_role *role = &near->roles[i];
        const double others = role->score_median > of_model ? role->score_median : of_model;
        for (uint32_t k = role->first; k < role->end; k++) {
            near_row *row = &near->rows[k];
            row->is_far = row->state == FSDPCK_NEAR_JUDGED && row->score < FAR_PART * others;
            role->far += row->is_far;
        }
    }
}

/* ---- memory ---- */

near_roles *near_roles_new(void)
{
    near_roles *near = calloc(1, sizeof *near);
    if (near != NULL)
        strtab_init(&near->names, NULL);
    return near;
}

void near_roles_free(near_roles *near)
{
    if (near == NULL)
        return;
    strtab_release(&near->names);
    free(near->rows);
    free(near->roles);
    free(near);
}
