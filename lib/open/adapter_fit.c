#include "open/adapter_fit.h"

#include "base/text.h"
#include "open/merge_inputs.h"
#include "open/merged_ties.h"

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
    list.no_reading = true;
    merged_find_tied(base, &list);
    list.is_untold = true; /* whether tied weights are equal is a question of their bytes */
    fsdpck_status st = merge_list_make(&list, &own->tensors, &r, 1, false, err);
    fit->lost = r.lost;
    if (st == FSDPCK_OK && r.lost > 0) {
        text_puts(&fit->first, merge_first_lost(&list, &r));
        st = text_check(&fit->first, err);
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
