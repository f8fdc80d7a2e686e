/* "optimizers" of a description: param_groups and their parameters. */
#include <string.h>

#include "model/model_json.h"

static fsdpck_status refuse_shape(const json_token *t, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("'optimizers' is malformed"),
                     (offset, t->offset_bytes),
                     (expected, "{\"optim\": [[names of the first param_group], ...], ...}"),
                     (found, "something else"));
}

/* In `seen`: names that a group of this optimizer lists already. */
static fsdpck_status read_group(model_reader *r, strtab *seen, fsdpck_error *err)
{
    optim_groups *g = &r->m->optimizers;
    RETURN_IF(optim_groups_open(g, err));
    for (;;) {
        json_token t;
        uint32_t id;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_STRING)
            return refuse_shape(&t, err);
        if (t.nbytes == 0)
            return FAIL_WITH(err, BADINPUT, MODEL_NAME, ("'optimizers' has an empty name"),
                             (offset, t.offset_bytes));
        const size_t before = strtab_count(seen);
        RETURN_IF(strtab_intern(seen, t.text, t.nbytes, &id, err));
        if (id < before)
            return FAIL_WITH(err, BADINPUT, MODEL_NAME_DUP,
                             ("'optimizers' lists a parameter twice"), (offset, t.offset_bytes),
                             (tensor, strtab_text(seen, id)));
        RETURN_IF(optim_groups_put(g, t.text, t.nbytes, err));
    }
}

static fsdpck_status read_groups(model_reader *r, fsdpck_error *err)
{
    strtab seen;
    fsdpck_status st;
    strtab_init(&seen, r->m->owner);
    for (;;) {
        json_token t;
        GOTO_IF(json_next(&r->json, &t, err), out);
        if (t.kind == JSON_ARRAY_END)
            break;
        if (t.kind != JSON_ARRAY)
            GOTO_IF(refuse_shape(&t, err), out);
        GOTO_IF(read_group(r, &seen, err), out);
    }
out:
    strtab_release(&seen);
    return st;
}

fsdpck_status model_read_optimizers(model_reader *r, fsdpck_error *err)
{
    optim_groups *g = &r->m->optimizers;
    for (;;) {
        json_token t;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        if (t.kind != JSON_KEY)
            return refuse_shape(&t, err);
        for (size_t i = 0; i < g->lists.count; i++) {
            const uint32_t name = VEC_AT(&g->lists, const optim_list, i)->name;
            if (strtab_is(&g->names, name, t.text, t.nbytes))
                return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("'optimizers' has a key twice"),
                                 (offset, t.offset_bytes));
        }
        if (g->lists.count == OPTIM_LISTS_MAX)
            return FAIL(err, LIMIT, LIMIT_COUNT, "more than %u 'optimizers'", OPTIM_LISTS_MAX);
        RETURN_IF(optim_groups_add(g, t.text, t.nbytes, err));
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind != JSON_ARRAY)
            return refuse_shape(&t, err);
        RETURN_IF(read_groups(r, err));
    }
}

/* Whether the text is the first name of a parameter of the model, or a unit's flat parameter. */
static bool is_member(const model *m, const char *text, size_t nbytes)
{
    static const char *const flat_names[] = {"_flat_param", "flat_param"};
    const uint32_t found = model_find_param(m, text, nbytes);
    if (found != MODEL_NONE)
        return model_param_at(m, found)->same_as == MODEL_NONE;
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(flat_names[i]);
        if (nbytes < n || memcmp(text + nbytes - n, flat_names[i], n) != 0)
            continue;
        if (nbytes == n)
            return true;
        return text[nbytes - n - 1] == '.' &&
               model_find_module(m, text, nbytes - n - 1) != MODEL_NONE;
    }
    return false;
}

fsdpck_status model_check_optimizers(const model *m, fsdpck_error *err)
{
    const optim_groups *g = &m->optimizers;
    for (size_t i = 0; !m->lists_units && i < g->members.count; i++) {
        const uint32_t id = *VEC_AT(&g->members, const uint32_t, i);
        if (is_member(m, strtab_text(&g->names, id), strtab_nbytes(&g->names, id)))
            continue;
        return FAIL_WITH(err, BADINPUT, MODEL_NAME,
                         ("'optimizers' contains a name that is not a parameter"),
                         (tensor, strtab_text(&g->names, id)),
                         (expected, "the first name of a parameter, or a module's '_flat_param'"));
    }
    return FSDPCK_OK;
}
