/* Classes of dicts that differ between ranks, such as OrderedDict and dict. The merged state has the
 * class of the lowest rank. */
#include <inttypes.h>

#include "formats/pt/ranks_frame.h"

#define CLASS_DIFFERS UINT32_MAX

static const char plain_dict[] = "dict";

static fsdpck_status find_class(ranks_parse *p, value v, uint32_t *class, fsdpck_error *err)
{
    strtab *classes = &p->s->frame.classes;
    const value_pool *pool = &p->scratch.pool;
    const value_call *call = value_call_of(pool, v);
    text_buf text = {.limit_bytes = 600};
    if (call == NULL || value_is_symbol_named(pool, call->callee, plain_dict))
        return strtab_intern(classes, plain_dict, sizeof plain_dict - 1, class, err);
    value_print(pool, call->callee, 500, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(classes, text.text == NULL ? "" : text.text, text.nbytes, class, err);
    text_release(&text);
    return st;
}

/* `name` is that of the dict at the place in all files. */
static fsdpck_status note_difference(ranks_parse *p, const char *name, uint32_t known,
                                     uint32_t found, fsdpck_error *err)
{
    ranks_frame *f = &p->s->frame;
    const rank_copies_rule *rule = &p->s->req->copies;
    const char *shown = name[0] == '\0' ? "(the whole state)" : name;
    const rank_copies copies = {.name = shown, .is_object = true, .differ = true};
    const rank_copies_use use = rule->use(rule->ctx, &copies);
    if (use == RANK_COPIES_REFUSE)
        return FAIL_WITH(
            err, BADINPUT, RANK_DIFFER, ("class of a dict differs between ranks"), (tensor, shown),
            (expected, "%s", strtab_text(&f->classes, known)),
            (found, "%s on rank %u", strtab_text(&f->classes, found), (unsigned)p->file->rank));
    if (use != RANK_COPIES_FIRST && f->class_count++ == 0)
        text_printf(&f->first_class, "first '%.200s': %s, but %s on rank %u", shown,
                    strtab_text(&f->classes, known), strtab_text(&f->classes, found),
                    (unsigned)p->file->rank);
    return FSDPCK_OK;
}

fsdpck_status ranks_note_dict(void *ctx, const char *name, size_t nbytes, value v,
                              fsdpck_error *err)
{
    ranks_parse *p = ctx;
    ranks_frame *f = &p->s->frame;
    const ranks_family *family = VEC_AT(&p->s->list->families, const ranks_family, p->file->family);
    text_buf text = {.limit_bytes = UINT32_MAX};
    uint32_t class, dict;
    fsdpck_status st;
    const size_t before = strtab_count(&f->dicts);
    GOTO_IF(find_class(p, v, &class, err), out);
    if (family->key[0] != '\0')
        text_printf(&text, "%s%s", family->key, nbytes > 0 ? "." : "");
    text_append(&text, name, nbytes);
    text_append(&text, "", 0);
    GOTO_IF(text_check(&text, err), out);
    GOTO_IF(strtab_intern(&f->dicts, text.text, text.nbytes, &dict, err), out);
    if (dict == before) {
        st = vec_add(&f->dict_classes, &class, err);
        goto out;
    }
    uint32_t *known = VEC_AT(&f->dict_classes, uint32_t, dict);
    if (*known == class || *known == CLASS_DIFFERS)
        goto out;
    st = note_difference(p, text.text, *known, class, err);
    *known = CLASS_DIFFERS; /* counted once */
out:
    text_release(&text);
    return st;
}

void ranks_report_classes(const ranks_state *s)
{
    const ranks_frame *f = &s->frame;
    if (f->class_count > 0)
        log_warn(&s->req->log, FSDPCK_FINDING_RANK_DIFFER,
                 "accept the classes of the lowest rank, which the output has, with --per-rank "
                 "first",
                 "classes of dicts differ between ranks: %" PRIu64 " dict%s, %s", f->class_count,
                 f->class_count == 1 ? "" : "s",
                 f->first_class.text == NULL ? "" : f->first_class.text);
}
