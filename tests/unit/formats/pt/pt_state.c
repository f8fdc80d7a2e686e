#include "pt_state.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/target_write.h"

void pt_state_begin(pt_state *s)
{
    budget_init(&s->owner, 64 << 20, "target", NULL);
    target_init(&s->t, &s->owner);
}

value pt_state_tensor(pt_state *s, const char *name, uint64_t nelems)
{
    static const uint64_t zero[1];
    const cat_chunk proto = {.rank = UINT16_MAX};
    uint32_t index;

    cr_assert_eq(catalogue_add_tensor(&s->t.cat, name, strlen(name), DTYPE_FLOAT32, 1, &nelems,
                                      &index, NULL),
                 FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(&s->t.cat, index, zero, &nelems, &proto, NULL), FSDPCK_OK);
    uint32_t *from = vec_push(&s->t.from, NULL);
    *from = index;
    return value_of_tensor(index);
}

value pt_state_str(pt_state *s, const char *text)
{
    value v;
    cr_assert_eq(value_new_str(&s->t.cat.pool, text, strlen(text), &v, NULL), FSDPCK_OK);
    return v;
}

value pt_state_dict(pt_state *s)
{
    value v;
    cr_assert_eq(value_new_dict(&s->t.cat.pool, &v, NULL), FSDPCK_OK);
    return v;
}

void pt_state_put(pt_state *s, value dict, const char *key, value item)
{
    cr_assert_eq(value_dict_put(&s->t.cat.pool, dict, pt_state_str(s, key), item, NULL), FSDPCK_OK);
}

value pt_state_tuple(pt_state *s, const value *items, size_t count)
{
    value v;
    cr_assert_eq(value_new_from(&s->t.cat.pool, VALUE_TUPLE, items, count, &v, NULL), FSDPCK_OK);
    return v;
}

value pt_state_symbol(pt_state *s, const char *module, const char *name)
{
    value v;
    cr_assert_eq(
        value_new_symbol_of(&s->t.cat.pool, module, strlen(module), name, strlen(name), &v, NULL),
        FSDPCK_OK);
    return v;
}

value pt_state_call(pt_state *s, const char *module, const char *name, const value *args,
                    size_t count)
{
    const value_call call = {.callee = pt_state_symbol(s, module, name),
                             .args = pt_state_tuple(s, args, count),
                             .how = CALL_REDUCE};
    value v;
    cr_assert_eq(value_new_call(&s->t.cat.pool, &call, &v, NULL), FSDPCK_OK);
    return v;
}

fsdpck_status pt_state_write(pt_state *s, value root, const char *path, fsdpck_error *err)
{
    s->t.root = root;
    RETURN_IF(catalogue_seal(&s->t.cat, err));
    RETURN_IF(pt_writer.layout(&s->t, &(writer_options){0}, err));
    return target_write(&s->t, &pt_writer, path, target_fill_index, NULL, err);
}

void pt_state_end(pt_state *s)
{
    target_release(&s->t);
    cr_expect_eq(s->owner.used_bytes, 0);
}
