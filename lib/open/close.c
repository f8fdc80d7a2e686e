/* Closes a checkpoint, with those that it is made of. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/platform.h"
#include "base/struct_copy.h"
#include "group/remote_folder.h"
#include "open/checkpoint.h"
#include "open/damaged.h"
#include "open/foreign_folders.h"
#include "open/open_fail.h"
#include "open/open_once.h"
#include "open/pointer_file.h"
#include "open/state_files.h"
#include "open/stated_files.h"
#include "open/symlink_file.h"
#include "open/weights_beside.h"
#include "statedict/shard_metadata.h"

static void close_all(fsdpck_checkpoint **list, size_t count)
{
    for (size_t i = 0; list != NULL && i < count; i++)
        fsdpck_close(list[i]);
    free(list);
}

void fsdpck_close(fsdpck_checkpoint *c)
{
    if (c == NULL)
        return;
    fsdpck_checkpoint *const base = c->borrows_base ? NULL : c->base;
    averager_free(c->average);
    for (size_t i = 0; c->owns_inputs && i < c->input_count; i++)
        fsdpck_close(c->inputs[i]);
    free(c->average_rule.coefficients);
    free(c->average_steps);
    free(c->inputs);
    VEC_RELEASE_ALL(&c->averaged, &c->average_tensors);
    cat_metadata_release(&c->average_texts);
    free((void *)c->average_only.tensors);
    free((void *)c->average_only.objects);
    lora_extract_free(c->extract);
    free(c->lora_name);
    free(c->lora_origin);
    text_release(&c->lora_config);
    map_adapter_free(c->mapper);
    checkpoint_merge_release(c);
    close_all(c->beside, c->beside_count);
    dequantizer_free(c->dequantizer);
    checkpoint_map_release(c);
    flat_adapter_free(c->adapter);
    if (c->self != NULL && c->base == NULL)
        c->format->close(c->self);
    checkpoint_parts_release(&c->parts);
    catalogue_release(&c->cat);
    catalogue_release(&c->read);
    unit_list_release(&c->units);
    optim_groups_release(&c->optimizers);
    strtab_release(&c->param_order);
    VEC_RELEASE_ALL(&c->ties, &c->adapters);
    strtab_release(&c->adapter_names);
    trainer_state_release(c);
    if (c->base == NULL) {
        probe_release(&c->probe);
        remote_folder_free(c->remote_files);
    }
    free(c->path);
    free(c->entered_from);
    free(c->model_path);
    free(c->mesh);
    for (size_t i = 0; i < c->steps_count; i++)
        free(c->steps[i].source);
    table_file_release(&c->tables);
    free(c);
    fsdpck_close(base);
}
