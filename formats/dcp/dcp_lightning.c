#include "formats/dcp/dcp_lightning.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp_item.h"

#define LIGHTNING_FILE "meta.pt"

/* The Trainer records its release, Fabric does not. */
#define RELEASE_KEY "pytorch-lightning_version"

/* Names that a message lists. */
#define LEFT_OUT_NAMES_MAX 5u

/* While the keys become objects. */
typedef struct meta_keys {
    dcp_folder *d;
    dcp_repeat where;
    dcp_item_bytes item;
    strtab outer;   /* outer keys of the folder's state */
    strtab objects; /* names of its objects */
    text_buf left_out;
    size_t left_out_count;
    bool is_dict;
    bool has_release;
} meta_keys;

fsdpck_status dcp_lightning_add_file(dcp_folder *d, const open_request *req, uint32_t *file_id,
                                     fsdpck_error *err)
{
    const uint32_t count = (uint32_t)catalogue_file_count(d->cat);
    path_kind kind;
    *file_id = CAT_NONE;
    if (!probe_has_entry(req->probe, LIGHTNING_FILE) ||
        path_probe(&d->dir, LIGHTNING_FILE, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&d->names.paths, LIGHTNING_FILE, strlen(LIGHTNING_FILE), file_id, err));
    if (*file_id < count) /* the metadata names it */
        *file_id = CAT_NONE;
    return *file_id == CAT_NONE ? FSDPCK_OK
                                : catalogue_add_file(d->cat, LIGHTNING_FILE, strlen(LIGHTNING_FILE),
                                                     0, CAT_NONE, file_id, err);
}

/* Without a path, the name is the only key. */
static fsdpck_status add_outer(meta_keys *m, uint32_t name_id, value path, fsdpck_error *err)
{
    const catalogue *cat = m->d->cat;
    size_t nbytes = catalogue_name_nbytes(cat, name_id);
    const char *name = catalogue_name(cat, name_id);
    uint32_t id;
    if (!value_is_none(path) && value_count(&cat->pool, path) > 0) {
        const value key = value_item(&cat->pool, path, 0);
        if (value_kind_of(key) != VALUE_STR)
            return FSDPCK_OK;
        name = value_text(&cat->pool, key, &nbytes);
    }
    return strtab_intern(&m->outer, name, nbytes, &id, err);
}

static fsdpck_status list_keys(meta_keys *m, fsdpck_error *err)
{
    const catalogue *cat = m->d->cat;
    uint32_t id;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        RETURN_IF(
            add_outer(m, catalogue_tensor(cat, i)->name, catalogue_tensor(cat, i)->path, err));
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        RETURN_IF(add_outer(m, o->name, o->path, err));
        RETURN_IF(strtab_intern(&m->objects, catalogue_name(cat, o->name),
                                catalogue_name_nbytes(cat, o->name), &id, err));
    }
    return FSDPCK_OK;
}

static void leave_out(meta_keys *m, const char *name, size_t nbytes)
{
    char shown[200];
    if (m->left_out_count++ < LEFT_OUT_NAMES_MAX)
        text_printf(&m->left_out, "%s'%s'", m->left_out_count > 1 ? ", " : "",
                    escape_text(shown, sizeof shown, name, nbytes));
}

static fsdpck_status add_key(meta_keys *m, const torch_archive *a, value key, value content,
                             fsdpck_error *err)
{
    dcp_folder *d = m->d;
    size_t nbytes;
    uint32_t object;
    if (value_kind_of(key) != VALUE_STR)
        return FSDPCK_OK;
    const char *name = value_text(a->pool, key, &nbytes);
    m->has_release =
        m->has_release || (text_equal(name, nbytes, RELEASE_KEY, strlen(RELEASE_KEY)) &&
                           value_kind_of(content) == VALUE_STR);
    if (strtab_find(&m->objects, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    if (strtab_find(&m->outer, name, nbytes) != STRTAB_NONE ||
        catalogue_find(d->cat, name, nbytes) != CAT_NONE) {
        leave_out(m, name, nbytes);
        return FSDPCK_OK;
    }
    if (value_kind_of(content) == VALUE_TENSOR) { /* an object is never a bare one */
        char shown[200];
        log_warn(&d->log, FSDPCK_FINDING_SIDE_UNREAD, "copy it from the file if you need it",
                 "tensor '%s' of '%s' is left out: it is in no container",
                 escape_text(shown, sizeof shown, name, nbytes),
                 catalogue_name(d->cat, catalogue_file(d->cat, m->where.file)->path));
        return FSDPCK_OK;
    }
    RETURN_IF(catalogue_add_object(d->cat, name, nbytes, &object, err));
    cat_object *o = catalogue_object(d->cat, object);
    o->file = m->where.file;
    o->nbytes = m->where.nbytes;
    const fsdpck_status st = dcp_object_set_content(d, object, a, &m->item, content, err);
    o = catalogue_object(d->cat, object);
    o->file = CAT_NONE; /* its bytes are those of the other keys too */
    o->nbytes = 0;
    o->loaded = 1;
    return st;
}

static fsdpck_status add_keys(meta_keys *m, fsdpck_error *err)
{
    value_pool pool;
    torch_archive a;
    value dict;

    value_pool_init(&pool, m->d->owner);
    fsdpck_status st = dcp_item_read(m->d, &m->where, &m->item, err);
    const zip_input in = {.read = dcp_item_read_at, .ctx = &m->item, .nbytes = m->item.bytes.count};
    if (st == FSDPCK_OK)
        st = torch_archive_open(&in, m->d->owner, &pool, m->d->opaque_calls, &a, err);
    if (st == FSDPCK_OK) {
        m->is_dict = value_as_dict(&pool, a.root, &dict);
        if (m->is_dict)
            st = list_keys(m, err);
        for (size_t i = 0; m->is_dict && st == FSDPCK_OK && i < value_count(&pool, dict); i++)
            st = add_key(m, &a, value_key(&pool, dict, i), value_item(&pool, dict, i), err);
        torch_archive_release(&a);
    }
    value_pool_release(&pool);
    return st;
}

static void note_release(catalogue *cat)
{
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (strcmp(catalogue_name(cat, o->name), RELEASE_KEY) != 0 || !o->loaded ||
            value_kind_of(o->content) != VALUE_STR)
            continue;
        char version[32];
        size_t nbytes;
        const char *text = value_text(&cat->pool, o->content, &nbytes);
        snprintf(cat->origin.note, sizeof cat->origin.note, "Lightning %s",
                 escape_text(version, sizeof version, text, nbytes));
    }
}

static void warn_left_out(const meta_keys *m)
{
    if (m->left_out_count == 0)
        return;
    log_warn(&m->d->log, FSDPCK_FINDING_SIDE_UNREAD, "copy what you need from the file",
             "%zu key%s of '" LIGHTNING_FILE "' %s left out: the folder has %s: %s%s",
             m->left_out_count, text_plural(m->left_out_count),
             m->left_out_count == 1 ? "is" : "are", m->left_out_count == 1 ? "it" : "them",
             m->left_out.text == NULL ? "" : m->left_out.text,
             m->left_out_count > LEFT_OUT_NAMES_MAX ? ", ..." : "");
}

/* The content of the file, as far as it can be read. */
static fsdpck_status read_keys(dcp_folder *d, uint32_t file_id, fsdpck_error *err)
{
    meta_keys m = {.d = d,
                   .where = {.file = file_id, .nbytes = catalogue_file(d->cat, file_id)->nbytes},
                   .item = {.bytes = VEC_OF(uint8_t, d->owner)}};
    strtab_init(&m.outer, d->owner);
    strtab_init(&m.objects, d->owner);
    const fsdpck_status st = add_keys(&m, err);
    cat_origin *origin = &d->cat->origin;
    if (st == FSDPCK_OK)
        warn_left_out(&m);
    origin->has_lightning = st == FSDPCK_OK && m.is_dict;
    /* Any dict may be Fabric's: the release alone shows that it is not the user's own. */
    if (!origin->has_lightning || !m.has_release)
        snprintf(origin->open_file, sizeof origin->open_file, "%s", LIGHTNING_FILE);
    note_release(d->cat);
    text_release(&m.left_out);
    strtab_release(&m.objects);
    strtab_release(&m.outer);
    vec_release(&m.item.bytes);
    return st;
}

fsdpck_status dcp_lightning_read(dcp_folder *d, const open_request *req, uint32_t file_id,
                                 fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (file_id == CAT_NONE)
        return FSDPCK_OK;
    const fsdpck_status st = read_keys(d, file_id, &what);
    if (st != FSDPCK_BADINPUT && st != FSDPCK_UNSUPPORTED) {
        if (err != NULL && st != FSDPCK_OK)
            *err = what;
        return st;
    }
    error_path_in(&what, d->dir.path, LIGHTNING_FILE);
    if (open_request_report(req, st, &what))
        return FSDPCK_OK;
    log_warn(&d->log, FSDPCK_FINDING_SIDE_UNREAD,
             "copy the file again, or use an earlier checkpoint: Lightning requires it",
             "'" LIGHTNING_FILE "' cannot be read, so its keys are left out: %s", what.message);
    return FSDPCK_OK;
}
