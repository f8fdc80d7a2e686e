/* average_match.c: which tensors of the inputs of an average belong together, and whether all else is
 * equal. The formats of the inputs may give the model an outer key, and wrappers a prefix; names are
 * compared without both. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "open/average_checks.h"
#include "select/select_rules.h"

/* Differences that are logged. */
#define DIFFERENCES_SHOWN 1000u

typedef struct match_state {
    average_match *m;
    select_rules rules;
    text_buf name, outer;
    text_buf first; /* the difference that the error names */
    strtab names;   /* of the template's tensors */
    vec tensor_of;  /* uint32_t: by name */
    uint64_t differences;
} match_state;

static const fsdpck_checkpoint *template_of(const match_state *s)
{
    return s->m->inputs[s->m->shape];
}

/* One line for each difference, the first also for the error. */
static void PRINTF_LIKE(2, 3) add_difference(match_state *s, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (s->differences++ == 0)
        text_puts(&s->first, line);
    if (s->differences <= DIFFERENCES_SHOWN)
        log_write(&template_of(s)->ctx->log, LOG_NOTE, "differs: %s", line);
}

/* Patterns of --keys and --exclude may include the outer key that the output keeps in some formats, which is that
 * of the template, or omit it. */
static fsdpck_status match_name(match_state *s, checkpoint_part part, bool *wanted,
                                fsdpck_error *err)
{
    const checkpoint_parts *parts = &template_of(s)->parts;
    const char *name = s->name.text + 1;
    const size_t nbytes = s->name.nbytes - 1;
    if (checkpoint_parts_outer_nbytes(parts, part) == 0) {
        *wanted = select_rules_match(&s->rules, name);
        return FSDPCK_OK;
    }
    s->outer.nbytes = 0;
    text_printf(&s->outer, "%s.", part == PART_MODEL ? parts->model_key : parts->optimizer_key);
    text_append(&s->outer, name, nbytes);
    text_append(&s->outer, "", 0);
    RETURN_IF(text_check(&s->outer, err));
    *wanted = select_rules_match_either(&s->rules, name, s->outer.text);
    return FSDPCK_OK;
}

/* The name under which inputs are compared: s->name. *wanted: the request selects it. The name begins with
 * the number of the part. */
static fsdpck_status name_item(match_state *s, const fsdpck_checkpoint *c, checkpoint_part part,
                               uint32_t name, bool *wanted, fsdpck_error *err)
{
    s->name.nbytes = 0;
    text_printf(&s->name, "%d", (int)part);
    checkpoint_parts_append_name(&c->parts, part, true, true, catalogue_name(&c->cat, name),
                                 catalogue_name_nbytes(&c->cat, name), &s->name);
    text_append(&s->name, "", 0);
    RETURN_IF(text_check(&s->name, err));
    *wanted = s->m->part == PART_ALL || s->m->part == part;
    return *wanted ? match_name(s, part, wanted, err) : FSDPCK_OK;
}

static fsdpck_status name_tensor(match_state *s, const fsdpck_checkpoint *c, uint32_t tensor,
                                 bool *wanted, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    const bool is_storage = (t->flags & CAT_TENSOR_STORAGE) != 0;
    *wanted = false;
    if (is_storage || tensor >= c->parts.tensor_count)
        return FSDPCK_OK;
    return name_item(s, c, (checkpoint_part)c->parts.tensor_part[tensor], t->name, wanted, err);
}

/* --- tensors --- */

static fsdpck_status list_template(match_state *s, fsdpck_error *err)
{
    const fsdpck_checkpoint *c = template_of(s);
    const size_t count = catalogue_tensor_count(&c->cat);
    uint32_t *to = count == 0 ? NULL : vec_push_n(&s->m->tensors, count * s->m->count, err);
    if (count > 0 && to == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        bool wanted;
        uint32_t id;
        for (size_t k = 0; k < s->m->count; k++)
            to[i * s->m->count + k] = CAT_NONE;
        RETURN_IF(name_tensor(s, c, i, &wanted, err));
        if (!wanted)
            continue;
        RETURN_IF(strtab_intern(&s->names, s->name.text, s->name.nbytes, &id, err));
        if (id != s->tensor_of.count)
            return FAIL_WITH(err, BADINPUT, KEY_DUP,
                             ("two tensors have the same name without prefixes"), (path, c->path),
                             (tensor, s->name.text + 1));
        RETURN_IF(vec_add(&s->tensor_of, &i, err));
        to[i * s->m->count + s->m->shape] = i;
    }
    return FSDPCK_OK;
}

static void print_shape(const catalogue *c, uint32_t tensor, text_buf *out)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    text_printf(out, "%s [", dtype_get((dtype)t->dtype)->name);
    for (unsigned d = 0; d < t->ndim; d++)
        text_printf(out, "%s%" PRIu64, d == 0 ? "" : ", ", catalogue_shape(c, tensor)[d]);
    text_puts(out, "]");
}

static fsdpck_status compare_shapes(match_state *s, const fsdpck_checkpoint *c, uint32_t mine,
                                    uint32_t theirs, fsdpck_error *err)
{
    const catalogue *a = &template_of(s)->cat, *b = &c->cat;
    const cat_tensor *t = catalogue_tensor(a, mine), *u = catalogue_tensor(b, theirs);
    text_buf shapes[2] = {{0}, {0}};
    if (t->dtype == u->dtype &&
        shape_equal(catalogue_shape(a, mine), t->ndim, catalogue_shape(b, theirs), u->ndim))
        return FSDPCK_OK;
    print_shape(a, mine, &shapes[0]);
    print_shape(b, theirs, &shapes[1]);
    fsdpck_status st = text_check(&shapes[0], err);
    if (st == FSDPCK_OK)
        st = text_check(&shapes[1], err);
    if (st == FSDPCK_OK)
        add_difference(s, "'%s' is %s in '%s' and %s in '%s'", s->name.text + 1, shapes[0].text,
                       template_of(s)->path, shapes[1].text, c->path);
    text_release(&shapes[0]);
    text_release(&shapes[1]);
    return st;
}

static fsdpck_status match_input(match_state *s, size_t input, fsdpck_error *err)
{
    const fsdpck_checkpoint *c = s->m->inputs[input];
    for (uint32_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        bool wanted;
        RETURN_IF(name_tensor(s, c, i, &wanted, err));
        if (!wanted)
            continue;
        const uint32_t id = strtab_find(&s->names, s->name.text, s->name.nbytes);
        if (id == STRTAB_NONE) {
            add_difference(s, "'%s' is in '%s', but not in '%s'", s->name.text + 1, c->path,
                           template_of(s)->path);
            continue;
        }
        const uint32_t mine = *VEC_AT(&s->tensor_of, const uint32_t, id);
        RETURN_IF(compare_shapes(s, c, mine, i, err));
        *VEC_AT(&s->m->tensors, uint32_t, (uint64_t)mine * s->m->count + input) = i;
    }
    for (uint32_t id = 0; id < s->tensor_of.count; id++) {
        const uint64_t at = *VEC_AT(&s->tensor_of, const uint32_t, id);
        if (*VEC_AT(&s->m->tensors, const uint32_t, at * s->m->count + input) == CAT_NONE)
            add_difference(s, "'%s' is in '%s', but not in '%s'", strtab_text(&s->names, id) + 1,
                           template_of(s)->path, c->path);
    }
    return FSDPCK_OK;
}

/* --- objects --- */

/* Numbers for the tensors of an input that are the same in all inputs. */
static fsdpck_status number_tensors(match_state *s, size_t input, uint64_t **numbers,
                                    fsdpck_error *err)
{
    const uint64_t count = catalogue_tensor_count(&s->m->inputs[input]->cat);
    const uint64_t of_template = s->m->tensors.count / s->m->count;
    *numbers = calloc(count + 1, sizeof **numbers);
    if (*numbers == NULL)
        return error_set_nomem(err, count * sizeof **numbers);
    for (uint64_t i = 0; i < of_template; i++) {
        const uint32_t tensor = *VEC_AT(&s->m->tensors, const uint32_t, i * s->m->count + input);
        if (tensor != CAT_NONE)
            (*numbers)[tensor] = i + 1;
    }
    return FSDPCK_OK;
}

/* Of a dataclass, for example: such a tensor has no name under which it could be averaged. */
static fsdpck_status find_unnamed(void *ctx, value v, fsdpck_error *err)
{
    bool *found = ctx;
    (void)err;
    *found = *found || (value_kind_of(v) == VALUE_TENSOR && value_tensor_index(v) == 0);
    return FSDPCK_OK;
}

/* *differs: how, for the message; NULL: not at all. */
static fsdpck_status compare_object(match_state *s, size_t input, uint32_t mine, uint32_t theirs,
                                    uint64_t *const numbers[2], const char **differs,
                                    fsdpck_error *err)
{
    bool equal = false, has_unnamed = false;
    const fsdpck_checkpoint *c = s->m->inputs[input], *own = template_of(s);
    value_pool pool;
    value both[2];
    value_pool_init(&pool, (budget *)&own->metadata);
    fsdpck_status st = value_copy(&own->cat.pool, catalogue_object(&own->cat, mine)->content, &pool,
                                  numbers[0], &both[0], err);
    if (st == FSDPCK_OK)
        st = value_copy(&c->cat.pool, catalogue_object(&c->cat, theirs)->content, &pool, numbers[1],
                        &both[1], err);
    if (st == FSDPCK_OK && (c->format->objects_as_json || own->format->objects_as_json))
        st = value_equal_in_json(&pool, both[0], &pool, both[1], &equal, err);
    else if (st == FSDPCK_OK)
        st = value_equal(&pool, both[0], &pool, both[1], &equal, err);
    if (st == FSDPCK_OK)
        st = value_walk(&pool, both[0], find_unnamed, &has_unnamed, err);
    *differs = !equal        ? "differs between"
               : has_unnamed ? "has tensors without names, which are not averaged, in"
                             : NULL;
    value_pool_release(&pool);
    return st;
}

/* The names of wanted objects of an input; several ranks may have one each. */
static fsdpck_status list_objects(match_state *s, size_t input, strtab *names, vec *object_of,
                                  fsdpck_error *err)
{
    fsdpck_checkpoint *c = s->m->inputs[input];
    for (uint32_t i = 0; i < c->parts.object_count; i++) {
        const cat_object *o = catalogue_object(&c->cat, i);
        bool wanted;
        uint32_t id;
        RETURN_IF(name_item(s, c, (checkpoint_part)c->parts.object_part[i], o->name, &wanted, err));
        if (!wanted)
            continue;
        if (input == s->m->shape)
            s->m->takes_objects[i] = 1;
        if (!o->loaded)
            RETURN_IF(checkpoint_load_object(c, i, err));
        text_printf(&s->name, "\n%u", (unsigned)catalogue_object(&c->cat, i)->rank);
        RETURN_IF(text_check(&s->name, err));
        RETURN_IF(strtab_intern(names, s->name.text, s->name.nbytes, &id, err));
        if (id == object_of->count)
            RETURN_IF(vec_add(object_of, &i, err));
    }
    return FSDPCK_OK;
}

static void object_differs(match_state *s, size_t input, const char *name, size_t nbytes,
                           const char *how)
{
    const char *end = memchr(name, '\n', nbytes);
    add_difference(s, "object '%.*s' %s '%s' and '%s'",
                   (int)(end == NULL ? nbytes : (size_t)(end - name)) - 1, name + 1, how,
                   template_of(s)->path, s->m->inputs[input]->path);
}

/* Whether an object has the names of parameters that the state has by number: "param_groups.0.param_names", beside
 * "param_groups.0.params" of numbers. */
static fsdpck_status names_numbers(match_state *s, const strtab *objects, const vec *object_of,
                                   const char *name, size_t nbytes, bool *names, fsdpck_error *err)
{
    static const char key[] = ".param_names";
    const catalogue *cat = &template_of(s)->cat;
    const char *end = memchr(name, '\n', nbytes);
    const size_t length = end == NULL ? nbytes : (size_t)(end - name);
    *names = false;
    if (!text_ends_with(name, length, key))
        return FSDPCK_OK;
    s->name.nbytes = 0;
    text_printf(&s->name, "%.*s.params%.*s", (int)(length - strlen(key)), name,
                (int)(nbytes - length), name + length);
    RETURN_IF(text_check(&s->name, err));
    const uint32_t k = strtab_find(objects, s->name.text, s->name.nbytes);
    if (k == STRTAB_NONE)
        return FSDPCK_OK;
    const value params = catalogue_object(cat, *VEC_AT(object_of, const uint32_t, k))->content;
    const value_kind kind = value_kind_of(params);
    *names = (kind == VALUE_LIST || kind == VALUE_TUPLE) && value_count(&cat->pool, params) > 0 &&
             value_kind_of(value_item(&cat->pool, params, 0)) == VALUE_INT;
    return FSDPCK_OK;
}

/* With trusts_objects, only names that the numbers of parameters stand for. */
static fsdpck_status match_objects(match_state *s, size_t input, const strtab *mine,
                                   const vec *mine_of, fsdpck_error *err)
{
    budget *owner = &s->m->inputs[input]->metadata;
    vec theirs_of = VEC_OF(uint32_t, owner);
    uint64_t *numbers[2] = {NULL, NULL};
    strtab theirs;
    strtab_init(&theirs, owner);
    fsdpck_status st = list_objects(s, input, &theirs, &theirs_of, err);
    if (st == FSDPCK_OK)
        st = number_tensors(s, s->m->shape, &numbers[0], err);
    if (st == FSDPCK_OK)
        st = number_tensors(s, input, &numbers[1], err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(mine); i++) {
        const char *name = strtab_text(mine, i);
        const size_t nbytes = strtab_nbytes(mine, i);
        const uint32_t k = strtab_find(&theirs, name, nbytes);
        const char *differs = "is in only one of";
        bool is_compared = true;
        if (s->m->trusts_objects)
            st = names_numbers(s, mine, mine_of, name, nbytes, &is_compared, err);
        if (st != FSDPCK_OK || !is_compared || (s->m->trusts_objects && k == STRTAB_NONE))
            continue;
        if (k != STRTAB_NONE)
            st = compare_object(s, input, *VEC_AT(mine_of, const uint32_t, i),
                                *VEC_AT(&theirs_of, const uint32_t, k), numbers, &differs, err);
        if (st == FSDPCK_OK && differs != NULL)
            object_differs(s, input, name, nbytes, differs);
    }
    for (uint32_t i = 0; st == FSDPCK_OK && !s->m->trusts_objects && i < strtab_count(&theirs); i++)
        if (strtab_find(mine, strtab_text(&theirs, i), strtab_nbytes(&theirs, i)) == STRTAB_NONE)
            object_differs(s, input, strtab_text(&theirs, i), strtab_nbytes(&theirs, i),
                           "is in only one of");
    free(numbers[0]);
    free(numbers[1]);
    strtab_release(&theirs);
    vec_release(&theirs_of);
    return st;
}

static fsdpck_status match_all_objects(match_state *s, fsdpck_error *err)
{
    budget *owner = &s->m->inputs[s->m->shape]->metadata;
    vec object_of = VEC_OF(uint32_t, owner);
    strtab names;
    strtab_init(&names, owner);
    fsdpck_status st = list_objects(s, s->m->shape, &names, &object_of, err);
    for (size_t i = 0; st == FSDPCK_OK && i < s->m->count; i++)
        if (i != s->m->shape)
            st = match_objects(s, i, &names, &object_of, err);
    strtab_release(&names);
    vec_release(&object_of);
    return st;
}

/* --- all --- */

static fsdpck_status fail_different(const match_state *s, fsdpck_error *err)
{
    RETURN_IF(text_check(&s->first, err));
    return FAIL_WITH(err, BADINPUT, AVERAGE_DIFFER,
                     ("the inputs have %" PRIu64 " difference%s: %s", s->differences,
                      s->differences == 1 ? "" : "s", s->first.text),
                     (expected, "the same names, shapes, dtypes and objects in all inputs"),
                     (next, "%s",
                      s->m->trusts_objects
                          ? "omit tensors with --exclude; average optimizer state by the names of "
                            "its parameters: --optim-keys name"
                          : "omit tensors with --exclude; for objects name the input to take them "
                            "from: --objects-from N"));
}

static fsdpck_status match_all(match_state *s, fsdpck_error *err)
{
    RETURN_IF(list_template(s, err));
    for (size_t i = 0; i < s->m->count; i++)
        if (i != s->m->shape)
            RETURN_IF(match_input(s, i, err));
    RETURN_IF(match_all_objects(s, err));
    RETURN_IF(select_rules_check_used(&s->rules, err));
    return s->differences > 0 ? fail_different(s, err) : FSDPCK_OK;
}

fsdpck_status average_match_find(average_match *m, fsdpck_error *err)
{
    match_state s = {.m = m};
    s.tensor_of = VEC_OF(uint32_t, m->tensors.owner);
    strtab_init(&s.names, m->tensors.owner);
    fsdpck_status st = select_rules_compile(m->rules, &s.rules, err);
    if (st == FSDPCK_OK) {
        st = match_all(&s, err);
        select_rules_release(&s.rules);
    }
    text_release(&s.name);
    text_release(&s.outer);
    text_release(&s.first);
    strtab_release(&s.names);
    vec_release(&s.tensor_of);
    return st;
}
