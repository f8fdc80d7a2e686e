/* The containers of all ranks' states, merged: classes of dicts, their attributes and the kinds of
 * keys, for states that are rebuilt from paths. A container has the class of the lowest rank. */
#include <inttypes.h>
#include <string.h>

#include "formats/pt/ranks_frame.h"

/* A container of the file that is being read, and the merged one. */
typedef struct step {
    value items; /* DICT or LIST in p->scratch.pool */
    size_t at;
    uint32_t to; /* ranks_frame.containers */
} step;

typedef struct frame_walk {
    ranks_parse *p;
    value_map closed; /* lists that are one object */
    value_map copies; /* attributes that were copied */
    vec steps;        /* step */
} frame_walk;

/* --- containers --- */

static ranks_container *container_at(const frame_walk *w, uint32_t number)
{
    return VEC_AT(&w->p->s->frame.containers, ranks_container, number);
}

static fsdpck_status copy_part(frame_walk *w, value *part, fsdpck_error *err)
{
    return value_copy_shared(&w->p->scratch.pool, *part, &w->p->s->cat->pool, NULL, &w->copies,
                             part, err);
}

/* An empty one of the same class and attributes. */
static fsdpck_status copy_container(frame_walk *w, value from, ranks_container *made,
                                    fsdpck_error *err)
{
    value_pool *pool = &w->p->s->cat->pool;
    const value_call *old = value_call_of(&w->p->scratch.pool, from);
    RETURN_IF(value_kind_of(from) == VALUE_LIST ? value_new_list(pool, &made->items, err)
                                                : value_new_dict(pool, &made->items, err));
    made->owner = made->items;
    if (old == NULL)
        return FSDPCK_OK;
    value_call call = *old;
    RETURN_IF(copy_part(w, &call.callee, err));
    RETURN_IF(copy_part(w, &call.args, err));
    RETURN_IF(copy_part(w, &call.kwargs, err));
    if (call.has_state)
        RETURN_IF(copy_part(w, &call.state, err));
    call.list_items = VALUE_OF_NONE;
    call.set_items = VALUE_OF_NONE;
    call.dict_items = made->items;
    return value_new_call(pool, &call, &made->owner, err);
}

static fsdpck_status add_container(frame_walk *w, value from, uint32_t *number, fsdpck_error *err)
{
    ranks_container made = {0};
    RETURN_IF(copy_container(w, from, &made, err));
    *number = (uint32_t)w->p->s->frame.containers.count;
    return vec_add(&w->p->s->frame.containers, &made, err);
}

/* Whether `from`, which has items, has the class of a dict that had none. */
static fsdpck_status is_same_class(const frame_walk *w, value from, value empty, bool *same,
                                   fsdpck_error *err)
{
    const value_pool *pool = &w->p->scratch.pool, *merged = &w->p->s->cat->pool;
    const value_call *a = value_call_of(pool, from), *b = value_call_of(merged, empty);
    *same = a == NULL && b == NULL;
    return a == NULL || b == NULL ? FSDPCK_OK
                                  : value_equal(pool, a->callee, merged, b->callee, same, err);
}

/* --- versions of modules --- */

/* The dict _metadata of nn.Module.state_dict(); false if there is none. */
static bool versions_of(value_pool *pool, value v, value *dict)
{
    const value_call *call = value_call_of(pool, v);
    value held;
    if (call == NULL || !call->has_state || value_kind_of(call->state) != VALUE_DICT ||
        !value_dict_find(pool, call->state, "_metadata", &held) || !value_as_dict(pool, held, dict))
        return false;
    return held == *dict || value_call_of(pool, held)->dict_items == *dict;
}

/* *fresh is false for a key that is not text. */
static fsdpck_status note_module(ranks_frame *frame, const value_pool *pool, uint32_t container,
                                 value key, bool *fresh, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    size_t nbytes;
    uint32_t id;
    const size_t before = strtab_count(&frame->modules);
    const char *name = value_kind_of(key) == VALUE_STR ? value_text(pool, key, &nbytes) : NULL;
    *fresh = false;
    if (name == NULL)
        return FSDPCK_OK;
    text_printf(&text, "%" PRIu32 ".", container);
    text_append(&text, name, nbytes);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&frame->modules, text.text, text.nbytes, &id, err);
    text_release(&text);
    *fresh = st == FSDPCK_OK && id == before;
    return st;
}

/* Of the modules that earlier ranks lack, such as those of another pipeline stage. */
static fsdpck_status merge_versions(frame_walk *w, uint32_t number, value from, fsdpck_error *err)
{
    ranks_frame *frame = &w->p->s->frame;
    value_pool *pool = &w->p->s->cat->pool, *scratch = &w->p->scratch.pool;
    ranks_container *c = container_at(w, number);
    value known, found;
    bool fresh;
    if (!versions_of(scratch, from, &found) || !versions_of(pool, c->owner, &known))
        return FSDPCK_OK;
    for (size_t i = 0; !c->has_modules && i < value_count(pool, known); i++)
        RETURN_IF(note_module(frame, pool, number, value_key(pool, known, i), &fresh, err));
    c->has_modules = true;
    for (size_t i = 0; i < value_count(scratch, found); i++) {
        value key = value_key(scratch, found, i), item = value_item(scratch, found, i);
        RETURN_IF(note_module(frame, scratch, number, key, &fresh, err));
        if (!fresh)
            continue;
        RETURN_IF(copy_part(w, &key, err));
        RETURN_IF(copy_part(w, &item, err));
        RETURN_IF(value_dict_put(pool, known, key, item, err));
    }
    return FSDPCK_OK;
}

/* --- items --- */

static ranks_shape shape_of(frame_walk *w, value v, value *items)
{
    value_pool *pool = &w->p->scratch.pool;
    const value_kind kind = value_kind_of(v);
    *items = v;
    if (kind == VALUE_TUPLE)
        return value_count(pool, v) == 0 ? SHAPE_EMPTY_TUPLE : SHAPE_OTHER;
    if (kind == VALUE_LIST && value_count(pool, v) == 0)
        return SHAPE_EMPTY_LIST;
    if (kind == VALUE_LIST)
        return value_map_find(&w->closed, v) == NULL ? SHAPE_LIST : SHAPE_OTHER;
    if (!value_as_dict(pool, v, items))
        return SHAPE_OTHER;
    return value_count(pool, *items) == 0 ? SHAPE_EMPTY_DICT : SHAPE_DICT;
}

/* Whether one is empty and the other has items, and they are of different kinds. */
static bool is_contradiction(ranks_shape known, ranks_shape found)
{
    if (known == SHAPE_OTHER || found == SHAPE_OTHER)
        return false;
    if (known == SHAPE_DICT || found == SHAPE_DICT) {
        const ranks_shape other = known == SHAPE_DICT ? found : known;
        return other == SHAPE_EMPTY_LIST || other == SHAPE_EMPTY_TUPLE;
    }
    if (known == SHAPE_LIST || found == SHAPE_LIST) {
        const ranks_shape other = known == SHAPE_LIST ? found : known;
        return other == SHAPE_EMPTY_DICT || other == SHAPE_EMPTY_TUPLE;
    }
    return false;
}

/* The slot's value becomes this container. */
static fsdpck_status set_container(frame_walk *w, uint32_t in, ranks_slot *slot, value from,
                                   fsdpck_error *err)
{
    RETURN_IF(add_container(w, from, &slot->container, err));
    value_set_item(&w->p->s->cat->pool, container_at(w, in)->items, slot->at,
                   container_at(w, slot->container)->owner);
    return FSDPCK_OK;
}

/* Of a value on this rank, `slot` is the one of all ranks before. */
static fsdpck_status merge_item(frame_walk *w, uint32_t in, ranks_slot *slot, value v,
                                fsdpck_error *err)
{
    value items;
    const ranks_shape found = shape_of(w, v, &items), known = (ranks_shape)slot->shape;
    const bool is_filled = found == SHAPE_DICT || found == SHAPE_LIST;
    bool same = false;
    if (is_contradiction(known, found))
        RETURN_IF(ranks_frame_refuse_shape(w->p, slot, found, err));
    if (found == SHAPE_OTHER || known == SHAPE_DICT || known == SHAPE_LIST) {
        if (found != known || !is_filled)
            return FSDPCK_OK;
    } else if (known == SHAPE_OTHER || is_filled) {
        slot->shape = (uint8_t)found;
        if (known == SHAPE_EMPTY_DICT && found == SHAPE_DICT)
            RETURN_IF(is_same_class(w, v, container_at(w, slot->container)->owner, &same, err));
        if (!(known == SHAPE_EMPTY_DICT && found == SHAPE_DICT && !same) &&
            (is_filled || found == SHAPE_EMPTY_DICT))
            RETURN_IF(set_container(w, in, slot, v, err));
    }
    if (found == SHAPE_DICT)
        RETURN_IF(merge_versions(w, slot->container, v, err));
    return is_filled ? vec_add(&w->steps, &(step){.items = items, .to = slot->container}, err)
                     : FSDPCK_OK;
}

static fsdpck_status add_item(frame_walk *w, uint32_t in, value key, ranks_slot *slot,
                              fsdpck_error *err)
{
    value_pool *pool = &w->p->s->cat->pool;
    const value items = container_at(w, in)->items;
    slot->at = value_count(pool, items);
    return value_kind_of(items) == VALUE_LIST
               ? value_append(pool, items, VALUE_OF_NONE, err)
               : value_dict_put(pool, items, key, VALUE_OF_NONE, err);
}

static fsdpck_status walk(frame_walk *w, fsdpck_error *err)
{
    ranks_parse *p = w->p;
    const value_pool *pool = &p->scratch.pool;
    vec *keys = &p->s->frame.place;
    while (w->steps.count > 0) {
        step *top = VEC_AT(&w->steps, step, w->steps.count - 1);
        if (top->at == value_count(pool, top->items)) {
            w->steps.count--;
            keys->count -= keys->count > 0;
            continue;
        }
        const size_t at = top->at++, depth = w->steps.count;
        const uint32_t in = top->to;
        const value item = value_item(pool, top->items, at);
        value key = value_key(pool, top->items, at);
        uint32_t number;
        bool fresh;
        if (value_kind_of(top->items) == VALUE_LIST)
            RETURN_IF(value_new_int(&p->scratch.pool, (int64_t)at, &key, err));
        RETURN_IF(vec_add(keys, &key, err));
        RETURN_IF(ranks_frame_slot(p, in, container_at(w, in)->items, key, &number, &fresh, err));
        ranks_slot *slot = VEC_AT(&p->s->frame.slots, ranks_slot, number);
        if (fresh)
            RETURN_IF(add_item(w, in, slot->key, slot, err));
        RETURN_IF(merge_item(w, in, slot, item, err));
        if (w->steps.count == depth)
            keys->count--;
    }
    return FSDPCK_OK;
}

/* --- one file --- */

void ranks_frame_init(ranks_frame *f, budget *owner)
{
    strtab_init(&f->keys, owner);
    strtab_init(&f->numbers, owner);
    strtab_init(&f->modules, owner);
    f->slots = VEC_OF(ranks_slot, owner);
    f->containers = VEC_OF(ranks_container, owner);
    f->number_slots = VEC_OF(uint32_t, owner);
    f->place = VEC_OF(value, owner);
    strtab_init(&f->dicts, owner);
    strtab_init(&f->classes, owner);
    f->dict_classes = VEC_OF(uint32_t, owner);
    f->first_class = (text_buf){.limit_bytes = 1500};
}

void ranks_frame_release(ranks_frame *f)
{
    strtab_release(&f->keys);
    strtab_release(&f->numbers);
    strtab_release(&f->modules);
    strtab_release(&f->dicts);
    strtab_release(&f->classes);
    VEC_RELEASE_ALL(&f->slots, &f->containers, &f->number_slots, &f->place, &f->dict_classes);
    text_release(&f->first_class);
}

static fsdpck_status note_closed(frame_walk *w, fsdpck_error *err)
{
    const ranks_parse *p = w->p;
    for (size_t i = 0; i < p->flat.objects.count; i++) {
        const pt_object_place *o = VEC_AT(&p->flat.objects, const pt_object_place, i);
        const value content = catalogue_object(&p->scratch, o->object)->content;
        if (value_kind_of(content) == VALUE_LIST &&
            value_map_put(&w->closed, content, NULL, err) == NULL)
            return FSDPCK_LIMIT;
    }
    return FSDPCK_OK;
}

/* Under the key of the file's family, if it has one. */
static fsdpck_status merge_root(frame_walk *w, fsdpck_error *err)
{
    ranks_parse *p = w->p;
    ranks_frame *frame = &p->s->frame;
    const ranks_family *f = VEC_AT(&p->s->list->families, const ranks_family, p->file->family);
    value outer;
    RETURN_IF(value_new_dict(&p->scratch.pool, &outer, err));
    if (f->key[0] == '\0') {
        RETURN_IF(value_dict_put(&p->scratch.pool, outer, VALUE_OF_NONE, p->archive.root, err));
    } else {
        value key;
        RETURN_IF(value_new_str(&p->scratch.pool, f->key, strlen(f->key), &key, err));
        RETURN_IF(value_dict_put(&p->scratch.pool, outer, key, p->archive.root, err));
    }
    uint32_t number = 0;
    if (frame->containers.count == 0)
        RETURN_IF(add_container(w, outer, &number, err));
    frame->place.count = 0;
    RETURN_IF(vec_add(&w->steps, &(step){.items = outer, .to = 0}, err));
    RETURN_IF(walk(w, err));
    value_pool *pool = &p->s->cat->pool;
    const value merged = container_at(w, 0)->items;
    p->s->cat->like = f->key[0] == '\0' ? value_item(pool, merged, 0) : merged;
    return FSDPCK_OK;
}

fsdpck_status ranks_take_frame(ranks_parse *p, fsdpck_error *err)
{
    budget *owner = p->s->req->metadata;
    frame_walk w = {.p = p,
                    .closed = VALUE_MAP(owner),
                    .copies = VALUE_MAP(owner),
                    .steps = VEC_OF(step, owner)};
    fsdpck_status st = FSDPCK_OK;
    /* A file without new names has the keys of the earlier ones: ranks_check_keys. */
    if (p->is_fresh)
        st = note_closed(&w, err);
    if (st == FSDPCK_OK && p->is_fresh)
        st = merge_root(&w, err);
    value_map_release(&w.closed);
    value_map_release(&w.copies);
    vec_release(&w.steps);
    return st;
}
