#include "formats/safetensors/st.h"
#include "formats/safetensors/st_layout.h"

static fsdpck_status layout_one(target *t, const char *name, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    uint32_t *tensors = budget_alloc(t->cat.owner, count * sizeof *tensors, err);
    if (tensors == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < count; i++) {
        tensors[i] = i;
        st = st_layout_check(t, i, err);
    }
    if (st == FSDPCK_OK)
        st = st_layout_file(t, name, tensors, count, err);
    budget_free(t->cat.owner, tensors, count * sizeof *tensors);
    t->is_folder = name[0] != '\0';
    return st;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    (void)opt;
    return layout_one(t, "", err);
}

static fsdpck_status layout_adapter(target *t, const writer_options *opt, fsdpck_error *err)
{
    (void)opt;
    return layout_one(t, "adapter_model.safetensors", err);
}

const format_writer safetensors_writer = {
    .name = "safetensors",
    .records_tied = true,
    .description = "one safetensors file",
    .suffixes = " .safetensors ",
    .holds = st_layout_holds,
    .layout = layout,
    .id = FSDPCK_FORMAT_SAFETENSORS,
};

/* lib/run adds adapter_config.json. */
const format_writer peft_writer = {
    .name = "peft",
    .description = "a folder with one adapter of LoRA, as PEFT saves it",
    .is_folder = true,
    .holds = st_layout_holds,
    .layout = layout_adapter,
    .id = FSDPCK_FORMAT_PEFT,
    .of_adapter = true,
};
