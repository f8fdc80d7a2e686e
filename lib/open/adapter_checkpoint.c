/* adapter_checkpoint.c: a checkpoint of one adapter of LoRA, as PEFT saves it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_likeness.h"
#include "lora/lora_zero.h"
#include "open/checkpoint.h"

static fsdpck_status find_in(fsdpck_checkpoint *c, const map_inputs *l, lora_set *set,
                             fsdpck_error *err)
{
    vec inputs = VEC_OF(lora_input, &c->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < l->inputs.count && st == FSDPCK_OK; i++) {
        const map_input *in = VEC_AT(&l->inputs, const map_input, i);
        st = vec_add(&inputs, &(lora_input){in->name, in->nbytes, in->tensor}, err);
    }
    if (st == FSDPCK_OK)
        st = lora_set_find(&c->cat, inputs.items, inputs.count, false, &c->metadata, set, err);
    vec_release(&inputs);
    return st;
}

fsdpck_status checkpoint_find_adapters(fsdpck_checkpoint *c, lora_set *set, fsdpck_error *err)
{
    map_inputs l;
    *set = (lora_set){0};
    fsdpck_status st = map_inputs_list(c, &l, err);
    if (st == FSDPCK_OK)
        st = find_in(c, &l, set, err);
    map_inputs_release(&l);
    return st;
}

/* ---- which adapter ---- */

static void list_adapters(const lora_set *set, text_buf *list)
{
    char shown[200];
    for (uint32_t i = 0; i < lora_adapter_count(set); i++)
        text_printf(list, "%s'%s'", i == 0 ? "" : ", ",
                    escape_text(shown, sizeof shown, strtab_text(&set->adapters, i),
                                strtab_nbytes(&set->adapters, i)));
    text_append(list, "", 0);
}

static fsdpck_status fail_none(const lora_set *set, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_tensor_count(set); i++)
        if (lora_tensor_at(set, i)->role == LORA_ROLE_FOREIGN)
            return FAIL_WITH(err, UNSUPPORTED, LORA_KIND,
                             ("the checkpoint has an adapter of another method than LoRA"),
                             (tensor, lora_text(set, lora_tensor_at(set, i)->saved)),
                             (next, "save the adapter with PEFT"));
    return FAIL_WITH(err, USAGE, LORA_KIND,
                     ("nothing is selected: the model part has no adapter of LoRA"),
                     (expected, "tensors named as PEFT names them, such as lora_A.default.weight"),
                     (next, "list the names with: fsdpck inspect --tree SRC"));
}

static fsdpck_status choose_adapter(const lora_set *set, const char *name, uint32_t *adapter,
                                    fsdpck_error *err)
{
    text_buf list = {.limit_bytes = 2000};
    const size_t count = lora_adapter_count(set);
    fsdpck_status st = FSDPCK_OK;
    if (count == 0)
        return fail_none(set, err);
    list_adapters(set, &list);
    *adapter = name == NULL ? 0 : strtab_find(&set->adapters, name, strlen(name));
    if (name == NULL && count > 1)
        st = FAIL_WITH(err, USAGE, NONE, ("the checkpoint has %zu adapters", count),
                       (found, "%s", list.text), (next, "choose one of them with --adapter NAME"));
    else if (*adapter == STRTAB_NONE)
        st = FAIL_WITH(err, USAGE, NONE, ("no adapter is named '%s'", name),
                       (found, "%s", list.text), (next, "choose one of these with --adapter NAME"));
    text_release(&list);
    return st;
}

/* ---- its config ---- */

static fsdpck_status stop_at_fault(void *ctx, const fsdpck_error *fault, fsdpck_error *err)
{
    (void)ctx;
    if (err != NULL)
        *err = *fault;
    return fault->status;
}

/* The base model that these start from is not the one that they were made of. */
static void note_initial(const fsdpck_checkpoint *c, const lora_config *config)
{
    if (lora_initial_changes_base(config->initial))
        log_write(&c->ctx->log, LOG_NOTE,
                  "init_lora_weights '%s' changed the base model too: the adapter fits only "
                  "the base model of this training",
                  config->initial);
}

/* Frozen and trained biases look alike beside the base model. */
static void note_biases(const fsdpck_checkpoint *c, const lora_set *set)
{
    for (size_t i = 0; i < lora_tensor_count(set) && set->has_base; i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const char *name = lora_text(set, t->base);
        if (t->role != LORA_ROLE_BASE || !text_ends_with(name, strlen(name), ".bias"))
            continue;
        log_write(&c->ctx->log, LOG_NOTE,
                  "biases of the base model are left out, as \"bias\": \"none\" says; if they "
                  "were trained, give the config of the training with --adapter-config");
        return;
    }
}

static fsdpck_status fail_rank_of_meta(const adapter_source *from, const lora_config *config,
                                       fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_RANK,
                     ("rank of the adapter differs from 'r' of lora_train_meta.json"),
                     (path, from->path), (expected, "%" PRIu64, from->facts.r),
                     (found, "%" PRIu64 " row%s of lora_A", config->r, text_plural(config->r)),
                     (next, "save the adapter again with a full state dict: one rank may have "
                            "saved its own slice only"));
}

/* Fills c->lora_config and *config. */
static fsdpck_status take_config(fsdpck_checkpoint *c, lora_set *set, uint32_t adapter,
                                 const adapter_source *from, lora_config *config, fsdpck_error *err)
{
    const catalogue *cat = &c->base->cat;
    if (from->text != NULL) {
        text_append(&c->lora_config, from->text, from->nbytes);
    } else {
        RETURN_IF(lora_set_name_parameters(set, cat, NULL, err));
        RETURN_IF(lora_check(set, cat, adapter, NULL, stop_at_fault, NULL, err));
        RETURN_IF(lora_config_make(set, cat, adapter, &from->facts, &c->lora_config, err));
    }
    RETURN_IF(text_check(&c->lora_config, err));
    const fsdpck_status st =
        lora_config_read(c->lora_config.text, c->lora_config.nbytes, &c->metadata, config, err);
    if (st != FSDPCK_OK) {
        error_path(err, from->path);
        return st;
    }
    if (from->text == NULL && from->facts.r > 0 && config->rank_pattern.count == 0 &&
        config->r != from->facts.r)
        return fail_rank_of_meta(from, config, err);
    if (!config->has_alpha || !config->has_r)
        return FAIL_WITH(
            err, BADINPUT, LORA_CONFIG,
            ("'%s' is missing in the adapter's config", config->has_alpha ? "r" : "lora_alpha"),
            (path, from->path),
            (next, "give the adapter_config.json of the training with "
                   "--adapter-config"));
    note_initial(c, config);
    if (from->text == NULL)
        note_biases(c, set);
    RETURN_IF(lora_set_name_parameters(set, cat, config, err));
    return lora_check(set, cat, adapter, config, stop_at_fault, NULL, err);
}

/* With the model folder of --like. Fused experts have other names there. */
static fsdpck_status check_like(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                                const lora_config *config, const fsdpck_checkpoint *like,
                                fsdpck_error *err)
{
    lora_base_counts counts;
    lora_likeness near;
    RETURN_IF(lora_check_base(set, &c->base->cat, adapter, config, &like->cat, NULL, &counts,
                              stop_at_fault, NULL, err));
    lora_likeness_of_base(&near, counts.first_missing, &like->cat);
    if (!lora_base_may_fit(&counts))
        return FAIL_WITH(err, BADINPUT, LORA_SHAPE,
                         ("the folder of --like has no weight for %" PRIu64 " of %" PRIu64
                          " modules that the adapter changes",
                          counts.missing, counts.missing + counts.compared),
                         (path, like->path), (expected, "'%s.weight'", counts.first_missing),
                         (found, "modules such as '%s'", near.best), (next, LORA_BASE_ADVICE));
    if (counts.missing > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_SHAPE,
                 "check that it is the base model that the adapter was trained on",
                 "the folder of --like has no weight for %" PRIu64 " of %" PRIu64
                 " modules that the adapter changes, the first is '%s': its experts have other "
                 "names, or its output projection is tied",
                 counts.missing, counts.missing + counts.compared, counts.first_missing);
    return FSDPCK_OK;
}

/* A lora_B that is all zero is a warning: a training may have left a module unchanged. */
static fsdpck_status warn_zero(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                               fsdpck_error *err)
{
    const char *first = NULL;
    size_t count = 0, all = 0;
    /* Files of other hosts are read only while all ranks serve them. */
    if (c->base->remote_files != NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        bool zero = false;
        if (m->adapter != adapter || m->b == LORA_NONE)
            continue;
        all++;
        RETURN_IF(
            lora_is_zero(&c->base->src, &c->base->cat, lora_cat_tensor(set, m->b), &zero, err));
        if (zero && count++ == 0)
            first = lora_text(set, m->path);
    }
    if (count > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_ZERO,
                 "compare with an earlier checkpoint, and check that the module was trained",
                 "lora_B of %zu of %zu modules is all zeros, the first is that of '%s'", count, all,
                 first);
    return FSDPCK_OK;
}

/* What PEFT refuses in the merged weight with safe_merge: a copy keeps it, and says so. */
static fsdpck_status warn_nan(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                              fsdpck_error *err)
{
    const char *first = NULL;
    size_t count = 0;
    if (c->base->remote_files != NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const uint32_t tensor = lora_tensor_at(set, i)->tensor;
        bool has_nan = false;
        if (lora_tensor_at(set, i)->adapter != adapter)
            continue;
        RETURN_IF(lora_has_nan(&c->base->src, &c->base->cat, tensor, &has_nan, err));
        if (has_nan && count++ == 0)
            first = catalogue_name(&c->base->cat, catalogue_tensor(&c->base->cat, tensor)->name);
    }
    if (count > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_NAN,
                 "use an earlier checkpoint; fsdpck verify --level numeric lists the tensors",
                 "%zu tensor%s of the adapter contain%s NaN or infinity, the first is '%s'", count,
                 text_plural(count), count == 1 ? "s" : "", first);
    return FSDPCK_OK;
}

/* save_lora_weights of diffusers wrote it: by the config in the header, or by the name of the file. */
static bool is_of_pipeline(const fsdpck_checkpoint *base, const adapter_source *from)
{
    const catalogue *c = &base->cat;
    bool is =
        from->components[0] != '\0' || (from->path != NULL && strcmp(from->path, base->path) == 0);
    for (size_t i = 0; !is && i < catalogue_file_count(c); i++)
        is = text_begins(text_file_name(catalogue_name(c, catalogue_file(c, i)->path)),
                         "pytorch_lora_weights.");
    return is;
}

/* Its names begin with the component of the pipeline, which the model of the component does not have. */
static void warn_component(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                           const adapter_source *from)
{
    static const char *const components[] = {"unet",           "transformer",    "text_encoder",
                                             "text_encoder_2", "text_encoder_3", "prior"};
    bool is_component = false;
    if (!is_of_pipeline(c->base, from))
        return;
    for (uint32_t i = 0; !is_component && i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        const char *path = lora_text(set, m->path);
        const size_t n = strcspn(path, ".");
        is_component = m->adapter == adapter && path[n] == '.' && TEXT_IS_IN(path, n, components);
        if (is_component)
            log_warn(&c->ctx->log, FSDPCK_FINDING_LORA_BASE,
                     "give --strip-prefix to a first fsdpck consolidate SRC NEW.safetensors, with "
                     "--keys for one of several components, and --part adapter to a second one of "
                     "NEW.safetensors",
                     "'%s': names of the adapter begin with '%.*s.', a component of a pipeline of "
                     "diffusers: PEFT does not find them in the model of that component",
                     c->base->path, (int)n, path);
    }
}

static fsdpck_status make(fsdpck_checkpoint *c, lora_set *set, const fsdpck_adapter_options *o,
                          const fsdpck_checkpoint *like, adapter_source *from, fsdpck_error *err)
{
    uint32_t adapter;
    lora_config config = {0};
    RETURN_IF(choose_adapter(set, o->name, &adapter, err));
    RETURN_IF(adapter_source_find(c->base, strtab_text(&set->adapters, adapter),
                                  lora_adapter_count(set) > 1, o, from, err));
    c->lora_name = strdup(strtab_text(&set->adapters, adapter));
    c->lora_origin = strdup(from->path == NULL ? "" : from->path);
    bool *chosen = calloc(lora_tensor_count(set) + 1, sizeof *chosen);
    if (c->lora_name == NULL || c->lora_origin == NULL || chosen == NULL) {
        free(chosen);
        return error_set_nomem(err, lora_tensor_count(set));
    }
    fsdpck_status st = take_config(c, set, adapter, from, &config, err);
    if (st == FSDPCK_OK)
        lora_choose(set, &c->base->cat, adapter, from->text == NULL ? NULL : &config, chosen);
    if (st == FSDPCK_OK && like != NULL)
        st = check_like(c, set, adapter, &config, like, err);
    if (st == FSDPCK_OK && like != NULL)
        st = lora_check_replaced(set, &c->base->cat, chosen, &like->cat, stop_at_fault, NULL, err);
    if (st == FSDPCK_OK)
        st = lora_extract_new(&c->base->cat, &c->base->src, set, chosen, &c->cat, &c->extract, err);
    lora_config_release(&config);
    free(chosen);
    if (st == FSDPCK_OK)
        warn_component(c, set, adapter, from);
    if (st == FSDPCK_OK)
        st = warn_zero(c, set, adapter, err);
    return st == FSDPCK_OK ? warn_nan(c, set, adapter, err) : st;
}

static fsdpck_status apply(fsdpck_checkpoint *c, const fsdpck_adapter_options *o,
                           const fsdpck_checkpoint *like, fsdpck_error *err)
{
    lora_set set;
    adapter_source from = {0};
    RETURN_IF(checkpoint_load_inner(c->base, err));
    RETURN_IF(checkpoint_check_flat(c->base, &c->base->cat, err));
    fsdpck_status st = checkpoint_find_adapters(c->base, &set, err);
    if (st == FSDPCK_OK)
        st = make(c, &set, o, like, &from, err);
    adapter_source_release(&from);
    lora_set_release(&set);
    RETURN_IF(st);
    c->src = *lora_extract_source(c->extract);
    RETURN_IF(derived_checkpoint_skip_others(c, err));
    RETURN_IF(checkpoint_parts_all_model(&c->cat, &c->parts, err));
    char name[120];
    escape_text(name, sizeof name, c->lora_name, strlen(c->lora_name));
    snprintf(c->parts.rule, sizeof c->parts.rule,
             name[0] == '\0' ? "adapter of the model part: the tensors that PEFT saves"
                             : "adapter '%s' of the model part: the tensors that PEFT saves",
             name);
    c->sharded_otherwise = c->base->sharded_otherwise;
    return FSDPCK_OK;
}

fsdpck_status checkpoint_extract_adapter(fsdpck_checkpoint *base,
                                         const fsdpck_adapter_options *options,
                                         const fsdpck_checkpoint *like, fsdpck_checkpoint **out,
                                         fsdpck_error *err)
{
    RETURN_IF(derived_checkpoint_new(base, out, err));
    const fsdpck_status st = apply(*out, options, like, err);
    if (st != FSDPCK_OK)
        error_path(err, base->path);
    return st;
}
