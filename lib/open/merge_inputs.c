#include "open/merge_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "open/model_config.h"

/* The tensors of the model part by their names. */
fsdpck_status merge_inputs_list(fsdpck_checkpoint *c, merge_inputs *a, fsdpck_error *err)
{
    RETURN_IF(map_inputs_list(c, &a->inputs, err));
    for (size_t i = 0; i < a->inputs.inputs.count; i++) {
        const map_input *in = VEC_AT(&a->inputs.inputs, const map_input, i);
        const lora_input made = {in->name, in->nbytes, in->tensor};
        RETURN_IF(vec_add(&a->names, &made, err));
    }
    a->tensors = (merge_checkpoint){
        .cat = &c->cat, .src = &c->src, .inputs = a->names.items, .count = a->names.count};
    return FSDPCK_OK;
}

void merge_inputs_release(merge_inputs *a)
{
    map_inputs_release(&a->inputs);
    vec_release(&a->names);
    strtab_release(&a->tied);
    lora_config_release(&a->config);
}

/* --- the config --- */

static fsdpck_status fail_no_config(const fsdpck_checkpoint *of, const adapter_source *from,
                                    bool several, fsdpck_error *err)
{
    if (from->components[0] != '\0')
        return FAIL_WITH(
            err, BADINPUT, LORA_CONFIG,
            ("the header of the adapter has configs of several components, and one is merged at a "
             "time"),
            (path, of->path), (found, "%s", from->components),
            (next, "write one of them: consolidate --keys 'COMPONENT.*' --strip-prefix COMPONENT.; "
                   "then merge that file with its values: --adapter-config FILE, or --lora-alpha"));
    if (several)
        return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                         ("the adapter has no adapter_config.json, and its tensors do not contain "
                          "lora_alpha"),
                         (path, of->path),
                         (next, "copy it out with --part adapter --lora-alpha X, and give that "
                                "folder to --merge-adapter"));
    return FAIL_WITH(
        err, BADINPUT, LORA_CONFIG,
        ("the adapter has no adapter_config.json, and its tensors do not contain "
         "lora_alpha"),
        (path, of->path),
        (next, "give the file of the training with --adapter-config FILE, or --lora-alpha"));
}

/* From the tensors of the adapter `name` (NULL: the only one), and what else is known. */
static fsdpck_status make_config(fsdpck_checkpoint *of, const char *name,
                                 const adapter_source *from, bool several, text_buf *text,
                                 fsdpck_error *err)
{
    const lora_facts *facts = &from->facts;
    lora_set set;
    fsdpck_status st = checkpoint_find_adapters(of, &set, err);
    if (st == FSDPCK_OK)
        st = lora_set_name_parameters(&set, &of->cat, NULL, err);
    const uint32_t adapter = name == NULL ? 0 : strtab_find(&set.adapters, name, strlen(name));
    /* Making the list reports adapters that are missing. */
    const bool is_there = adapter < lora_adapter_count(&set);
    if (st == FSDPCK_OK && is_there && !facts->has_alpha)
        st = fail_no_config(of, from, several, err);
    else if (st == FSDPCK_OK && is_there)
        st = lora_config_make(&set, &of->cat, adapter, facts, text, err);
    else if (st == FSDPCK_OK)
        text_puts(text, "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1}");
    lora_set_release(&set);
    return st == FSDPCK_OK ? text_check(text, err) : st;
}

static fsdpck_status has_several(fsdpck_checkpoint *of, bool *several, fsdpck_error *err)
{
    lora_set set;
    const fsdpck_status st = checkpoint_find_adapters(of, &set, err);
    *several = st == FSDPCK_OK && lora_adapter_count(&set) > 1;
    lora_set_release(&set);
    return st;
}

fsdpck_status merge_read_config(fsdpck_checkpoint *c, fsdpck_checkpoint *of, const char *name,
                                 const fsdpck_merge_options *m, lora_config *config,
                                 fsdpck_error *err)
{
    const fsdpck_adapter_options *options = m->config;
    adapter_source from = {0};
    text_buf text = {0};
    bool several = false;
    fsdpck_status st = has_several(of, &several, err);
    if (st == FSDPCK_OK)
        st = adapter_source_find(of, name, several, options, &from, err);
    if (st == FSDPCK_OK && from.text == NULL)
        st = make_config(of, name, &from, m->adapter_count > 1, &text, err);
    if (st == FSDPCK_OK)
        st = lora_config_read(from.text != NULL ? from.text : text.text,
                              from.text != NULL ? from.nbytes : text.nbytes, &c->metadata, config,
                              err);
    config->is_made = from.text == NULL;
    if (st != FSDPCK_OK)
        error_path(err, from.path != NULL ? from.path : of->path);
    text_release(&text);
    adapter_source_release(&from);
    return st;
}

/* Layers of the base model; 0: unknown. */
void merge_count_layers(const fsdpck_checkpoint *base, merge_request *requests, size_t count)
{
    model_config config = {0};
    bool is_known = false;
    if (base->probe.is_folder && model_config_read(&base->probe.dir, &config, NULL) == FSDPCK_OK)
        is_known = true;
    for (size_t i = 0; is_known && i < count; i++) {
        requests[i].layers = config.numbers[MODEL_HIDDEN_LAYERS];
        requests[i].shared = config.numbers[MODEL_KV_SHARED_LAYERS];
    }
    model_config_release(&config);
}

/* Files may lack a tied output projection. */
const char *merge_first_lost(const merge_list *list, const merge_request *r)
{
    return r->first_lost == STRTAB_NONE ? "lm_head.weight"
                                        : strtab_text(&list->names, r->first_lost);
}

const char *merge_first_lost_bias(const merge_list *list, const merge_request *r)
{
    return r->first_lost_bias == STRTAB_NONE ? "" : strtab_text(&list->names, r->first_lost_bias);
}
