#include "run/trainer_keys.h"

#include <string.h>

#include "base/text.h"

typedef struct keys_found {
    bool has_release; /* which the Trainer records, and Fabric does not */
    bool has_model;
    bool is_taken; /* a new key is there, or a name has no keys */
} keys_found;

static void note(const catalogue *c, keys_found *f, uint32_t id, value path)
{
    const char *name = catalogue_name(c, id);
    const bool is_model = text_has_key(name, "model");
    f->has_release = f->has_release || strcmp(name, "pytorch-lightning_version") == 0;
    f->has_model = f->has_model || is_model;
    f->is_taken = f->is_taken || text_has_key(name, "state_dict") ||
                  text_has_key(name, "optimizer_states") || (is_model && value_is_none(path));
}

/* A .pt file of a folder of the Trainer that has its keys. */
static bool may_apply(const run *r)
{
    const catalogue *c = &r->src->cat;
    keys_found f = {0};
    if (r->sharded || r->names_objects || r->writer->takes != STATE_NESTED ||
        r->writer->is_folder || r->opt.select.clean_names == FSDPCK_OFF ||
        r->src->format->id != FSDPCK_FORMAT_DCP)
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        note(c, &f, catalogue_tensor(c, i)->name, catalogue_tensor(c, i)->path);
    for (size_t i = 0; i < catalogue_object_count(c); i++)
        note(c, &f, catalogue_object(c, i)->name, catalogue_object(c, i)->path);
    return f.has_release && f.has_model && !f.is_taken;
}

bool trainer_keys_apply(const run *r, checkpoint_part part)
{
    const fsdpck_select_options *o = &r->opt.select;
    if (!may_apply(r))
        return false;
    const char *option = o->rename_count > 0         ? "--rename"
                         : o->strip_prefix_count > 0 ? "--strip-prefix"
                         : part != PART_ALL          ? "--part"
                                                     : NULL;
    if (option == NULL)
        log_write(&r->ctx->log, LOG_NOTE,
                  "keys are those of Lightning's Trainer, state_dict and optimizer_states; "
                  "--keep-names keeps those of the folder");
    else
        log_write(&r->ctx->log, LOG_NOTE,
                  "model and optimizer_0 do not become state_dict and optimizer_states, which "
                  "Lightning's Trainer loads, as %s is given",
                  option);
    return option == NULL;
}

static bool has_whole_state(const run *r)
{
    const fsdpck_select_options *o = &r->opt.select;
    return o->part == (int)PART_ALL && o->keys_count == 0 && o->exclude_count == 0 &&
           o->rename_count == 0 && o->strip_prefix_count == 0 &&
           o->objects != FSDPCK_OBJECTS_DROP && r->only == NULL;
}

/* The whole state, but changed by options: its objects are in the metadata of the output. */
static void note_without(const run *r, const char *name)
{
    if (r->opt.select.part == (int)PART_ALL && r->only == NULL)
        log_write(&r->ctx->log, LOG_NOTE,
                  "'%s' is not copied, as options select or rename tensors or objects: Lightning "
                  "does not load the output without it",
                  name);
}

fsdpck_status trainer_file_add(run *r, fsdpck_error *err)
{
    static const char name[] = "meta.pt";
    const fsdpck_checkpoint *src = r->src;
    bool copied;
    if (src->format->id != FSDPCK_FORMAT_DCP || r->writer != src->format->writer ||
        src->adapter != NULL || src->remote_files != NULL || r->like.base != NULL ||
        r->side.files.count > 0 || !src->cat.origin.has_lightning)
        return FSDPCK_OK;
    if (!has_whole_state(r)) {
        note_without(r, name);
        return FSDPCK_OK;
    }
    RETURN_IF(sidecars_add_state(&r->side, src, name, &copied, err));
    if (!copied)
        log_warn(&r->ctx->log, FSDPCK_FINDING_SIDE_UNREAD, "copy it: Lightning requires it",
                 "'%s' is not copied: it is not a regular file, or too large", name);
    return FSDPCK_OK;
}
