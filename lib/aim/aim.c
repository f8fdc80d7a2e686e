#include "aim/aim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aim/aim_internal.h"
#include "model/fqn.h"

static fsdpck_status note_name(char **list, size_t *count, const char *text, size_t nbytes,
                               fsdpck_error *err)
{
    if (*count >= AIM_NAMES_MAX)
        return FSDPCK_OK;
    const size_t capacity = 4 * nbytes + 8 < 512 ? 4 * nbytes + 8 : 512;
    char *escaped = malloc(capacity);
    if (escaped == NULL)
        return error_set_nomem(err, capacity);
    list[(*count)++] = escape_text(escaped, capacity, text, nbytes);
    return FSDPCK_OK;
}

/* A tensor of the other part that could be a parameter. */
static fsdpck_status note_other_param(aim_state *a, size_t i, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    size_t count = 0;
    if (a->parts->tensor_part[i] != PART_OTHER || a->request->part != PART_MODEL || t->ndim == 0 ||
        (kind != DTYPE_IS_FLOAT && kind != DTYPE_IS_COMPLEX))
        return FSDPCK_OK;
    a->result->other_params_nbytes += catalogue_tensor_nbytes(a->from, i);
    if (a->result->other_params++ > 0)
        return FSDPCK_OK;
    return note_name(&a->result->other_params_first, &count, catalogue_name(a->from, t->name),
                     catalogue_name_nbytes(a->from, t->name), err);
}

static fsdpck_status leave_out_tensor(aim_state *a, size_t i, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    RETURN_IF(note_other_param(a, i, err));
    a->result->left_out_tensors++;
    a->result->left_out_nbytes += catalogue_tensor_nbytes(a->from, i);
    return note_name(a->result->left_out_names, &a->result->left_out_names_count,
                     catalogue_name(a->from, t->name), catalogue_name_nbytes(a->from, t->name),
                     err);
}

/* "NAME (ranks 0, 1, 2)" for all objects of one name, each of one rank, at the first of them. */
static fsdpck_status note_of_ranks(aim_state *a, size_t i, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, i);
    const size_t count = catalogue_object_count(a->from);
    if (i > 0 && catalogue_object(a->from, i - 1)->name == o->name)
        return FSDPCK_OK;
    text_buf ranks = {.limit_bytes = 120};
    for (size_t k = i; k < count && catalogue_object(a->from, k)->name == o->name; k++)
        text_printf(&ranks, "%s%u", k == i ? "" : ", ",
                    (unsigned)catalogue_object(a->from, k)->rank);
    text_buf text = {0};
    text_append(&text, catalogue_name(a->from, o->name), catalogue_name_nbytes(a->from, o->name));
    text_printf(&text, " (rank%s %s%s)",
                ranks.text != NULL && strchr(ranks.text, ',') != NULL ? "s" : "",
                ranks.text != NULL ? ranks.text : "", ranks.failed ? ", ..." : "");
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = note_name(a->result->left_out_names, &a->result->left_out_names_count, text.text,
                       text.nbytes, err);
    text_release(&text);
    text_release(&ranks);
    return st;
}

static fsdpck_status leave_out_object(aim_state *a, size_t i, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, i);
    const char *name = catalogue_name(a->from, o->name);
    a->result->left_out_objects++;
    if (a->request->objects == AIM_OBJECTS_ERROR) {
        const fsdpck_status st = error_set(err, FSDPCK_UNSUPPORTED, "KEY-TYPE",
                                           "object '%s' has no place in the output", name);
        error_next(err, "write a .pt file, or allow it to be left out with --objects keep");
        return st;
    }
    if (o->rank != UINT16_MAX)
        return note_of_ranks(a, i, err);
    return note_name(a->result->left_out_names, &a->result->left_out_names_count, name,
                     catalogue_name_nbytes(a->from, o->name), err);
}

static bool aim_has_objects(const aim_state *a)
{
    return a->request->nested || a->request->keyed;
}

static bool part_wanted(const aim_state *a, uint8_t part)
{
    if (a->to->units != NULL && part == PART_OTHER)
        return false;
    return a->request->part == PART_ALL || (aim_part)part == a->request->part;
}

/* Whether a part goes without its outer key: where it stands alone in a flat file. */
static bool stands_alone(const aim_state *a, aim_part part)
{
    if (aim_has_objects(a))
        return false;
    if (part == PART_OPTIMIZER)
        return a->request->bare_optimizer && a->request->part == PART_OPTIMIZER;
    return a->request->part == PART_MODEL || a->to->units != NULL;
}

/* The name before the rules. */
static void first_name(const aim_state *a, uint32_t name, aim_part part, text_buf *out)
{
    out->nbytes = 0;
    aim_parts_name(a->parts, part, stands_alone(a, part), a->request->clean,
                   catalogue_name(a->from, name), catalogue_name_nbytes(a->from, name), out);
    text_append(out, "", 0);
}

static fsdpck_status name_tensor(aim_state *a, size_t i, text_buf *name, bool *wanted,
                                 fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    first_name(a, t->name, (aim_part)a->parts->tensor_part[i], name);
    RETURN_IF(text_check(name, err));
    *wanted = aim_rules_select(&a->rules, name->text);
    bool changed = false;
    if (*wanted)
        RETURN_IF(aim_rules_rename(&a->rules, name, &changed, err));
    a->result->renamed += changed;
    return FSDPCK_OK;
}

static fsdpck_status pick_tensor(aim_state *a, size_t i, const text_buf *name, fsdpck_error *err)
{
    uint32_t id;
    const size_t before = strtab_count(&a->names);
    RETURN_IF(strtab_intern(&a->names, name->text, name->nbytes, &id, err));
    if (id < before) {
        const aim_pick *other = NULL;
        for (size_t k = 0; k < a->picks.count; k++) {
            if (VEC_AT(&a->picks, aim_pick, k)->name == id)
                other = VEC_AT(&a->picks, aim_pick, k);
        }
        const fsdpck_status st = error_set(err, FSDPCK_USAGE, "KEY-DUP",
                                           "two tensors would get the name '%s'", name->text);
        error_expected(err, "one name for each tensor");
        error_found(err, "'%s' and '%s'",
                    catalogue_name(a->from, catalogue_tensor(a->from, other->source)->name),
                    catalogue_name(a->from, catalogue_tensor(a->from, i)->name));
        error_next(err, "use --keep-names, another --rename, or --exclude one of them");
        return st;
    }
    aim_pick *pick = vec_push(&a->picks, err);
    if (pick == NULL)
        return FSDPCK_LIMIT;
    *pick = (aim_pick){.source = (uint32_t)i,
                       .name = id,
                       .tied_to = CAT_NONE,
                       .param = CAT_NONE,
                       .held_by = CAT_NONE};
    return FSDPCK_OK;
}

static fsdpck_status pick_tensors(aim_state *a, fsdpck_error *err)
{
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < a->parts->tensor_count; i++) {
        if (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT)
            continue;
        a->result->tensors_in++;
        bool wanted = part_wanted(a, a->parts->tensor_part[i]);
        if (wanted)
            GOTO_IF(name_tensor(a, i, &name, &wanted, err), out);
        if (wanted)
            GOTO_IF(pick_tensor(a, i, &name, err), out);
        else
            GOTO_IF(leave_out_tensor(a, i, err), out);
    }
out:
    text_release(&name);
    return st;
}

/* What differs between ranks has a place only in a format with a file for each, and RNG or
 * dataloader state of one number of ranks means nothing to another. */
static bool object_has_place(const aim_state *a, const cat_object *o)
{
    if (a->to->units != NULL)
        return o->rank == UINT16_MAX || o->rank == 0;
    return o->rank == UINT16_MAX ||
           (a->request->nested && a->request->cut != NULL && a->request->cut->every_rank &&
            (int64_t)a->to->world_size == a->from->origin.world_size);
}

/* Rules that match an object alone are not in vain where it is compared under its own name. */
static fsdpck_status use_rules(aim_state *a, size_t i, fsdpck_error *err)
{
    text_buf name = {0};
    bool changed = false;
    first_name(a, catalogue_object(a->from, i)->name, (aim_part)a->parts->object_part[i], &name);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK && aim_rules_select(&a->rules, name.text))
        st = aim_rules_rename(&a->rules, &name, &changed, err);
    text_release(&name);
    return st;
}

/* Objects go by their flat key, as tensors do; only a nested target has a place for them. */
static fsdpck_status pick_objects(aim_state *a, fsdpck_error *err)
{
    for (size_t i = 0; i < a->parts->object_count; i++) {
        const cat_object *o = catalogue_object(a->from, i);
        const bool has_objects =
            a->to->units != NULL ? a->parts->object_part[i] == PART_OPTIMIZER : aim_has_objects(a);
        const bool carried =
            object_has_place(a, o) && has_objects && a->request->objects != AIM_OBJECTS_DROP;
        const bool wanted = carried && part_wanted(a, a->parts->object_part[i]) &&
                            aim_rules_select(&a->rules, catalogue_name(a->from, o->name));
        if (!wanted) {
            if (a->request->names_objects && part_wanted(a, a->parts->object_part[i]))
                RETURN_IF(use_rules(a, i, err));
            RETURN_IF(leave_out_object(a, i, err));
            continue;
        }
        uint32_t *pick = vec_push(&a->objects, err);
        if (pick == NULL)
            return FSDPCK_LIMIT;
        *pick = (uint32_t)i;
        a->result->objects_out++;
    }
    return FSDPCK_OK;
}

static fsdpck_status check_dtype(const aim_state *a, const char *name, dtype d, fsdpck_error *err)
{
    if (a->request->holds(d))
        return FSDPCK_OK;
    const fsdpck_status st =
        error_set(err, FSDPCK_UNSUPPORTED, "KEY-DTYPE", "%s cannot hold %s tensors",
                  a->request->format, dtype_get(d)->name);
    error_tensor(err, name);
    error_next(err, "write a .pt file, or leave it out with --exclude '%s'", name);
    return st;
}

static fsdpck_status add_target_tensor(aim_state *a, const aim_pick *pick, uint32_t from_index,
                                       const char *name, size_t nbytes, dtype d, uint32_t *index,
                                       fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    const uint64_t *shape = catalogue_shape(a->from, from_index);
    RETURN_IF(check_dtype(a, name, d, err));
    catalogue *cat = &a->to->cat;
    RETURN_IF(catalogue_add_tensor(cat, name, nbytes, d, t->ndim, shape, index, err));
    RETURN_IF(aim_cut(a, pick, from_index, *index, err));
    uint32_t *from = vec_push(&a->to->from, err);
    if (from == NULL)
        return FSDPCK_LIMIT;
    *from = from_index;
    a->result->tensors_out++;
    if (a->to->units == NULL)
        return FSDPCK_OK;
    uint32_t *param = vec_push(&a->to->flat_params, err);
    if (param == NULL)
        return FSDPCK_LIMIT;
    *param = pick == NULL ? CAT_NONE : pick->param;
    uint32_t *state = vec_push(&a->to->flat_states, err);
    if (state == NULL)
        return FSDPCK_LIMIT;
    *state = pick != NULL && (pick->state == 0 || pick->param != CAT_NONE) ? pick->state
                                                                           : TARGET_STATE_PLAIN;
    return FSDPCK_OK;
}

static dtype dtype_of(aim_state *a, const aim_pick *pick)
{
    return aim_rules_cast(&a->rules, strtab_text(&a->names, pick->name),
                          (dtype)catalogue_tensor(a->from, pick->source)->dtype,
                          a->parts->tensor_part[pick->source] == PART_MODEL);
}

/* Whether a pick has no tensor of its own in the target. */
static bool goes_with_head(aim_state *a, uint32_t k)
{
    aim_pick *pick = VEC_AT(&a->picks, aim_pick, k);
    const bool is_tied = pick->tied_to != CAT_NONE && pick->param == CAT_NONE;
    if (pick->is_twin || (is_tied && a->request->tied == AIM_TIED_FIRST))
        return true;
    pick->is_linked = is_tied && a->request->tied == AIM_TIED_LINK &&
                      dtype_of(a, pick) == dtype_of(a, aim_tie_head(a, k));
    return pick->is_linked;
}

static fsdpck_status add_picked(aim_state *a, fsdpck_error *err)
{
    for (uint32_t k = 0; k < a->picks.count; k++) {
        aim_pick *pick = VEC_AT(&a->picks, aim_pick, k);
        pick->target = CAT_NONE;
        if (pick->is_merged || goes_with_head(a, k))
            continue;
        const char *name = strtab_text(&a->names, pick->name);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        const dtype d = dtype_of(a, pick);
        a->result->cast += d != (dtype)t->dtype;
        RETURN_IF(add_target_tensor(a, pick, pick->source, name,
                                    strtab_nbytes(&a->names, pick->name), d, &pick->target, err));
        a->tensor_map[pick->source] = pick->target;
    }
    return aim_place_tied(a, err);
}

/* Tensors that lie inside picked objects follow them, under the name that the reader made up. */
static fsdpck_status add_inner(aim_state *a, uint64_t from_index, fsdpck_error *err)
{
    if (a->tensor_map[from_index] != UINT64_MAX)
        return FSDPCK_OK;
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    if (!(t->flags & CAT_TENSOR_IN_OBJECT))
        return FSDPCK_OK;
    uint32_t index;
    RETURN_IF(add_target_tensor(a, NULL, (uint32_t)from_index, catalogue_name(a->from, t->name),
                                catalogue_name_nbytes(a->from, t->name), (dtype)t->dtype, &index,
                                err));
    catalogue_tensor(&a->to->cat, index)->flags |= CAT_TENSOR_IN_OBJECT;
    a->tensor_map[from_index] = index;
    return FSDPCK_OK;
}

static fsdpck_status visit_inner(void *ctx, value v, fsdpck_error *err)
{
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    return add_inner(ctx, value_tensor_index(v), err);
}

/* What the writer has no place for, once it is seen what it is. */
static fsdpck_status leave_out_unheld(aim_state *a, fsdpck_error *err)
{
    size_t kept = 0;
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t i = *VEC_AT(&a->objects, uint32_t, k);
        const cat_object *o = catalogue_object(a->from, i);
        if (o->opaque || !a->request->holds_object(&a->from->pool, o->content)) {
            a->result->objects_out--;
            RETURN_IF(leave_out_object(a, i, err));
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

static fsdpck_status load_objects(aim_state *a, fsdpck_error *err)
{
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t i = *VEC_AT(&a->objects, uint32_t, k);
        if (!catalogue_object(a->from, i)->loaded)
            RETURN_IF(a->request->load_object(a->request->load_ctx, i, err));
    }
    if (a->request->holds_object != NULL)
        RETURN_IF(leave_out_unheld(a, err));
    const size_t count = catalogue_tensor_count(a->from);
    a->tensor_map = malloc((count + 1) * sizeof *a->tensor_map);
    if (a->tensor_map == NULL)
        return error_set_nomem(err, count * sizeof *a->tensor_map);
    memset(a->tensor_map, 0xff, (count + 1) * sizeof *a->tensor_map);
    return FSDPCK_OK;
}

static fsdpck_status add_inner_all(aim_state *a, fsdpck_error *err)
{
    for (size_t k = 0; k < a->objects.count; k++) {
        const cat_object *o = catalogue_object(a->from, *VEC_AT(&a->objects, uint32_t, k));
        a->inner_rank = o->rank;
        RETURN_IF(value_walk(&a->from->pool, o->content, visit_inner, a, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_something_picked(const aim_state *a, fsdpck_error *err)
{
    if (a->result->tensors_out > 0 || a->result->objects_out > 0)
        return FSDPCK_OK;
    static const char *const names[] = {"model", "optimizer", "other", "whole"};
    const aim_words *words = &a->request->words;
    uint64_t in_part = 0;
    for (size_t i = 0; i < a->parts->tensor_count; i++)
        in_part += (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT) == 0 &&
                   part_wanted(a, a->parts->tensor_part[i]);
    fsdpck_status st;
    if (in_part > 0 && (words->keys_count > 0 || words->exclude_count > 0)) {
        st = error_set(err, FSDPCK_USAGE, "",
                       "nothing is left: %s leaves none of %" PRIu64 " tensors",
                       words->exclude_count == 0 ? "--keys"
                       : words->keys_count == 0  ? "--exclude"
                                                 : "--keys with --exclude",
                       in_part);
        error_next(err, "take out or narrow the pattern; see the names with: fsdpck inspect --tree "
                        "SRC");
        return st;
    }
    if (a->parts->tensor_count == 0) {
        st = error_set(err, FSDPCK_USAGE, "", "nothing is left: the checkpoint has no tensors");
        error_next(err, "see what is there: fsdpck inspect SRC");
        return st;
    }
    st = error_set(err, FSDPCK_USAGE, "", "nothing is left: the %s part has no tensors",
                   names[a->request->part]);
    if (a->parts->bare_optimizer && a->request->part != PART_ALL)
        error_next(err, "an optimizer's state dict alone is the optimizer part: take it with "
                        "--part all");
    else if (a->request->part == PART_ALL)
        error_next(err, "tensors inside other objects cannot be taken alone: write a .pt, or save "
                        "the module's state_dict()");
    else
        error_next(err, "see what is there: fsdpck inspect SRC; or take it all with --part all");
    return st;
}

fsdpck_status aim_build(catalogue *from, const aim_parts *parts, const aim_request *request,
                        target *to, aim_result *result, fsdpck_error *err)
{
    memset(result, 0, sizeof *result);
    aim_state a = {.from = from, .parts = parts, .request = request, .to = to, .result = result};
    a.picks = VEC_OF(aim_pick, from->owner);
    a.objects = VEC_OF(uint32_t, from->owner);
    a.object_names = VEC_OF(uint32_t, from->owner);
    strtab_init(&a.names, from->owner);
    strtab_init(&a.state_keys, from->owner);
    to->cat.origin = from->origin;
    to->world_size = request->cut == NULL ? 1 : mesh_size(&request->cut->layout->mesh);
    to->cat.origin.world_size = (int64_t)to->world_size;
    to->units = request->cut == NULL ? NULL : request->cut->units;
    fsdpck_status st;
    GOTO_IF(aim_rules_compile(&request->words, &a.rules, err), out);
    GOTO_IF(pick_tensors(&a, err), out);
    GOTO_IF(pick_objects(&a, err), out);
    GOTO_IF(aim_objects_rename(&a, err), out);
    GOTO_IF(aim_find_ties(&a, err), out);
    if (to->units != NULL) {
        if (request->part != PART_OPTIMIZER)
            GOTO_IF(aim_flatten_find(&a, err), out);
        GOTO_IF(aim_flat_states_find(&a, err), out);
    }
    GOTO_IF(load_objects(&a, err), out);
    GOTO_IF(add_picked(&a, err), out);
    GOTO_IF(aim_objects_find_owners(&a, err), out);
    GOTO_IF(add_inner_all(&a, err), out);
    if (to->units != NULL)
        GOTO_IF(aim_flatten_check(&a, err), out);
    if (request->cut == NULL)
        GOTO_IF(aim_keep_views(&a, err), out);
    GOTO_IF(aim_rules_check_used(&a.rules, err), out);
    GOTO_IF(check_something_picked(&a, err), out);
    if (request->keyed)
        GOTO_IF(aim_build_keyed(&a, err), out);
    GOTO_IF(catalogue_seal(&to->cat, err), out);
    if (request->nested)
        GOTO_IF(aim_build_root(&a, err), out);
    if (to->units != NULL)
        GOTO_IF(aim_flat_root(&a, err), out);
out:
    aim_rules_release(&a.rules);
    strtab_release(&a.names);
    strtab_release(&a.state_keys);
    vec_release(&a.picks);
    vec_release(&a.objects);
    vec_release(&a.object_names);
    free(a.tensor_map);
    return st;
}

void aim_result_release(aim_result *result)
{
    free(result->other_params_first);
    for (size_t i = 0; i < result->left_out_names_count; i++)
        free(result->left_out_names[i]);
    for (size_t i = 0; i < result->tied_names_count; i++)
        free(result->tied_names[i]);
    memset(result, 0, sizeof *result);
}
