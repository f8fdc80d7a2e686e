/* average_distance.c: the largest distance of an element of each input from the result, by tensor. */
#include <string.h>

#include "average/average_internal.h"
#include "base/text.h"

bool averager_takes(const averager *v, uint32_t tensor)
{
    return v->tensors[(uint64_t)tensor * v->count] != CAT_NONE;
}

bool averager_computes(const averager *v, uint32_t tensor)
{
    const uint32_t slot = *VEC_AT(&v->slot_of, const uint32_t, tensor);
    return slot != AVERAGE_NONE && VEC_AT(&v->slots, const average_tensor, slot)->computed;
}

bool average_is_quantized(const averager *v, uint32_t tensor)
{
    static const char *const names[] = {"qweight", "qzeros", "weight_packed"};
    const cat_tensor *t = catalogue_tensor(v->from->cat, tensor);
    const dtype_info *d = dtype_get((dtype)t->dtype);
    const char *name = catalogue_name(v->from->cat, t->name), *dot = strrchr(name, '.');
    name = dot == NULL ? name : dot + 1;
    return t->ndim >= 2 && d->kind == DTYPE_IS_INT &&
           (d->itemsize_bytes == 1 || TEXT_IS_IN(name, strlen(name), names));
}

static _Atomic uint64_t *distance_at(const averager *v, uint32_t tensor, size_t input)
{
    const uint64_t slot = *VEC_AT(&v->slot_of, const uint32_t, tensor);
    return &v->distances[slot * v->rule.count + input];
}

double averager_distance(const averager *v, uint32_t tensor, size_t input)
{
    const uint64_t bits = atomic_load(distance_at(v, tensor, input));
    double distance;
    memcpy(&distance, &bits, sizeof distance);
    return distance;
}

/* Doubles that are not negative have the order of their bits. */
void averager_add_distance(averager *v, uint32_t tensor, size_t input, double distance)
{
    _Atomic uint64_t *at = distance_at(v, tensor, input);
    uint64_t bits, most = atomic_load(at);
    memcpy(&bits, &distance, sizeof bits);
    while (bits > most && !atomic_compare_exchange_weak(at, &most, bits))
        continue;
}
