#include "state/model_ties.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Of a row: a text_config that ties is as good as the member at the top. */
enum { ALONE, FORWARDS };

typedef struct tie_default {
    const char *type;
    model_ties ties;
    int nested;
    const char *module;
} tie_default;

static const tie_default defaults[] = {
#define TIES(type, ties, nested, module) {type, MODEL_TIES_##ties, nested, module},
#include "state/model_ties.def"
#undef TIES
};

static const tie_default *find_default(const char *type)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (strcmp(type, defaults[i].type) == 0)
            return &defaults[i];
    return NULL;
}

const char *model_ties_module(const char *type)
{
    const tie_default *d = find_default(type);
    return d == NULL || d->module[0] == '\0' ? NULL : d->module;
}

void model_ties_take(model_ties_config *c, bool nested, const char *key, size_t nbytes,
                     const json_token *t)
{
    model_ties_members *m = nested ? &c->nested : &c->top;
    if (text_is(key, nbytes, "tie_word_embeddings"))
        m->ties = t->kind == JSON_TRUE                            ? MODEL_TIES_YES
                  : t->kind == JSON_FALSE || t->kind == JSON_NULL ? MODEL_TIES_NO
                                                                  : MODEL_TIES_UNKNOWN;
    if (text_is(key, nbytes, "model_type") && t->kind == JSON_STRING &&
        t->nbytes < sizeof m->type && memchr(t->text, '\0', t->nbytes) == NULL)
        snprintf(m->type, sizeof m->type, "%.*s", (int)t->nbytes, t->text);
}

/* A nested model of an unknown type that states nothing is not judged. */
static model_ties forwarded(const model_ties_config *c)
{
    const tie_default *d = find_default(c->nested.type);
    if (!c->has_nested)
        return MODEL_TIES_NO;
    return c->nested.ties != MODEL_TIES_UNKNOWN || d == NULL ? c->nested.ties : d->ties;
}

model_ties model_ties_of(const model_ties_config *c, bool *by_default)
{
    const tie_default *d = find_default(c->top.type);
    *by_default = false;
    if (d == NULL)
        return c->top.ties != MODEL_TIES_UNKNOWN ? c->top.ties : c->nested.ties;
    const model_ties own = c->top.ties != MODEL_TIES_UNKNOWN ? c->top.ties : d->ties;
    const model_ties ties = d->nested == FORWARDS && own == MODEL_TIES_NO ? forwarded(c) : own;
    *by_default = c->top.ties == MODEL_TIES_UNKNOWN &&
                  (d->nested == ALONE || c->nested.ties == MODEL_TIES_UNKNOWN);
    return ties;
}

static fsdpck_status read_members(json_reader *r, model_ties_config *c)
{
    json_token t;
    bool nested = false;
    for (;;) {
        RETURN_IF(json_next(r, &t, NULL));
        if (t.kind == JSON_OBJECT_END && !nested)
            return FSDPCK_OK;
        if (t.kind == JSON_OBJECT_END) {
            nested = false;
            continue;
        }
        char key[32];
        const size_t nbytes = t.nbytes < sizeof key ? t.nbytes : 0;
        memcpy(key, t.text, nbytes);
        RETURN_IF(json_next(r, &t, NULL));
        if (!nested && text_is(key, nbytes, "text_config") && t.kind == JSON_OBJECT) {
            nested = c->has_nested = true;
            continue;
        }
        model_ties_take(c, nested, key, nbytes, &t);
        RETURN_IF(json_skip(r, &t, NULL));
    }
}

model_ties model_ties_read(const char *text, size_t nbytes)
{
    model_ties_config c = {0};
    json_reader r;
    json_token t;
    bool by_default;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    r.takes_python_numbers = true;
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, NULL);
    if (st == FSDPCK_OK)
        st = read_members(&r, &c);
    json_reader_release(&r);
    return st == FSDPCK_OK ? model_ties_of(&c, &by_default) : MODEL_TIES_UNKNOWN;
}
