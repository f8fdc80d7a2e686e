/* Cosines of tensors and roles for the caller. */
#include <math.h>

#include "base/struct_copy.h"
#include "verify/near_roles.h"
#include "verify/verify_internal.h"

static double number_or_0(double x)
{
    return isnan(x) ? 0 : x;
}

void fsdpck_verify_get_nearness(const fsdpck_verify *v, fsdpck_nearness *n)
{
    const near_roles *near = v->near;
    fsdpck_nearness all = {.struct_nbytes = sizeof all};
    if (near != NULL) {
        all.asked = 1;
        all.skipped = near->skipped;
        all.tensors = near->row_count;
        all.judged = near->judged;
        all.roles = near->role_count;
        all.judged_roles = near->judged_roles;
        all.other_tensors = near->other_tensors;
        all.compressed = near->compressed;
        all.cosine_median = number_or_0(near->cosine_median);
    }
    struct_copy_out(n, &all, sizeof all);
}

int fsdpck_verify_get_near_role(const fsdpck_verify *v, uint64_t index, fsdpck_near_role *role)
{
    const near_roles *near = v->near;
    fsdpck_near_role all = {.struct_nbytes = sizeof all};
    if (near == NULL || index >= near->role_count)
        return 0;
    const near_role *r = &near->roles[index];
    all.name = strtab_text(&near->names, r->name);
    all.name_nbytes = strtab_nbytes(&near->names, r->name);
    all.tensors = r->end - r->first;
    all.judged = r->judged;
    all.far = r->far;
    all.has_cosine = !isnan(r->cosine_median);
    all.cosine_minimum = number_or_0(r->cosine_min);
    all.cosine_median = number_or_0(r->cosine_median);
    struct_copy_out(role, &all, sizeof all);
    return 1;
}

int fsdpck_verify_get_near_tensor(const fsdpck_verify *v, uint64_t index,
                                  fsdpck_near_tensor *tensor)
{
    const near_roles *near = v->near;
    fsdpck_near_tensor all = {.struct_nbytes = sizeof all};
    if (near == NULL || index >= near->row_count)
        return 0;
    const near_row *row = &near->rows[index];
    const catalogue *c = &v->src->cat;
    const cat_tensor *t = catalogue_tensor(c, row->tensor);
    all.name = catalogue_name(c, t->name);
    all.name_nbytes = catalogue_name_nbytes(c, t->name);
    all.role = strtab_text(&near->names, row->role);
    all.role_nbytes = strtab_nbytes(&near->names, row->role);
    all.state = row->state;
    all.far = row->is_far;
    all.has_cosine = !isnan(row->cosine);
    all.cosine = number_or_0(row->cosine);
    all.projection = number_or_0(row->projection);
    all.not_finite = row->not_finite;
    struct_copy_out(tensor, &all, sizeof all);
    return 1;
}
