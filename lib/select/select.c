#include "select/select.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "select/select_internal.h"

static bool part_wanted(const select_state *a, uint8_t part)
{
    if (a->to->units != NULL && part == PART_OTHER)
        return false;
    return a->request->part == PART_ALL || (checkpoint_part)part == a->request->part;
}

static fsdpck_status name_tensor(select_state *a, size_t i, text_buf *name, text_buf *marks,
                                 bool *wanted, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    select_original_name(a, t->name, (checkpoint_part)a->parts->tensor_part[i], name);
    RETURN_IF(text_check(name, err));
    RETURN_IF(select_inner_is_selected(a, i, name->text, wanted, err));
    bool changed = false;
    const name_source s = {t->path, t->name, (checkpoint_part)a->parts->tensor_part[i]};
    if (*wanted)
        RETURN_IF(select_apply_rules(a, &s, name, marks, &changed, err));
    if (!changed)
        marks->nbytes = 0;
    a->result->renamed += changed;
    return FSDPCK_OK;
}

static fsdpck_status pick_tensor(select_state *a, size_t i, const text_buf *name,
                                 const text_buf *marks, fsdpck_error *err)
{
    uint32_t id, marks_id = CAT_NONE;
    const size_t before = strtab_count(&a->names);
    RETURN_IF(strtab_intern(&a->names, name->text, name->nbytes, &id, err));
    if (id < before) {
        const select_pick *other = NULL;
        for (size_t k = 0; k < a->picks.count; k++) {
            if (VEC_AT(&a->picks, select_pick, k)->name == id)
                other = VEC_AT(&a->picks, select_pick, k);
        }
        return FAIL_WITH(err, USAGE, KEY_DUP, ("two tensors would get the name '%s'", name->text),
                         (expected, "a unique name for each tensor"),
                         (found, "'%s' and '%s'",
                          catalogue_name(a->from, catalogue_tensor(a->from, other->source)->name),
                          catalogue_name(a->from, catalogue_tensor(a->from, i)->name)),
                         (next, "use --keep-names, another --rename, or --exclude one of them"));
    }
    if (marks->nbytes > 0)
        RETURN_IF(strtab_intern(&a->marks, marks->text, marks->nbytes, &marks_id, err));
    return vec_add(&a->picks,
                   &(select_pick){.source = (uint32_t)i,
                                  .name = id,
                                  .marks = marks_id,
                                  .tied_to = CAT_NONE,
                                  .param = CAT_NONE,
                                  .held_by = CAT_NONE},
                   err);
}

/* Whether a tensor lies inside an object that is written. */
static bool goes_with_object(const select_state *a, size_t i)
{
    const uint32_t object = a->inner_owner[i];
    return (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT) && object != CAT_NONE &&
           a->object_kept[object];
}

/* Whether a tensor is inside an attribute of a dict, which no object contains. */
static bool is_of_attribute(const select_state *a, size_t i)
{
    return (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT) &&
           a->inner_owner[i] == CAT_NONE;
}

/* A target that stores objects takes their inner tensors only as parts of them, unless the writer
 * cannot hold such objects. */
static bool is_selectable(const select_state *a, size_t i)
{
    const unsigned flags = catalogue_tensor(a->from, i)->flags;
    if (!(flags & CAT_TENSOR_IN_OBJECT) || (a->request->attributes && is_of_attribute(a, i)))
        return true;
    return (flags & CAT_TENSOR_NAMED) &&
           (!select_keeps_objects(a) || a->request->holds_object != NULL);
}

/* Whether a tensor is an attribute of a container of the state, such as an OrderedDict. */
static bool hangs_on_container(const select_state *a, size_t i)
{
    return a->request->nested && !value_is_none(a->from->root) && is_of_attribute(a, i);
}

/* Attributes of containers are kept only with the whole state. */
static fsdpck_status leave_out_hanging(select_state *a, fsdpck_error *err)
{
    if (select_is_everything(a))
        return FSDPCK_OK;
    for (size_t i = 0; i < a->parts->tensor_count; i++)
        if (hangs_on_container(a, i))
            RETURN_IF(select_omit_tensor(a, i, err));
    return FSDPCK_OK;
}

static bool may_be_picked(const select_state *a, size_t i)
{
    return !goes_with_object(a, i) && !hangs_on_container(a, i) && is_selectable(a, i) &&
           part_wanted(a, a->parts->tensor_part[i]);
}

static bool is_made_by_model(const select_state *a, const text_buf *name)
{
    const select_request *r = a->request;
    return text_is_one_of(name->text, name->nbytes, r->like_made, r->like_made_count) &&
           catalogue_find(r->like_model, name->text, name->nbytes) == CAT_NONE;
}

static fsdpck_status pick_tensors(select_state *a, fsdpck_error *err)
{
    text_buf name = {0}, marks = {0};
    fsdpck_status st = select_find_param_names(a, may_be_picked, err);
    GOTO_IF(st, out);
    for (size_t i = 0; i < a->parts->tensor_count; i++) {
        a->result->tensors_in++;
        a->result->nbytes_in += catalogue_tensor_nbytes(a->from, i);
        if (goes_with_object(a, i) || hangs_on_container(a, i))
            continue;
        bool wanted = may_be_picked(a, i);
        if (wanted)
            GOTO_IF(name_tensor(a, i, &name, &marks, &wanted, err), out);
        if (wanted && !is_made_by_model(a, &name))
            GOTO_IF(pick_tensor(a, i, &name, &marks, err), out);
        else
            GOTO_IF(select_omit_tensor(a, i, err), out);
    }
out:
    text_release(&name);
    text_release(&marks);
    return st;
}

/* Rank-local objects can be stored only in formats with a file per rank. RNG or dataloader state is
 * meaningless for a different number of ranks. */
static bool object_has_place(const select_state *a, const cat_object *o)
{
    if (a->to->units != NULL)
        return o->rank == UINT16_MAX || o->rank == 0;
    return o->rank == UINT16_MAX || (a->request->nested && a->request->sharding != NULL &&
                                     a->request->sharding->every_rank &&
                                     (int64_t)a->to->world_size == a->from->origin.world_size);
}

/* Objects that are not loaded yet are checked later (leave_out_unheld). */
static bool object_is_held(const select_state *a, const cat_object *o)
{
    return a->request->holds_object == NULL || !o->loaded ||
           (!o->opaque && a->request->holds_object(&a->from->pool, o->content));
}

/* Rules that match only an object count as used if it is compared under its own name. */
static fsdpck_status use_rules(select_state *a, size_t i, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, i);
    const name_source s = {o->path, o->name, (checkpoint_part)a->parts->object_part[i]};
    text_buf name = {0}, marks = {0};
    bool changed = false;
    select_original_name(a, s.name, s.part, &name);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK && select_rules_match(&a->rules, name.text))
        st = select_apply_rules(a, &s, &name, &marks, &changed, err);
    text_release(&name);
    text_release(&marks);
    return st;
}

/* Objects are named by flat key, like tensors; only a nested target stores them. */
static fsdpck_status pick_objects(select_state *a, fsdpck_error *err)
{
    for (size_t i = 0; i < a->parts->object_count; i++) {
        const cat_object *o = catalogue_object(a->from, i);
        const bool has_objects = a->to->units != NULL ? a->parts->object_part[i] == PART_OPTIMIZER
                                                      : select_keeps_objects(a);
        bool only = false;
        const bool named = select_inner_has_named(a, i, &only);
        const bool carried = object_has_place(a, o) && has_objects && object_is_held(a, o) &&
                             !a->keyless[i] && (a->request->objects != SELECT_OBJECTS_DROP || only);
        bool wanted = carried && part_wanted(a, a->parts->object_part[i]);
        if (wanted)
            RETURN_IF(select_inner_match(a, i, &wanted, err));
        if (!wanted) {
            if (a->request->names_objects && part_wanted(a, a->parts->object_part[i]))
                RETURN_IF(use_rules(a, i, err));
            if (!named || !only || (has_objects && a->request->holds_object == NULL))
                RETURN_IF(select_omit_object(a, i, err));
            continue;
        }
        a->object_kept[i] = 1;
        RETURN_IF(vec_add(&a->objects, &(uint32_t){(uint32_t)i}, err));
        a->result->objects_out++;
    }
    return FSDPCK_OK;
}

/* Whether a pick has no tensor of its own in the target. */
static bool is_written_with_primary(select_state *a, uint32_t k)
{
    select_pick *pick = VEC_AT(&a->picks, select_pick, k);
    const bool is_tied = pick->tied_to != CAT_NONE && pick->param == CAT_NONE;
    if (pick->is_alias || pick->is_omitted_tie ||
        (is_tied && a->request->tied == SELECT_TIED_FIRST))
        return true;
    pick->is_linked = is_tied && a->request->tied == SELECT_TIED_LINK;
    return pick->is_linked;
}

static fsdpck_status add_picked(select_state *a, fsdpck_error *err)
{
    for (uint32_t k = 0; k < a->picks.count; k++) {
        select_pick *pick = VEC_AT(&a->picks, select_pick, k);
        pick->target = CAT_NONE;
        if (pick->is_merged || is_written_with_primary(a, k))
            continue;
        const char *name = strtab_text(&a->names, pick->name);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        const dtype d = select_dtype_of(a, pick);
        a->result->cast += d != (dtype)t->dtype;
        RETURN_IF(select_add_tensor(a, pick, pick->source, name,
                                    strtab_nbytes(&a->names, pick->name), d, &pick->target, err));
        a->tensor_map[pick->source] = pick->target;
    }
    return select_assign_tied(a, err);
}

/* Omits objects that the writer cannot store, once their type is known. */
static fsdpck_status leave_out_unheld(select_state *a, fsdpck_error *err)
{
    size_t kept = 0;
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t i = *VEC_AT(&a->objects, uint32_t, k);
        const cat_object *o = catalogue_object(a->from, i);
        if (o->opaque || !a->request->holds_object(&a->from->pool, o->content)) {
            a->result->objects_out--;
            a->object_kept[i] = 0;
            RETURN_IF(select_omit_object(a, i, err));
            continue;
        }
        *VEC_AT(&a->objects, uint32_t, kept) = i;
        if (a->object_names.count > 0)
            *VEC_AT(&a->object_names, uint32_t, kept) = *VEC_AT(&a->object_names, uint32_t, k);
        kept++;
    }
    a->objects.count = kept;
    if (a->object_names.count > 0)
        a->object_names.count = kept;
    return FSDPCK_OK;
}

static fsdpck_status load_objects(select_state *a, fsdpck_error *err)
{
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t i = *VEC_AT(&a->objects, uint32_t, k);
        if (!catalogue_object(a->from, i)->loaded)
            RETURN_IF(a->request->load_object(a->request->load_ctx, i, err));
    }
    if (a->request->holds_object != NULL)
        RETURN_IF(leave_out_unheld(a, err));
    const size_t nbytes = (catalogue_tensor_count(a->from) + 1) * sizeof *a->tensor_map;
    a->tensor_map = malloc(nbytes);
    a->inner_map = malloc(nbytes);
    if (a->tensor_map == NULL || a->inner_map == NULL)
        return error_set_nomem(err, nbytes);
    memset(a->tensor_map, 0xff, nbytes);
    memset(a->inner_map, 0xff, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status check_not_empty(const select_state *a, fsdpck_error *err)
{
    const bool is_layout = a->request->sharding != NULL && a->request->sharding->no_chunks;
    if (a->result->tensors_out > 0 || (a->result->objects_out > 0 && !is_layout))
        return FSDPCK_OK;
    static const char *const names[] = {"model", "optimizer", "other", "whole"};
    const select_options *options = &a->request->options;
    uint64_t in_part = 0;
    for (size_t i = 0; i < a->parts->tensor_count; i++)
        in_part += (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT) == 0 &&
                   part_wanted(a, a->parts->tensor_part[i]);
    fsdpck_status st;
    if (in_part > 0 && (options->keys_count > 0 || options->exclude_count > 0))
        return FAIL_WITH(
            err, USAGE, NONE,
            ("nothing is selected: %s leaves none of %" PRIu64 " tensor%s",
             options->exclude_count == 0 ? "--keys"
             : options->keys_count == 0  ? "--exclude"
                                         : "--keys with --exclude",
             in_part, text_plural(in_part)),
            (next, "remove or narrow the pattern; list the names with: fsdpck inspect --tree SRC"));
    if (a->request->may_be_empty)
        return FSDPCK_OK;
    if (a->parts->tensor_count == 0)
        return FAIL_WITH(err, USAGE, KEY_NONE,
                         ("nothing is selected: the checkpoint has no tensors"),
                         (next, "list the contents with: fsdpck inspect SRC"));
    st = FAIL(err, USAGE, KEY_NONE, "nothing is selected: the %s part has no tensors",
              names[a->request->part]);
    if (a->parts->bare_optimizer && a->request->part != PART_ALL)
        error_next(err, "give --part all: the checkpoint is only an optimizer's state dict");
    else if (a->request->part == PART_ALL)
        error_next(err, "write a .pt file, or save the module's state_dict(): tensors inside other "
                        "objects cannot be selected alone");
    else
        error_next(
            err, "list the contents with fsdpck inspect SRC, or select everything with --part all");
    return st;
}

/* Fills target.tied. */
static fsdpck_status record_tied(select_state *a, fsdpck_error *err)
{
    uint32_t *tied = NULL;
    const size_t count = catalogue_tensor_count(&a->to->cat);
    for (uint32_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        const uint32_t first = select_tied_primary(a, k)->target;
        if (pick->target == CAT_NONE || first == CAT_NONE || first == pick->target)
            continue;
        if (tied == NULL) {
            tied = vec_push_n(&a->to->tied, count, err);
            if (tied == NULL)
                return FSDPCK_LIMIT;
            memset(tied, 0xFF, count * sizeof *tied); /* CAT_NONE */
        }
        tied[pick->target] = first;
    }
    return FSDPCK_OK;
}

/* The steps, in order; each uses the results of those before it. */
static fsdpck_status build(select_state *a, fsdpck_error *err)
{
    RETURN_IF(glob_forms_fit(a, err));
    RETURN_IF(select_rules_compile(&a->result->forms.options, &a->rules, err));
    RETURN_IF(select_find_keyless(a, err));
    RETURN_IF(select_inner_find(a, err));
    RETURN_IF(pick_objects(a, err));
    RETURN_IF(load_objects(a, err));
    RETURN_IF(select_inner_keep(a, err));
    RETURN_IF(pick_tensors(a, err));
    RETURN_IF(glob_forms_fit_casts(a, err));
    RETURN_IF(select_omit_unread(a, err));
    RETURN_IF(select_objects_rename(a, err));
    RETURN_IF(select_find_ties(a, err));
    RETURN_IF(leave_out_hanging(a, err));
    if (a->to->units != NULL) {
        if (a->request->part != PART_OPTIMIZER)
            RETURN_IF(flatten_find_params(a, err));
        RETURN_IF(flat_state_find(a, err));
    }
    RETURN_IF(add_picked(a, err));
    RETURN_IF(select_objects_find_owners(a, err));
    RETURN_IF(select_inner_add_all(a, err));
    if (a->to->units != NULL)
        RETURN_IF(flatten_check_dtypes(a, err));
    if (a->request->sharding == NULL)
        RETURN_IF(select_keep_shared(a, err));
    RETURN_IF(record_tied(a, err));
    RETURN_IF(select_rules_check_used(&a->rules, err));
    RETURN_IF(check_not_empty(a, err));
    if (a->request->flat_keys)
        RETURN_IF(select_build_flat_keys(a, err));
    RETURN_IF(catalogue_seal(&a->to->cat, err));
    if (a->request->nested)
        RETURN_IF(select_build_root(a, err));
    if (a->to->units != NULL)
        RETURN_IF(flat_root_build(a, err));
    return select_omit_finish(a, err);
}

static void release(select_state *a)
{
    select_rules_release(&a->rules);
    strtab_release(&a->names);
    strtab_release(&a->state_keys);
    strtab_release(&a->used_groups);
    strtab_release(&a->marks);
    strtab_release(&a->params);
    strtab_release(&a->param_texts);
    strtab_release(&a->listed);
    strtab_release(&a->listed_texts);
    VEC_RELEASE_ALL(&a->picks, &a->objects, &a->object_names, &a->object_marks, &a->param_names,
                    &a->open_states, &a->listed_was);
    value_map_release(&a->inner);
    free(a->tensor_map);
    free(a->inner_map);
    free(a->inner_owner);
    free(a->object_kept);
    free(a->keyless);
    name_list_release(&a->left_out_objects);
}

fsdpck_status select_build_target(catalogue *from, const checkpoint_parts *parts,
                                  const select_request *request, target *to, select_result *result,
                                  fsdpck_error *err)
{
    memset(result, 0, sizeof *result);
    result->omitted_head = result->head_embedding = CAT_NONE;
    select_state a = {.from = from, .parts = parts, .request = request, .to = to, .result = result};
    a.source_is_sharded = request->sharding != NULL && select_source_is_sharded(from);
    a.picks = VEC_OF(select_pick, from->owner);
    a.objects = VEC_OF(uint32_t, from->owner);
    a.object_names = VEC_OF(uint32_t, from->owner);
    a.object_marks = VEC_OF(uint32_t, from->owner);
    a.param_names = VEC_OF(uint32_t, from->owner);
    a.open_states = VEC_OF(uint32_t, from->owner);
    a.listed_was = VEC_OF(uint32_t, from->owner);
    a.inner = VALUE_MAP(from->owner);
    strtab_init(&a.names, from->owner);
    strtab_init(&a.state_keys, from->owner);
    strtab_init(&a.used_groups, from->owner);
    strtab_init(&a.marks, from->owner);
    strtab_init(&a.params, from->owner);
    strtab_init(&a.param_texts, from->owner);
    strtab_init(&a.listed, from->owner);
    strtab_init(&a.listed_texts, from->owner);
    to->cat.origin = from->origin;
    to->world_size = request->sharding == NULL ? 1 : mesh_size(&request->sharding->layout->mesh);
    to->cat.origin.world_size = (int64_t)to->world_size;
    to->units = request->sharding == NULL ? NULL : request->sharding->units;
    const fsdpck_status st = build(&a, err);
    release(&a);
    return st;
}

void select_result_release(select_result *result)
{
    free(result->other_params_first);
    glob_forms_release(&result->forms);
    name_list_release(&result->left_out_names);
    name_list_release(&result->tied_names);
    name_list_release(&result->carried_names);
    name_list_release(&result->parted_names);
    name_list_release(&result->overlap_names);
    name_list_release(&result->lost_attributes);
    memset(result, 0, sizeof *result);
}
