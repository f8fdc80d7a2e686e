/* Finds names that people, and programs that normalise text, cannot distinguish. */
#include <string.h>

#include "base/normal.h"
#include "check/check_internal.h"

typedef struct names_walk {
    check *c;
    strtab seen; /* normal forms of the names that are not plain */
    vec owners;  /* uint32_t: the first tensor of each */
} names_walk;

static void tell(const names_walk *w, uint32_t tensor, uint32_t other)
{
    const catalogue *cat = w->c->r->cat;
    const uint32_t name = catalogue_tensor(cat, other)->name;
    const char *text = catalogue_name(cat, name);
    char shown[200];
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, KEY_CONFUSABLE,
              ("two tensors have different names that look the same"), (path, w->c->r->path),
              (tensor, catalogue_name(cat, catalogue_tensor(cat, tensor)->name)),
              (found, "'%s'", escape_text(shown, sizeof shown, text, strlen(text))));
    findings_report(w->c->found, &what);
}

static fsdpck_status add_name(names_walk *w, uint32_t tensor, text_buf *form, fsdpck_error *err)
{
    const catalogue *cat = w->c->r->cat;
    const uint32_t name = catalogue_tensor(cat, tensor)->name;
    const size_t nbytes = catalogue_name_nbytes(cat, name);
    const size_t before = strtab_count(&w->seen);
    uint32_t id;
    if (normal_is_ascii(catalogue_name(cat, name), nbytes))
        return FSDPCK_OK;
    RETURN_IF(normal_text(catalogue_name(cat, name), nbytes, form, err));
    const char *text = form->nbytes > 0 ? form->text : "";
    const uint32_t plain =
        normal_is_ascii(text, form->nbytes) ? catalogue_find(cat, text, form->nbytes) : CAT_NONE;
    if (plain != CAT_NONE) {
        tell(w, tensor, plain);
        return FSDPCK_OK;
    }
    RETURN_IF(strtab_intern(&w->seen, text, form->nbytes, &id, err));
    if (id < before) {
        tell(w, tensor, *VEC_AT(&w->owners, const uint32_t, id));
        return FSDPCK_OK;
    }
    return vec_add(&w->owners, &(uint32_t){tensor}, err);
}

fsdpck_status check_confusable(check *c, fsdpck_error *err)
{
    names_walk w = {.c = c, .owners = VEC_OF(uint32_t, c->r->metadata)};
    text_buf form = {0};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&w.seen, c->r->metadata);
    for (size_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(c->r->cat); i++)
        st = add_name(&w, (uint32_t)i, &form, err);
    text_release(&form);
    vec_release(&w.owners);
    strtab_release(&w.seen);
    return st;
}
