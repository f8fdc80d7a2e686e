#include "open/state_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "open/open_quietly.h"
#include "open/state_list.h"
#include "open/step_rows.h"

bool state_file_is_read(const fsdpck_checkpoint *c, const probe_input *in, const char *entry)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    if (in != &c->probe) /* the folder that contains the checkpoint */
        return strcmp(text_file_name(c->path), entry) == 0;
    return catalogue_has_file(read, entry);
}

static fsdpck_status add_unread(fsdpck_checkpoint *c, const probe_input *in, const char *name,
                                fsdpck_error *err)
{
    path_kind kind;
    found_state_file f = {0};
    if (state_file_is_read(c, in, name) ||
        path_probe(&in->dir, name, &kind, &f.nbytes, NULL) != FSDPCK_OK || kind != PATH_FILE)
        return FSDPCK_OK;
    f.path = folder_path_join(in->path, name);
    if (f.path == NULL)
        return error_set_nomem(err, strlen(name));
    f.name = f.path + strlen(f.path) - strlen(name);
    const fsdpck_status st = vec_add(&c->state_files, &f, err);
    if (st != FSDPCK_OK)
        free(f.path);
    return st;
}

static fsdpck_status list_unread(fsdpck_checkpoint *c, const probe_input *in, fsdpck_error *err)
{
    strtab names;
    strtab_init(&names, NULL);
    fsdpck_status st = state_list_read(in, &names, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&names); i++)
        st = add_unread(c, in, strtab_text(&names, i), err);
    if (st == FSDPCK_OK && in->is_folder && probe_has_entry(in, TRAINER_STATE_JSON))
        st = add_unread(c, in, TRAINER_STATE_JSON, err);
    strtab_release(&names);
    return st;
}

fsdpck_status trainer_state_list(fsdpck_checkpoint *c, fsdpck_error *err)
{
    probe_input above;
    if (c->state_files_known)
        return FSDPCK_OK;
    c->state_files_known = true;
    RETURN_IF(list_unread(c, &c->probe, err));
    if (c->entered_from == NULL || probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const fsdpck_status st = list_unread(c, &above, err);
    probe_release(&above);
    return st;
}

/* Keys that all states of a kind have at the top. */
typedef struct state_keys {
    fsdpck_state_kind kind;
    const char *keys[2];
} state_keys;

static const state_keys rows[] = {
    {FSDPCK_STATE_SCHEDULER, {"last_epoch", "_step_count"}},     /* torch's LRScheduler */
    {FSDPCK_STATE_SCALER, {"growth_factor", "_growth_tracker"}}, /* torch's GradScaler */
    {FSDPCK_STATE_RNG, {"python", "cpu"}},                       /* transformers */
    {FSDPCK_STATE_RNG, {"random_state", "torch_manual_seed"}},   /* accelerate */
};

static bool begins_with(const catalogue *c, value path, uint32_t name, const char *key)
{
    if (value_is_none(path))
        return strcmp(catalogue_name(c, name), key) == 0;
    return value_count(&c->pool, path) > 0 &&
           value_is_str(&c->pool, value_item(&c->pool, path, 0), key);
}

static bool has_key(const catalogue *c, const char *key)
{
    for (size_t i = 0; i < catalogue_object_count(c); i++)
        if (begins_with(c, catalogue_object(c, i)->path, catalogue_object(c, i)->name, key))
            return true;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        if (begins_with(c, catalogue_tensor(c, i)->path, catalogue_tensor(c, i)->name, key))
            return true;
    return false;
}

/* One object of a class such as transformers.TrainingArguments. */
static bool is_arguments(const catalogue *c)
{
    static const char word[] = "Arguments";
    if (catalogue_object_count(c) != 1 || !catalogue_object(c, 0)->loaded)
        return false;
    const value_call *call = value_call_of(&c->pool, catalogue_object(c, 0)->content);
    const value first = call == NULL ? VALUE_OF_NONE : value_item(&c->pool, call->args, 0);
    const char *names[2] = {"", ""};
    if (call != NULL)
        names[0] = value_symbol_name(&c->pool, call->callee);
    names[1] = value_symbol_name(&c->pool, first);
    return text_ends_with(names[0], strlen(names[0]), word) ||
           text_ends_with(names[1], strlen(names[1]), word);
}

/* Arguments of transformers or trl: with a scaler of gradients, which transformers saves only from 4.48 on. */
static bool has_fp16(const catalogue *c)
{
    value v;
    int64_t is;
    if (catalogue_object_count(c) != 1 || !catalogue_object(c, 0)->loaded)
        return false;
    const value_call *call = value_call_of(&c->pool, catalogue_object(c, 0)->content);
    return call != NULL && call->has_state && value_kind_of(call->state) == VALUE_DICT &&
           value_dict_find(&c->pool, call->state, "fp16", &v) && value_kind_of(v) == VALUE_BOOL &&
           value_as_i64(&c->pool, v, &is) && is != 0;
}

static fsdpck_state_kind kind_of(const fsdpck_checkpoint *c)
{
    if (has_key(&c->cat, "param_groups"))
        return FSDPCK_STATE_OPTIMIZER;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (has_key(&c->cat, rows[i].keys[0]) && has_key(&c->cat, rows[i].keys[1]))
            return rows[i].kind;
    return is_arguments(&c->cat) ? FSDPCK_STATE_ARGUMENTS : FSDPCK_STATE_OTHER;
}

/* Whether most tensors have the names of weights of the checkpoint. */
static bool has_names_of(const catalogue *c, const catalogue *weights)
{
    const size_t count = catalogue_tensor_count(c);
    size_t same = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t name = catalogue_tensor(c, i)->name;
        same += catalogue_find(weights, catalogue_name(c, name), catalogue_name_nbytes(c, name)) !=
                CAT_NONE;
    }
    return same > 0 && same >= count - same;
}

/* Neither tensors nor a key that optimizers, or wrappers of several, have. */
static bool has_no_state(const catalogue *c)
{
    static const char *const keys[] = {"param_groups", "state", "optim"};
    for (size_t i = 0; i < catalogue_object_count(c); i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strstr(catalogue_name(c, catalogue_object(c, i)->name), keys[k]) != NULL)
                return false;
    return catalogue_tensor_count(c) == 0 && catalogue_object_count(c) > 0;
}

static void judge_optimizer(found_state_file *f, const catalogue *c, const catalogue *weights)
{
    const bool is_other = f->kind == FSDPCK_STATE_OTHER;
    f->is_model = is_other && has_names_of(c, weights);
    f->is_no_optimizer =
        is_other ? f->is_model || has_no_state(c) : f->kind != FSDPCK_STATE_OPTIMIZER;
}

static void inspect_weights(found_state_file *f, fsdpck_checkpoint *c, const catalogue *weights)
{
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    f->kind = kind_of(c);
    f->is_fp16 = has_fp16(&c->cat);
    judge_optimizer(f, &c->cat, weights);
    f->tensors = catalogue_tensor_count(&c->cat);
    for (size_t i = 0; i < f->tensors; i++)
        f->tensor_nbytes += catalogue_tensor_nbytes(&c->cat, i);
    if (f->kind == FSDPCK_STATE_OPTIMIZER)
        f->step = checkpoint_optimizer_step(c);
    if (f->kind == FSDPCK_STATE_SCHEDULER)
        f->step = checkpoint_scheduler_step(c);
    if (f->step < 0 && fsdpck_get_step(c, 0, &step))
        f->step = step.step;
}

/* In the folder of the checkpoint, or in the one above. */
static void inspect_json(found_state_file *f)
{
    probe_input in;
    trainer_progress p = {-1, -1, false};
    char *holder = strndup(f->path, (size_t)(f->name - f->path - 1));
    const bool is_open = holder != NULL && probe_gather(holder, &in, NULL) == FSDPCK_OK;
    const bool is_read = is_open && trainer_state_read_progress(&in, &p);
    f->kind = is_read ? FSDPCK_STATE_PROGRESS : FSDPCK_STATE_UNREAD;
    f->step = p.step;
    f->epoch = p.epoch;
    f->has_episodes = p.has_episodes;
    if (is_open)
        probe_release(&in);
    free(holder);
}

fsdpck_status state_file_open(fsdpck_checkpoint *of, const found_state_file *f,
                              fsdpck_checkpoint **out, fsdpck_error *err)
{
    return open_quietly(checkpoint_open, of->ctx, f->path, out, err);
}

/* An unreadable file is no error here. */
static void inspect_file(fsdpck_checkpoint *c, found_state_file *f)
{
    fsdpck_checkpoint *state = NULL;
    const step_record_row *row = step_record_row_of(f->name);
    f->inspected = true;
    f->step = f->recorded = f->ranks = f->scheduler = -1;
    if (strcmp(f->name, TRAINER_STATE_JSON) == 0) {
        inspect_json(f);
        return;
    }
    if (state_file_open(c, f, &state, NULL) == FSDPCK_OK) {
        inspect_weights(f, state, &c->cat);
        if (row != NULL) {
            f->recorded = checkpoint_number(state, row->step);
            f->scheduler = checkpoint_number(state, "lr_scheduler.last_epoch"); /* VeOmni */
        }
        if (row != NULL && row->ranks != NULL)
            f->ranks = checkpoint_number(state, row->ranks);
    }
    fsdpck_close(state);
}

/* Ranks of a group may have other files on their hosts. */
int fsdpck_get_state_file(fsdpck_checkpoint *c, size_t index, fsdpck_state_file *out)
{
    while (c->base != NULL)
        c = c->base;
    if (c->ctx->group != NULL || c->remote_files != NULL ||
        trainer_state_list(c, NULL) != FSDPCK_OK || index >= c->state_files.count) {
        struct_clear(out);
        return 0;
    }
    found_state_file *f = VEC_AT(&c->state_files, found_state_file, index);
    if (!f->inspected)
        inspect_file(c, f);
    const fsdpck_state_file all = {.struct_nbytes = sizeof all,
                                   .path = f->path,
                                   .name = f->name,
                                   .nbytes = f->nbytes,
                                   .kind = f->kind,
                                   .tensors = f->tensors,
                                   .tensor_nbytes = f->tensor_nbytes,
                                   .step = f->step};
    struct_copy_out(out, &all, sizeof all);
    return 1;
}
