/* tp_plan.c: the TP plan's JSON; its rules go to layout.rules in the order of the file. */
#include <string.h>

#include "base/json.h"
#include "layout/layout.h"

typedef struct plan_reader {
    layout *l;
    json_reader json;
    strtab keys; /* to detect duplicate patterns */
} plan_reader;

static fsdpck_status bad_value(plan_reader *r, const char *glob, const json_token *t,
                               fsdpck_error *err)
{
    (void)r;
    const fsdpck_status st = FAIL_WITH(
        err, USAGE, NONE, ("cannot read the TP plan at '%s'", glob), (offset, t->offset_bytes),
        (expected,
         "\"colwise\", \"rowwise\", \"replicate\", \"Shard(DIM)\", \"ep\" or \"ep:Shard(DIM)\""));
    if (t->kind == JSON_STRING)
        error_found(err, "\"%.*s\"", (int)(t->nbytes < 100 ? t->nbytes : 100), t->text);
    else
        error_found(err, "no string");
    error_next(err, "write it as {\"*.wq\": \"colwise\", \"*.wo\": \"rowwise\"}");
    return st;
}

/* "Shard(12)" */
static bool take_shard(const char *text, size_t nbytes, unsigned *dim)
{
    static const char head[] = "Shard(";
    const size_t head_nbytes = sizeof head - 1;
    if (nbytes < head_nbytes + 2 || nbytes > head_nbytes + 3 || text[nbytes - 1] != ')' ||
        memcmp(text, head, head_nbytes) != 0)
        return false;
    *dim = 0;
    for (size_t i = head_nbytes; i + 1 < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *dim = *dim * 10 + (unsigned)(text[i] - '0');
    }
    return *dim < NDIM_MAX;
}

static bool value_rule(const char *text, size_t nbytes, layout_rule_kind *kind, unsigned *dim)
{
    static const struct {
        const char *word;
        layout_rule_kind kind;
    } words[] = {{"colwise", LAYOUT_TP_COLWISE},
                 {"rowwise", LAYOUT_TP_ROWWISE},
                 {"replicate", LAYOUT_TP_REPLICATE},
                 {"ep", LAYOUT_EP_SHARD}};
    *dim = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].word) == nbytes && memcmp(words[i].word, text, nbytes) == 0) {
            *kind = words[i].kind;
            return true;
        }
    }
    if (nbytes > 3 && memcmp(text, "ep:", 3) == 0) {
        *kind = LAYOUT_EP_SHARD;
        return take_shard(text + 3, nbytes - 3, dim);
    }
    *kind = LAYOUT_TP_SHARD;
    return take_shard(text, nbytes, dim);
}

static fsdpck_status add_value(plan_reader *r, const char *glob, const json_token *t,
                               fsdpck_error *err)
{
    layout_rule_kind kind;
    unsigned dim;
    if (t->kind != JSON_STRING || !value_rule(t->text, t->nbytes, &kind, &dim))
        return bad_value(r, glob, t, err);
    return layout_add_rule(r->l, kind, glob, dim, err);
}

static fsdpck_status read_member(plan_reader *r, const json_token *key, fsdpck_error *err)
{
    const size_t known = strtab_count(&r->keys);
    uint32_t id;
    json_token t;
    if (key->nbytes == 0 || memchr(key->text, '\0', key->nbytes) != NULL)
        return FAIL_WITH(err, USAGE, NONE,
                         ("TP plan has a pattern that is empty or contains a null character"),
                         (offset, key->offset_bytes));
    RETURN_IF(strtab_intern(&r->keys, key->text, key->nbytes, &id, err));
    const char *glob = strtab_text(&r->keys, id);
    if (id < known)
        return FAIL_WITH(err, USAGE, NONE, ("TP plan has '%s' twice", glob),
                         (offset, key->offset_bytes));
    RETURN_IF(json_next(&r->json, &t, err));
    if (t.kind != JSON_ARRAY)
        return add_value(r, glob, &t, err);
    for (;;) {
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        RETURN_IF(add_value(r, glob, &t, err));
    }
}

static fsdpck_status read_plan(plan_reader *r, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(&r->json, &t, err));
    if (t.kind != JSON_OBJECT)
        return FAIL_WITH(err, USAGE, NONE, ("TP plan is not a JSON object"),
                         (next, "write it as {\"*.wq\": \"colwise\", \"*.wo\": \"rowwise\"}"));
    for (;;) {
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(&r->json, JSON_END, &t, err);
        RETURN_IF(read_member(r, &t, err));
    }
}

fsdpck_status layout_read_tp_plan(layout *l, const char *json, size_t nbytes, fsdpck_error *err)
{
    plan_reader r = {.l = l};
    json_reader_init(&r.json, json, nbytes, FSDPCK_FINDING_NONE);
    strtab_init(&r.keys, l->owner);
    fsdpck_status st = read_plan(&r, err);
    if (st == FSDPCK_BADINPUT) { /* the user's own file: an error in it is an error of the
                                  * request */
        st = FSDPCK_USAGE;
        if (err != NULL)
            err->status = st;
    }
    json_reader_release(&r.json);
    strtab_release(&r.keys);
    if (st != FSDPCK_OK && l->tp_plan_path != NULL)
        error_path(err, l->tp_plan_path);
    l->has_tp_plan = l->has_tp_plan || st == FSDPCK_OK;
    return st;
}
