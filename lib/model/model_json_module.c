#include "model/model_json.h"

#include <string.h>

#include "model/fqn.h"

typedef enum module_key {
    KEY_NAME,
    KEY_CLASS,
    KEY_PARAMS,
    KEY_BUFFERS,
    KEY_FSDP,
    KEY_FULLY_SHARD,
    KEY_SAME_AS,
    KEY_REPLICATE,
    KEY_DDP,
    KEY_CHECKPOINT,
    KEY_COMPILE,
    KEY_IGNORED,
    KEY_LOCAL_GROUP,
    KEY_OVERRIDE,
    MODULE_KEYS
} module_key;

static const key_rule module_rules[MODULE_KEYS] = {
    [KEY_NAME] = KEY_WORD("name", raw_module, name),
    [KEY_CLASS] = KEY_WORD("class", raw_module, class_name),
    [KEY_PARAMS] = {.name = "params", .kinds = ACCEPT(JSON_ARRAY)},
    [KEY_BUFFERS] = {.name = "buffers", .kinds = ACCEPT(JSON_ARRAY)},
    [KEY_FSDP] = {.name = "fsdp", .kinds = ACCEPT(JSON_OBJECT)},
    [KEY_FULLY_SHARD] = {.name = "fully_shard", .kinds = ACCEPT(JSON_OBJECT)},
    [KEY_SAME_AS] = KEY_WORD("same_as", raw_module, same_as),
    [KEY_REPLICATE] = {.name = "replicate", .kinds = ACCEPT_BOOL},
    [KEY_DDP] = {.name = "ddp", .kinds = ACCEPT_BOOL},
    [KEY_CHECKPOINT] = {.name = "checkpoint", .kinds = ACCEPT_BOOL},
    [KEY_COMPILE] = {.name = "compile", .kinds = ACCEPT_BOOL},
    [KEY_IGNORED] = {.name = "ignored", .kinds = ACCEPT_BOOL},
    [KEY_LOCAL_GROUP] = {.name = "local_group", .kinds = ACCEPT_BOOL},
    [KEY_OVERRIDE] = KEY_WORD("override", raw_module, override),
};

static fsdpck_status read_value(model_reader *r, raw_module *raw, int key, const json_token *value,
                                fsdpck_error *err)
{
    static const uint16_t kinds[MODULE_KEYS] = {
        [KEY_REPLICATE] = MODULE_REPLICATE,
        [KEY_DDP] = MODULE_DDP,
        [KEY_CHECKPOINT] = MODULE_CHECKPOINT,
        [KEY_COMPILE] = MODULE_COMPILE,
        [KEY_IGNORED] = MODULE_IGNORED,
        [KEY_LOCAL_GROUP] = MODULE_LOCAL,
        [KEY_FSDP] = MODULE_FSDP,
        [KEY_FULLY_SHARD] = MODULE_FULLY_SHARD,
    };
    if (value->kind != JSON_FALSE)
        raw->kinds |= kinds[key];
    switch (key) {
    case KEY_PARAMS:
        return model_read_tensors(r, false, err);
    case KEY_BUFFERS:
        return model_read_tensors(r, true, err);
    case KEY_FSDP:
        return model_read_fsdp(r, &raw->sharding, err);
    case KEY_FULLY_SHARD:
        return model_read_fully_shard(r, raw, err);
    default:
        return FSDPCK_OK;
    }
}

/* Checks the name and the combination of keys. */
static fsdpck_status check_whole(const raw_module *raw, fsdpck_error *err)
{
    const unsigned both = 1u << KEY_FSDP | 1u << KEY_FULLY_SHARD;
    const unsigned with_same_as =
        1u << KEY_NAME | 1u << KEY_CLASS | 1u << KEY_SAME_AS | 1u << KEY_OVERRIDE;
    const char *expected = NULL;
    const char *found = NULL;
    if (!(raw->seen & 1u << KEY_NAME)) {
        expected = "'name'";
        found = "no such key";
    } else if ((raw->seen & both) == both) {
        expected = "either 'fsdp' or 'fully_shard'";
        found = "both";
    } else if (raw->same_as.offset_bytes > 0 && raw->seen & ~with_same_as) {
        expected = "only 'name', 'class' and 'override' with 'same_as'";
        found = "other keys, which belong to the first registration";
    }
    if (expected == NULL)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("keys of a module contradict each other"),
                     (offset, raw->offset_bytes), (expected, "%s", expected), (found, "%s", found));
}

static fsdpck_status refuse_name(const raw_module *raw, const char *expected, const char *found,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_NAME, ("invalid module name"),
                     (offset, raw->name.offset_bytes), (expected, "%s", expected),
                     (found, "%s", found));
}

/* Checks the last part of a path: not empty, not a wrapper's part. */
static fsdpck_status check_local(const raw_module *raw, const char *local, size_t nbytes,
                                 fsdpck_error *err)
{
    if (nbytes == 0)
        return refuse_name(raw, "a word between dots", "nothing", err);
    if (local[0] != '_' || nbytes > 64)
        return FSDPCK_OK;
    text_buf whole = {0};
    text_buf clean = {0};
    text_append(&whole, local, nbytes);
    text_puts(&whole, ".x");
    fqn_clean(whole.text, whole.nbytes, false, &clean);
    const bool wrapper = clean.nbytes != whole.nbytes;
    text_release(&whole);
    text_release(&clean);
    return wrapper ? refuse_name(raw, "the name without wrappers, which have keys of their own",
                                 "the name of a wrapper", err)
                   : FSDPCK_OK;
}

/* Finds the parent, which is the previous module or one above it; modules passed on the way up end
 * here. */
static fsdpck_status find_parent(model_reader *r, const raw_module *raw, const char *path,
                                 size_t nbytes, uint32_t *parent, fsdpck_error *err)
{
    model *m = r->m;
    const uint32_t index = model_module_count(m);
    for (uint32_t at = index - 1; at != MODEL_NONE;) {
        model_module *module = VEC_AT(&m->modules, model_module, at);
        if (strtab_is(&m->names, module->name, path, nbytes)) {
            if (module->same_as != MODEL_NONE)
                break;
            *parent = at;
            return FSDPCK_OK;
        }
        if (module->next == 0)
            module->next = index;
        at = module->parent;
    }
    char shown[128];
    const uint32_t listed = model_find_module(m, path, nbytes);
    FAIL_WITH(err, BADINPUT, MODEL_ORDER,
              ("module is not listed after its parent, among the parent's submodules"),
              (offset, raw->offset_bytes),
              (expected, "'%s' before the module, and only submodules of '%s' between the two",
               escape_text(shown, sizeof shown, path, nbytes), shown));
    if (listed == MODEL_NONE)
        error_found(err, "no such module");
    else if (model_module_at(m, listed)->same_as != MODEL_NONE)
        error_found(err, "a module with 'same_as': the other module lists the submodules");
    else
        error_found(err, "that module before it, and other modules between the two");
    return FSDPCK_BADINPUT;
}

static fsdpck_status place(model_reader *r, const raw_module *raw, uint32_t *parent,
                           fsdpck_error *err)
{
    const char *path = model_word(r, &raw->name);
    size_t nbytes = raw->name.nbytes;
    *parent = MODEL_NONE;
    if ((model_module_count(r->m) == 0) != (nbytes == 0))
        return FAIL_WITH(err, BADINPUT, MODEL_ORDER, ("root is not the first module"),
                         (offset, raw->offset_bytes), (expected, "the module '' first, once"),
                         (found, nbytes == 0 ? "'' again" : "another"));
    if (nbytes == 0)
        return FSDPCK_OK;
    const char *local = path + nbytes;
    while (local > path && local[-1] != '.')
        local--;
    RETURN_IF(check_local(raw, local, (size_t)(path + nbytes - local), err));
    nbytes = local > path ? (size_t)(local - path) - 1 : 0;
    return find_parent(r, raw, path, nbytes, parent, err);
}

static fsdpck_status refuse_repeat(const raw_module *raw, const char *found, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_TIE,
                     ("module does not match the module that its 'same_as' names"),
                     (offset, raw->same_as.offset_bytes),
                     (expected, "the path of an earlier, complete module"), (found, "%s", found));
}

/* Maps the name of an item below `from` to the same item below `to`. */
static void rename_below(model_reader *r, uint32_t name, uint32_t from, uint32_t to)
{
    const model *m = r->m;
    size_t skip = strtab_nbytes(&m->names, from);
    text_buf *out = &r->fqn;
    out->nbytes = 0;
    text_append(out, strtab_text(&m->names, to), strtab_nbytes(&m->names, to));
    text_append(out, strtab_text(&m->names, name) + skip, strtab_nbytes(&m->names, name) - skip);
}

static fsdpck_status repeat_param(model_reader *r, uint32_t source, uint32_t module,
                                  fsdpck_error *err)
{
    model *m = r->m;
    model_param p = *model_param_at(m, source);
    RETURN_IF(model_name_in(r, module, true, p.name, err));
    p.same_as = model_param_first(m, source);
    p.same_slot = p.same_slot == MODEL_NONE ? source : p.same_slot;
    p.module = module;
    p.flattened = false;
    return model_add_param(r, module, &p, err);
}

static fsdpck_status repeat_buffer(model_reader *r, uint32_t source, uint32_t module,
                                   fsdpck_error *err)
{
    model *m = r->m;
    model_buffer b = *model_buffer_at(m, source);
    RETURN_IF(model_name_in(r, module, true, b.name, err));
    b.same_as = b.same_as == MODEL_NONE ? source : b.same_as;
    b.module = module;
    RETURN_IF(model_add_name(m, r->fqn.text, r->fqn.nbytes, MODEL_USE_BUFFER, m->buffers.count,
                             &b.name, err));
    RETURN_IF(model_add_walk_name(r, module, MODEL_USE_BUFFER, m->buffers.count, b.name, err));
    return vec_add(&m->buffers, &b, err);
}

/* Adds the parameters and buffers of module `source` to module `index`. */
static fsdpck_status repeat_tensors(model_reader *r, uint32_t source, uint32_t index,
                                    fsdpck_error *err)
{
    const model_module s = *model_module_at(r->m, source);
    model_module *module = VEC_AT(&r->m->modules, model_module, index);
    module->first_param = model_param_count(r->m);
    module->nparams = s.nparams;
    module->first_buffer = model_buffer_count(r->m);
    module->nbuffers = s.nbuffers;
    for (uint32_t k = 0; k < s.nparams; k++)
        RETURN_IF(repeat_param(r, s.first_param + k, index, err));
    for (uint32_t k = 0; k < s.nbuffers; k++)
        RETURN_IF(repeat_buffer(r, s.first_buffer + k, index, err));
    return FSDPCK_OK;
}

/* Fills module `index`, the last, whose name is set, with the subtree that it repeats. */
static fsdpck_status repeat(model_reader *r, const raw_module *raw, uint32_t index,
                            fsdpck_error *err)
{
    model *m = r->m;
    const uint32_t source = model_find_module(m, model_word(r, &raw->same_as), raw->same_as.nbytes);
    if (source == MODEL_NONE)
        return refuse_repeat(raw, "no such module", err);
    const model_module first = *model_module_at(m, source);
    if (first.next == 0)
        return refuse_repeat(raw, "a module above it, or itself", err);
    const uint32_t from = first.name;
    const uint32_t to = model_module_at(m, index)->name;
    for (uint32_t k = source; k < first.next; k++) {
        model_module copy = *model_module_at(m, k);
        const uint32_t at = index + (k - source);
        copy.same_as = copy.same_as == MODEL_NONE ? k : copy.same_as;
        copy.next = index + (copy.next - source);
        copy.kinds &= (uint16_t) ~(MODULE_FSDP | MODULE_FULLY_SHARD); /* visited once */
        copy.sharding = MODEL_NONE;
        if (k == source) {
            model_module *module = VEC_AT(&m->modules, model_module, index);
            copy.name = to;
            copy.parent = module->parent;
            copy.state_path = module->state_path;
            copy.class_name =
                raw->class_name.offset_bytes > 0 ? module->class_name : copy.class_name;
            *module = copy;
        } else {
            copy.parent = index + (copy.parent - source);
            rename_below(r, copy.name, from, to);
            RETURN_IF(text_check(&r->fqn, err));
            RETURN_IF(model_add_name(m, r->fqn.text, r->fqn.nbytes, MODEL_USE_MODULE, at,
                                     &copy.name, err));
            RETURN_IF(model_find_state_path(r, NULL, &copy, err));
            RETURN_IF(vec_add(&m->modules, &copy, err));
        }
        RETURN_IF(repeat_tensors(r, k, at, err));
    }
    return FSDPCK_OK;
}

/* The settings of an FSDP or fully_shard call. */
static fsdpck_status add_sharding(model_reader *r, raw_module *raw, model_module *module,
                                  fsdpck_error *err)
{
    model *m = r->m;
    module->sharding = MODEL_NONE;
    if (!(raw->kinds & (MODULE_FSDP | MODULE_FULLY_SHARD)))
        return FSDPCK_OK;
    if (raw->with.offset_bytes > 0) {
        const uint32_t with = model_find_module(m, model_word(r, &raw->with), raw->with.nbytes);
        if (with == MODEL_NONE || !(model_module_at(m, with)->kinds & MODULE_FULLY_SHARD))
            return FAIL_WITH(
                err, BADINPUT, MODEL_KEY, ("'with' does not name a fully_shard call"),
                (offset, raw->with.offset_bytes),
                (expected, "a module with 'fully_shard' further up"),
                (found, "%s", with == MODEL_NONE ? "no such module" : "a module without it"));
        const model_sharding *s = model_sharding_of(m, model_module_at(m, with));
        raw->sharding.with = s == NULL || s->with == MODEL_NONE ? with : s->with;
    }
    RETURN_IF(vec_add(&m->shardings, &raw->sharding, err));
    module->sharding = (uint32_t)(m->shardings.count - 1);
    return FSDPCK_OK;
}

static fsdpck_status add_module(model_reader *r, raw_module *raw, fsdpck_error *err)
{
    model *m = r->m;
    const uint32_t index = model_module_count(m);
    model_module module = {.class_name = MODEL_NONE, .same_as = MODEL_NONE, .kinds = raw->kinds};
    RETURN_IF(text_check(&r->words, err));
    RETURN_IF(check_whole(raw, err));
    RETURN_IF(place(r, raw, &module.parent, err));
    if (raw->class_name.offset_bytes > 0)
        RETURN_IF(strtab_intern(&m->classes, model_word(r, &raw->class_name),
                                raw->class_name.nbytes, &module.class_name, err));
    RETURN_IF(add_sharding(r, raw, &module, err));
    RETURN_IF(model_add_name(m, model_word(r, &raw->name), raw->name.nbytes, MODEL_USE_MODULE,
                             index, &module.name, err));
    RETURN_IF(model_find_state_path(r, raw, &module, err));
    module.first_param = model_param_count(m);
    module.nparams = (uint32_t)r->params.count;
    module.first_buffer = model_buffer_count(m);
    module.nbuffers = (uint32_t)r->buffers.count;
    RETURN_IF(vec_add(&m->modules, &module, err));
    return raw->same_as.offset_bytes > 0 ? repeat(r, raw, index, err)
                                         : model_add_tensors(r, index, err);
}

static fsdpck_status read_module(model_reader *r, raw_module *raw, fsdpck_error *err)
{
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, "module", module_rules, MODULE_KEYS, raw, &raw->seen, &key,
                                 &value, err));
        if (key < 0)
            return add_module(r, raw, err);
        RETURN_IF(read_value(r, raw, key, &value, err));
    }
}

fsdpck_status model_read_modules(model_reader *r, fsdpck_error *err)
{
    json_token t;
    for (;;) {
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            break;
        if (t.kind != JSON_OBJECT)
            return FAIL_WITH(err, BADINPUT, MODEL_KEY,
                             ("'modules' contains an item that is not an object"),
                             (offset, t.offset_bytes), (expected, "an object for each module"),
                             (found, "a different type"));
        r->words.nbytes = 0;
        r->params.count = 0;
        r->buffers.count = 0;
        r->inputs.count = 0;
        r->numbers.count = 0;
        raw_module raw = {.offset_bytes = t.offset_bytes};
        const fsdpck_status st = read_module(r, &raw, err);
        if (st != FSDPCK_OK) {
            if (raw.seen & 1u << KEY_NAME && !r->words.failed)
                error_tensor(err, model_word(r, &raw.name));
            if (st == FSDPCK_BADINPUT)
                error_offset(err, t.offset_bytes);
            return st;
        }
    }
    if (model_module_count(r->m) > 0)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("description has no modules"),
                     (offset, t.offset_bytes), (expected, "the root, '', and everything below it"),
                     (found, "an empty list"));
}
