/* Reads one rank's file: parses its pickle, names its values with pt_flatten, and passes them to
 * the merge. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/pt/ranks_frame.h"
#include "formats/pt/ranks_kinds.h"

/* --- names --- */

/* The path in the catalogue's pool, after the key of the file's family. */
static fsdpck_status copy_path(ranks_parse *p, value path, value *copy, fsdpck_error *err)
{
    value_pool *pool = &p->s->cat->pool;
    const ranks_family *f = VEC_AT(&p->s->list->families, const ranks_family, p->file->family);
    if (f->key[0] == '\0')
        return value_copy(&p->scratch.pool, path, pool, NULL, copy, err);
    vec items = VEC_OF(value, pool->owner);
    value *slot = vec_push(&items, err);
    fsdpck_status st =
        slot == NULL ? FSDPCK_LIMIT : value_new_str(pool, f->key, strlen(f->key), slot, err);
    for (size_t i = 0; st == FSDPCK_OK && i < value_count(&p->scratch.pool, path); i++) {
        slot = vec_push(&items, err);
        value item = VALUE_OF_NONE;
        st = slot == NULL ? FSDPCK_LIMIT
                          : value_copy(&p->scratch.pool, value_item(&p->scratch.pool, path, i),
                                       pool, NULL, &item, err);
        if (st == FSDPCK_OK)
            *slot = item;
    }
    if (st == FSDPCK_OK)
        st = value_new_from(pool, VALUE_TUPLE, items.items, items.count, copy, err);
    vec_release(&items);
    return st;
}

/* An optimizer that numbers its parameters: state.0.exp_avg. */
static bool numbered_state(const value_pool *pool, value path)
{
    for (size_t i = 0; i + 2 < value_count(pool, path); i++)
        if (value_is_str(pool, value_item(pool, path, i), "state") &&
            value_kind_of(value_item(pool, path, i + 1)) == VALUE_BYTES)
            return true;
    return false;
}

static bool generator_state(const value_pool *pool, value path)
{
    for (size_t i = 0; i < value_count(pool, path); i++) {
        size_t nbytes;
        const value v = value_item(pool, path, i);
        const char *text = value_kind_of(v) == VALUE_STR ? value_text(pool, v, &nbytes) : NULL;
        if (text != NULL && nbytes >= 3 && memcmp(text, "rng", 3) == 0)
            return true;
    }
    return false;
}

static fsdpck_status disagree(const ranks_parse *p, const ranks_tensor *t, const char *name,
                              const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, RANK_DISAGREE, ("files of two ranks differ in %s", what),
                     (tensor, name),
                     (expected, "the value in '%s'", ranks_path(p->s, t->first_file)));
}

/* The name's entry, created if no earlier file has it. */
static fsdpck_status entry_of(ranks_parse *p, uint32_t flat, value path, ranks_kind kind,
                              uint32_t *entry, bool *fresh, fsdpck_error *err)
{
    ranks_state *s = p->s;
    const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, p->file->family);
    text_buf name = {.limit_bytes = 1u << 20};

    const bool has_key = f->key[0] != '\0', is_root = value_count(&p->scratch.pool, path) == 0;
    if (has_key) /* a root without keys has this one */
        text_printf(&name, "%s%s", f->key, is_root ? "" : ".");
    if (!has_key || !is_root)
        text_append(&name, strtab_text(&p->flat.flat, flat), strtab_nbytes(&p->flat.flat, flat));
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&s->names, name.text == NULL ? "" : name.text, name.nbytes, entry, err);
    text_release(&name);
    RETURN_IF(st);
    *fresh = *entry == s->tensors.count;
    p->is_fresh = p->is_fresh || *fresh;
    if (!*fresh) {
        ranks_tensor *t = VEC_AT(&s->tensors, ranks_tensor, *entry);
        if (t->kind != kind)
            return disagree(p, t, strtab_text(&s->names, *entry), "the type of a value", err);
        t->rank_count++;
        return ranks_check_keys(p, *entry, path, err);
    }
    return vec_add(&s->tensors,
                   &(ranks_tensor){.kind = (uint8_t)kind,
                                   .index = CAT_NONE,
                                   .first_file = p->file->index,
                                   .rank_count = 1,
                                   .other_keys = p->other_keys,
                                   .in_optimizer = numbered_state(&p->scratch.pool, path),
                                   .in_rng = generator_state(&p->scratch.pool, path)},
                   err);
}

/* --- tensors --- */

static fsdpck_status new_tensor(ranks_parse *p, uint32_t entry, value path, const ranks_declared *c,
                                fsdpck_error *err)
{
    ranks_state *s = p->s;
    uint32_t index;
    RETURN_IF(catalogue_add_tensor(s->cat, strtab_text(&s->names, entry),
                                   strtab_nbytes(&s->names, entry), c->dtype, c->ndim, c->shape,
                                   &index, err));
    value copy;
    RETURN_IF(copy_path(p, path, &copy, err));
    cat_tensor *t = catalogue_tensor(s->cat, index);
    t->path = copy;
    t->python = c->python;
    if (c->requires_grad)
        t->flags |= CAT_TENSOR_REQUIRES_GRAD;
    VEC_AT(&s->tensors, ranks_tensor, entry)->index = index;
    return FSDPCK_OK;
}

static ranks_declared describe_plain(const ranks_parse *p, uint64_t tensor)
{
    const torch_tensor *t = VEC_AT(&p->archive.tensors, const torch_tensor, tensor);
    ranks_declared c = {.kind = RANKS_PLAIN,
                        .dtype = (dtype)t->dtype,
                        .ndim = t->ndim,
                        .requires_grad = t->requires_grad,
                        .python = t->python};
    if (t->ndim > 0)
        memcpy(c.shape, torch_tensor_sizes(&p->archive, t), t->ndim * sizeof *c.shape);
    return c;
}

/* Plain tensors may differ between ranks: checked after all files are read. */
static fsdpck_status see_plain(ranks_parse *p, uint64_t tensor, uint32_t flat, value path,
                               fsdpck_error *err)
{
    ranks_declared c = describe_plain(p, tensor);
    uint32_t entry, piece;
    bool fresh;

    RETURN_IF(ranks_note_kind(p, flat, RANKS_PLAIN, err));
    RETURN_IF(entry_of(p, flat, path, RANKS_PLAIN, &entry, &fresh, err));
    if (fresh)
        RETURN_IF(new_tensor(p, entry, path, &c, err));
    RETURN_IF(ranks_shard_of(p, tensor, &piece, err));
    torch_shard *slot = VEC_AT(&p->s->reader->pieces, torch_shard, piece);
    slot->tensor = entry;
    slot->flags |= RANKS_SHARD_PLAIN;
    return FSDPCK_OK;
}

/* (class, dtype, size, stride, storage offset, layout, device, requires_grad) */
static fsdpck_status read_wrapper(ranks_parse *p, value call, ranks_declared *c, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    const value args = value_item(pool, value_call_of(pool, call)->args, 2);
    const value type = value_item(pool, args, 1), grad = value_item(pool, args, 7);
    const char *name = value_symbol_name(pool, type);

    c->dtype =
        value_kind_of(type) == VALUE_SYMBOL ? dtype_from_name(name, strlen(name)) : DTYPE_NONE;
    if (c->dtype == DTYPE_NONE)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor has an unknown dtype");
    if (!ranks_dims(pool, value_item(pool, args, 2), c->shape, NDIM_MAX, &c->ndim))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor has no shape");
    c->requires_grad = value_kind_of(grad) == VALUE_BOOL && value_is_true(grad);
    return FSDPCK_OK;
}

static fsdpck_status same_shape(const ranks_parse *p, uint32_t entry, const ranks_declared *c,
                                fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&p->s->tensors, const ranks_tensor, entry);
    const cat_tensor *ct = catalogue_tensor(p->s->cat, t->index);
    const uint64_t *shape = catalogue_shape(p->s->cat, t->index);
    text_buf found = {.limit_bytes = 200};

    if (ct->dtype == c->dtype && ct->ndim == c->ndim &&
        (c->ndim == 0 || memcmp(shape, c->shape, c->ndim * sizeof *shape) == 0))
        return FSDPCK_OK;
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, RANK_DISAGREE,
                  ("files of two ranks record different dtypes or shapes of a tensor"),
                  (tensor, strtab_text(&p->s->names, entry)));
    text_printf(&found, "%s[", dtype_get((dtype)ct->dtype)->name);
    for (unsigned i = 0; i < ct->ndim; i++)
        text_printf(&found, "%s%" PRIu64, i > 0 ? "," : "", shape[i]);
    error_expected(err, "%s], as in '%s'", found.text, ranks_path(p->s, t->first_file));
    found.nbytes = 0;
    text_printf(&found, "%s[", dtype_get(c->dtype)->name);
    for (unsigned i = 0; i < c->ndim; i++)
        text_printf(&found, "%s%" PRIu64, i > 0 ? "," : "", c->shape[i]);
    error_found(err, "%s]", found.text);
    error_next(err, "check that all files are from one save%s",
               t->in_optimizer ? "; if ranks are pipeline stages, save the optimizer with "
                                 "get_optimizer_state_dict, which names parameters"
                               : "");
    text_release(&found);
    return st;
}

/* A ShardedTensor of a group of one rank among more: FSDP1 writes one for the optimizer state of an
 * expert that is local to a rank. It is complete and belongs to no other rank. */
static bool is_of_one_rank(const ranks_parse *p, const ranks_declared *c, uint64_t *tensor)
{
    const value_pool *pool = &p->scratch.pool;
    value local;
    if (c->kind != RANKS_SHARDED || c->group_ranks != 1 || c->world < 2 ||
        value_count(pool, c->shards) != 1 ||
        !ranks_attribute(pool, value_item(pool, c->shards, 0), "tensor", &local) ||
        value_kind_of(local) != VALUE_TENSOR)
        return false;
    *tensor = value_tensor_index(local);
    const torch_tensor *t = VEC_AT(&p->archive.tensors, const torch_tensor, *tensor);
    return t->ndim == c->ndim && (dtype)t->dtype == c->dtype &&
           (c->ndim == 0 ||
            memcmp(torch_tensor_sizes(&p->archive, t), c->shape, c->ndim * sizeof *c->shape) == 0);
}

/* Pipeline stages use one number for different parameters. */
static fsdpck_status add_to_known(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                                  fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&p->s->tensors, const ranks_tensor, entry);
    fsdpck_error what;
    fsdpck_error_init(&what);
    fsdpck_status st = same_shape(p, entry, c, &what);
    if (st == FSDPCK_OK)
        st = ranks_add_boxes(p, entry, c, &what);
    if (st != FSDPCK_OK && t->in_optimizer && what.finding == FSDPCK_FINDING_RANK_DISAGREE)
        return ranks_note_conflict(p->s, p->file, entry, &what, err);
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    return st;
}

static fsdpck_status add_sharded(ranks_parse *p, uint32_t flat, value path, const ranks_declared *c,
                                 fsdpck_error *err)
{
    uint32_t entry;
    bool fresh;
    RETURN_IF(ranks_note_kind(p, flat, c->kind, err));
    RETURN_IF(entry_of(p, flat, path, c->kind, &entry, &fresh, err));
    RETURN_IF(ranks_note_name(p->s, p->file->rank, entry, err));
    if (!fresh)
        return add_to_known(p, entry, c, err);
    RETURN_IF(new_tensor(p, entry, path, c, err));
    return ranks_add_boxes(p, entry, c, err);
}

static fsdpck_status see_sharded(ranks_parse *p, value call, uint32_t flat, value path,
                                 fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    const value type = value_item(pool, value_call_of(pool, call)->args, 1);
    ranks_declared c = {0};
    uint64_t tensor;

    RETURN_IF(read_wrapper(p, call, &c, err));
    if (strcmp(value_symbol_name(pool, type), "DTensor") == 0)
        RETURN_IF(ranks_dtensor_read(p, call, &c, err));
    else
        RETURN_IF(ranks_sharded_read(p, call, &c, err));
    if (is_of_one_rank(p, &c, &tensor))
        return see_plain(p, tensor, flat, path, err);
    return add_sharded(p, flat, path, &c, err);
}

/* A tensor that is plain in its file. */
static fsdpck_status see_tensor(ranks_parse *p, uint64_t tensor, uint32_t flat, value path,
                                fsdpck_error *err)
{
    ranks_declared c = describe_plain(p, tensor);
    ranks_mesh m;
    if (p->s->meta.world > 1 && p->file->family == p->s->meta.family)
        RETURN_IF(ranks_meta_declare(p, tensor, strtab_text(&p->flat.flat, flat), &c, &m, err));
    return c.kind == RANKS_PLAIN ? see_plain(p, tensor, flat, path, err)
                                 : add_sharded(p, flat, path, &c, err);
}

/* --- the walk over names --- */

static fsdpck_status add_object_of_rank(ranks_parse *p, const cat_object *o, uint32_t flat,
                                        fsdpck_error *err)
{
    uint32_t entry;
    bool fresh;
    if (pt_is_sharded(&p->scratch.pool, o->content))
        return see_sharded(p, o->content, flat, o->path, err);
    RETURN_IF(entry_of(p, flat, o->path, RANKS_OBJECT, &entry, &fresh, err));
    value path = VALUE_OF_NONE;
    if (fresh)
        RETURN_IF(copy_path(p, o->path, &path, err));
    return ranks_add_object(p, entry, path, o->content, err);
}

/* `order`: of each flat key its tensor, or OBJECT_BIT and its object. */
#define OBJECT_BIT UINT32_C(0x80000000)

static fsdpck_status see_all(ranks_parse *p, const uint32_t *order, fsdpck_error *err)
{
    for (uint32_t flat = 0; flat < strtab_count(&p->flat.flat); flat++) {
        const uint32_t at = order[flat] & ~OBJECT_BIT;
        fsdpck_status st;
        p->other_keys = order[flat] & OBJECT_BIT
                            ? VEC_AT(&p->flat.objects, const pt_object_place, at)->other_keys
                            : VEC_AT(&p->flat.names, const pt_name, at)->other_keys;
        if (order[flat] & OBJECT_BIT)
            st = add_object_of_rank(p, catalogue_object(&p->scratch, at), flat, err);
        else
            st = see_tensor(p, at, flat, VEC_AT(&p->flat.names, const pt_name, at)->path, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, strtab_text(&p->flat.flat, flat));
            return st;
        }
    }
    return FSDPCK_OK;
}

/* In the order of the file, tensors and objects together: flat keys are numbered in order of
 * occurrence. */
static fsdpck_status walk_names(ranks_parse *p, fsdpck_error *err)
{
    const size_t count = strtab_count(&p->flat.flat);
    uint32_t *order = budget_alloc(p->archive.owner, count * sizeof *order, err);
    if (order == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < p->flat.names.count; i++) {
        const pt_name *n = VEC_AT(&p->flat.names, const pt_name, i);
        if (n->flat != STRTAB_NONE)
            order[n->flat] = (uint32_t)i;
    }
    for (size_t i = 0; i < catalogue_object_count(&p->scratch); i++) {
        const uint32_t name = catalogue_object(&p->scratch, i)->name;
        const uint32_t flat = strtab_find(&p->flat.flat, catalogue_name(&p->scratch, name),
                                          catalogue_name_nbytes(&p->scratch, name));
        order[flat] = (uint32_t)i | OBJECT_BIT;
    }
    const fsdpck_status st = see_all(p, order, err);
    budget_free(p->archive.owner, order, count * sizeof *order);
    return st;
}

static fsdpck_status parse_archive(ranks_parse *p, fsdpck_error *err)
{
    ranks_state *s = p->s;

    p->flat.keep_sharded = true;
    p->flat.keep_empty = true;
    p->flat.on_dict = ranks_note_dict;
    p->flat.ctx = p;
    RETURN_IF(pt_flatten(&p->flat, err));
    if (p->archive.duplicate_keys > 0)
        log_warn(&s->req->log, FSDPCK_FINDING_PKL_DUPKEY, "",
                 "dict keys set twice in '%s': %" PRIu64 "; the last value of each is used",
                 p->file->name, p->archive.duplicate_keys);
    RETURN_IF(walk_names(p, err));
    return ranks_take_frame(p, err);
}

static void parse_release(ranks_parse *p, budget *owner, bool keep)
{
    for (size_t i = 0; i < p->meshes.count; i++)
        budget_free(owner, *VEC_AT(&p->meshes, ranks_mesh *, i), sizeof(ranks_mesh));
    vec_release(&p->meshes);
    value_map_release(&p->mesh_of);
    pt_flat_release(&p->flat);
    torch_folder_end_read(p->s->reader, p->file->index, &p->archive, keep);
    catalogue_release(&p->scratch);
}

fsdpck_status ranks_parse_file(ranks_state *s, const ranks_file *f, fsdpck_error *err)
{
    budget *owner = s->req->metadata;
    ranks_parse p = {
        .s = s, .file = f, .mesh_of = VALUE_MAP(owner), .meshes = VEC_OF(ranks_mesh *, owner)};

    RETURN_IF(cancel_check(s->req->cancel, err));
    s->file_unread = true;
    catalogue_init(&p.scratch, owner);
    pt_flat_init(&p.flat, &p.scratch, &p.archive);
    fsdpck_status st = torch_folder_read(s->reader, f->index, &p.scratch.pool, s->req->opaque_calls,
                                         &p.archive, err);
    if (st == FSDPCK_OK) {
        s->file_unread = false;
        if (s->archive_form[0] == '\0')
            snprintf(s->archive_form, sizeof s->archive_form, "%s",
                     torch_archive_torch_version(&p.archive));
        st = parse_archive(&p, err);
    }
    if (st != FSDPCK_OK)
        error_path_in(err, s->req->path, f->name);
    parse_release(&p, owner, st == FSDPCK_OK);
    return st;
}
