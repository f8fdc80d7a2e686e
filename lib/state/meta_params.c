#include "state/meta_params.h"

#include <stdlib.h>
#include <string.h>

static void take_integer(meta_params *p, const char *key, const json_token *t)
{
    const struct {
        const char *key;
        uint64_t *number;
    } integers[] = {{"dim", &p->dim},
                    {"n_heads", &p->heads},
                    {"n_kv_heads", &p->kv_heads},
                    {"head_dim", &p->head_dim},
                    {"n_layers", &p->layers}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (t->is_u64 && strcmp(key, integers[i].key) == 0)
            *integers[i].number = t->u64;
}

/* The library never sets a locale, so strtod takes a point. */
static void take_number(meta_params *p, const char *key, const json_token *t)
{
    char text[48];
    double *to = strcmp(key, "norm_eps") == 0     ? &p->norm_eps
                 : strcmp(key, "rope_theta") == 0 ? &p->rope_theta
                                                  : NULL;
    if (to == NULL || t->nbytes >= sizeof text)
        return;
    memcpy(text, t->text, t->nbytes);
    text[t->nbytes] = '\0';
    const double number = strtod(text, NULL);
    *to = number > 0 ? number : 0;
}

static void take(meta_params *p, const char *key, const json_token *t)
{
    if (t->kind == JSON_NUMBER) {
        take_integer(p, key, t);
        take_number(p, key, t);
    } else if ((t->kind == JSON_TRUE || t->kind == JSON_FALSE) &&
               strcmp(key, "use_scaled_rope") == 0) {
        p->scaled_rope = t->kind;
    }
}

static fsdpck_status read_members(meta_params *p, json_reader *r, fsdpck_error *err)
{
    json_token t;
    unsigned depth = 1;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    while (depth > 0) {
        char key[32];
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END) {
            depth--;
            continue;
        }
        const size_t nbytes = t.nbytes < sizeof key ? t.nbytes : 0;
        memcpy(key, t.text, nbytes);
        key[nbytes] = '\0';
        RETURN_IF(json_next(r, &t, err));
        if (depth == 1 && t.kind == JSON_OBJECT && strcmp(key, "model") == 0) {
            depth++;
            continue;
        }
        take(p, key, &t);
        RETURN_IF(json_skip(r, &t, err));
    }
    return json_expect(r, JSON_END, &t, err);
}

fsdpck_status meta_params_read(const char *text, size_t nbytes, meta_params *p, fsdpck_error *err)
{
    json_reader r;
    *p = (meta_params){.scaled_rope = JSON_END};
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_MAP_CONFIG);
    const fsdpck_status st = read_members(p, &r, err);
    json_reader_release(&r);
    return st;
}

uint64_t meta_params_head_dim(const meta_params *p)
{
    if (p->head_dim > 0)
        return p->head_dim;
    return p->heads > 0 && p->dim % p->heads == 0 ? p->dim / p->heads : 0;
}
