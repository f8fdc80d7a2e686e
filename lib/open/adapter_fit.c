#include "open/adapter_fit.h"

#include "base/text.h"
#include "open/merge_inputs.h"
#include "open/merged_ties.h"

void adapter_fit_init(adapter_fit *fit, fsdpck_checkpoint *adapter)
{
    *fit = (adapter_fit){.adapter = adapter};
    strtab_init(&fit->tied, &adapter->metadata);
}

void adapter_fit_release(adapter_fit *fit)
{
    text_release(&fit->first);
    text_release(&fit->first_bias);
    strtab_release(&fit->tied);
}

static fsdpck_status check_fit(fsdpck_checkpoint *base, merge_inputs *own, merge_inputs *adapter,
                               adapter_fit *fit, fsdpck_error *err)
{
    const fsdpck_merge_options plain = {.struct_nbytes = sizeof plain};
    merge_request r = {.name = fit->adapter->path};
    merge_list list;
    RETURN_IF(checkpoint_load_inner(base, err));
    RETURN_IF(merge_inputs_list(base, own, err));
    RETURN_IF(merge_inputs_list(fit->adapter, adapter, err));
    RETURN_IF(merge_read_config(fit->adapter, fit->adapter, NULL, &plain, &adapter->config, err));
    r.beside = &adapter->tensors;
    r.config = &adapter->config;
    merge_count_layers(base, &r, 1);
    merge_list_init(&list, &fit->adapter->metadata);
    list.names_only = true;
    merged_find_tied(base, &list);
    fsdpck_status st =
        merged_add_tied(&list, &base->cat, &r, 1, &own->names, &fit->tied, &own->tensors.tied, err);
    own->tensors.inputs = own->names.items;
    own->tensors.count = own->names.count;
    if (st == FSDPCK_OK)
        st = merge_list_make(&list, &own->tensors, &r, 1, false, err);
    fit->lost = r.lost;
    if (st == FSDPCK_OK && r.lost > 0) {
        text_puts(&fit->first, merge_first_lost(&list, &r));
        st = text_check(&fit->first, err);
    }
    fit->lost_biases = r.lost_biases;
    if (st == FSDPCK_OK && r.lost_biases > 0) {
        text_puts(&fit->first_bias, merge_first_lost_bias(&list, &r));
        st = text_check(&fit->first_bias, err);
    }
    merge_list_release(&list);
    return st;
}

fsdpck_status adapter_fits(fsdpck_checkpoint *base, adapter_fit *fit, fsdpck_error *err)
{
    merge_inputs own = {.names = VEC_OF(lora_input, &fit->adapter->metadata)};
    merge_inputs adapter = {.names = VEC_OF(lora_input, &fit->adapter->metadata)};
    strtab_init(&own.tied, &fit->adapter->metadata);
    strtab_init(&adapter.tied, &fit->adapter->metadata);
    const fsdpck_status st = check_fit(base, &own, &adapter, fit, err);
    merge_inputs_release(&own);
    merge_inputs_release(&adapter);
    return st;
}
