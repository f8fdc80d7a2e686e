/* diff_parts.c: differences of the model, of the optimizer and of the rest, each as a whole. */
#include <math.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "compare/diff.h"

static fsdpck_part part_in(const run *r, const uint8_t *parts, size_t count, size_t i)
{
    if (r->opt.select.part != FSDPCK_PART_ALL)
        return (fsdpck_part)r->opt.select.part;
    return i < count ? (fsdpck_part)parts[i] : FSDPCK_PART_OTHER;
}

fsdpck_part diff_part_of_tensor(const run *r, uint32_t i)
{
    const checkpoint_parts *p = &r->src->parts;
    return part_in(r, p->tensor_part, p->tensor_count, *VEC_AT(&r->to.from, const uint32_t, i));
}

fsdpck_part diff_part_of_object(const run *r, uint32_t i)
{
    return part_in(r, r->src->parts.object_part, r->src->parts.object_count, i);
}

bool diff_is_counter(const catalogue *c, uint32_t i)
{
    static const char *const words[] = {"step", "num_batches_tracked"};
    const cat_tensor *t = catalogue_tensor(c, i);
    const char *name = catalogue_name(c, t->name);
    const size_t nbytes = catalogue_name_nbytes(c, t->name);
    const dtype_class kind = (dtype_class)dtype_get((dtype)t->dtype)->kind;
    bool is_named = kind == DTYPE_IS_INT;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        is_named = is_named || text_is_last_word(name, nbytes, words[k]);
    return is_named && catalogue_tensor_nelems(c, i) == 1;
}

/* ---- totals ---- */

static void add_pair(const fsdpck_diff *d, size_t i, fsdpck_diff_part *all, change_sums *sums)
{
    const tensor_pair *of = VEC_AT(&d->common.list, const tensor_pair, i);
    const diff_pair *p = VEC_AT(&d->pairs, const diff_pair, i);
    const catalogue *a = &d->a.to.cat;
    const uint64_t nelems = catalogue_tensor_nelems(a, of->a);
    const bool has_norm = change_sums_has((dtype)catalogue_tensor(a, of->a)->dtype);
    all->tensors++;
    all->nelems += nelems;
    all->differing_tensors += p->stats.differing > 0;
    all->has_norms = all->has_norms && (!has_norm || p->sums.n == nelems);
    change_sums_add(sums, &p->sums);
    if (p->stats.differing == UINT64_MAX)
        return;
    all->differing += p->stats.differing;
    all->not_numbers += p->stats.not_numbers;
    all->nans += p->stats.nans;
    all->largest = p->stats.largest > all->largest ? p->stats.largest : all->largest;
}

static void add_pairs(const fsdpck_diff *d, fsdpck_part part, fsdpck_diff_part *all,
                      change_sums *sums)
{
    for (size_t i = 0; !d->values_skipped && i < d->pairs.count; i++) {
        const uint32_t a = VEC_AT(&d->common.list, const tensor_pair, i)->a;
        if (!diff_is_counter(&d->a.to.cat, a) && diff_part_of_tensor(&d->a, a) == part)
            add_pair(d, i, all, sums);
    }
}

int fsdpck_diff_get_part(const fsdpck_diff *d, fsdpck_part part, fsdpck_diff_part *totals)
{
    fsdpck_diff_part all = {.struct_nbytes = sizeof all, .has_norms = 1};
    change_sums sums = {0};
    add_pairs(d, part, &all, &sums);
    for (size_t i = 0; i < d->beside.count; i++)
        add_pairs(VEC_AT(&d->beside, const diff_file, i)->diff, part, &all, &sums);
    all.has_norms = all.has_norms && sums.n > 0;
    if (all.has_norms) {
        all.norm_a = change_sums_norm(sums.aa);
        all.distance = change_sums_norm(sums.distance);
        all.relative = change_sums_relative(&sums);
    }
    struct_copy_out(totals, &all, sizeof all);
    return all.tensors > 0;
}
