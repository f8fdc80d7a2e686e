#include "pt_state.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

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
        value_new_symbol(&s->t.cat.pool, pt_state_str(s, module), pt_state_str(s, name), &v, NULL),
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

static fsdpck_status put_late(void *ctx, const late_bytes *late, fsdpck_error *err)
{
    (void)err;
    fseek(ctx, (long)late->offset_bytes, SEEK_SET);
    fwrite(late->bytes, 1, late->nbytes, ctx);
    return FSDPCK_OK;
}

fsdpck_status pt_state_write(pt_state *s, value root, const char *path, fsdpck_error *err)
{
    s->t.root = root;
    RETURN_IF(catalogue_seal(&s->t.cat, err));
    RETURN_IF(pt_writer.layout(&s->t, &(writer_options){0}, err));
    FILE *out = fopen(path, "wb");
    for (size_t i = 0; i < s->t.literals.count; i++) {
        const target_literal *l = VEC_AT(&s->t.literals, const target_literal, i);
        fseek(out, (long)l->offset_bytes, SEEK_SET);
        fwrite(s->t.text.text + l->text_at, 1, l->nbytes, out);
    }
    s->t.chunk_crc = calloc(catalogue_chunk_count(&s->t.cat) + 1, sizeof(uint32_t));
    for (uint64_t i = 0; i < catalogue_chunk_count(&s->t.cat); i++) {
        const cat_chunk *c = catalogue_chunk(&s->t.cat, i);
        if (c->place != PLACE_ROWS)
            continue;
        fseek(out, (long)c->offset_bytes, SEEK_SET);
        for (uint64_t k = 0; k < c->nbytes / 4; k++) {
            const float f = (float)k;
            fwrite(&f, 4, 1, out);
            s->t.chunk_crc[i] = crc32_update(s->t.chunk_crc[i], &f, 4);
        }
    }
    const fsdpck_status st = pt_writer.seal(&s->t, put_late, out, err);
    fclose(out);
    return st;
}

void pt_state_end(pt_state *s)
{
    target_release(&s->t);
    cr_expect_eq(s->owner.used_bytes, 0);
}
