/* lora_case.h: a catalogue of tensors by name and shape, and its adapters. */
#ifndef FSDPCK_TESTS_LORA_CASE_H
#define FSDPCK_TESTS_LORA_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "lora/lora.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct named_shape {
    const char *name;
    unsigned ndim;
    uint64_t shape[4];
} named_shape;

static fsdpck_error err;
static catalogue cat;
static lora_set set;
static lora_input inputs[40];

static fsdpck_status find_adapters(const named_shape *tensors, size_t count)
{
    fsdpck_error_init(&err);
    catalogue_init(&cat, NULL);
    cr_assert_leq(count, COUNT(inputs));
    for (size_t i = 0; i < count; i++) {
        const named_shape *t = &tensors[i];
        cr_assert(catalogue_add_tensor(&cat, t->name, strlen(t->name), DTYPE_FLOAT32, t->ndim,
                                       t->shape, &inputs[i].tensor, &err) == FSDPCK_OK);
        inputs[i].name = t->name;
        inputs[i].nbytes = strlen(t->name);
    }
    return lora_set_find(&cat, inputs, count, false, NULL, &set, &err);
}

static void release(void)
{
    lora_set_release(&set);
    catalogue_release(&cat);
}

#endif
