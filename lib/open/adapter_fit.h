/* adapter_fit.h: whether an adapter could be merged into a base model. */
#ifndef FSDPCK_OPEN_ADAPTER_FIT_H
#define FSDPCK_OPEN_ADAPTER_FIT_H

#include "base/text.h"
#include "open/checkpoint.h"

/* By names and shapes alone. */
typedef struct adapter_fit {
    fsdpck_checkpoint *adapter; /* given; it has an adapter_config.json */
    uint64_t lost;              /* result: modules that the adapter may have lost */
    text_buf first;             /* result: the weight of the first of them */
    uint64_t lost_biases;       /* result: trained biases that it may have lost */
    text_buf first_bias;        /* result: the first of them */
    strtab tied;                /* result: names of the adapter that the base model's files lack and its model ties to others */
} adapter_fit;

void adapter_fit_init(adapter_fit *fit, fsdpck_checkpoint *adapter);
void adapter_fit_release(adapter_fit *fit);
/* The errors of checkpoint_merge. Release also after a failure. */
fsdpck_status adapter_fits(fsdpck_checkpoint *base, adapter_fit *fit,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
#endif
