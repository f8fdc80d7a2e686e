/* select_name.c: names of tensors and objects after the rules, and the paths that they stand for. */
#include <string.h>

#include "base/text.h"
#include "select/optimizer_roots.h"
#include "select/select_internal.h"

static bool has_rules(const select_state *a)
{
    return a->request->options.rename_count + a->request->options.strip_prefix_count > 0;
}

/* Whether keys of the state matter, not only names. */
static bool has_structure(const select_state *a)
{
    return select_keeps_objects(a) || a->request->names_objects;
}

/* --- marks --- */

static void mark(text_buf *marks, size_t begin, size_t nbytes, char letter)
{
    if (nbytes > 0)
        memset(marks->text + begin, letter, nbytes);
}

/* 'state.3.exp_avg' at the end of a name of an optimizer. */
static void mark_digits(const text_buf *name, text_buf *marks)
{
    const char *slot = strrchr(name->text, '.');
    const char *at = slot;
    while (at != NULL && at > name->text && at[-1] >= '0' && at[-1] <= '9')
        at--;
    if (at == NULL || at == slot ||
        !text_ends_with(name->text, (size_t)(at - name->text), "state."))
        return;
    mark(marks, (size_t)(at - name->text), (size_t)(slot - at), MARK_DIGITS);
}

/* The name of a parameter in an optimizer's state dict. */
static void mark_param(const select_state *a, const text_buf *name, text_buf *marks, size_t begin,
                       size_t nbytes)
{
    const bool known = strtab_find(&a->params, name->text + begin, nbytes) != STRTAB_NONE;
    mark(marks, begin, nbytes, known ? MARK_PARAM : MARK_FREE);
}

/* A path as texts of the name: keys[i] begins at at[i]. */
typedef struct name_keys {
    const target_path *p;
    size_t at[SELECT_PATH_MAX + 1]; /* and the end of the last, plus 1 */
} name_keys;

static size_t key_nbytes(const name_keys *k, size_t i)
{
    return k->at[i + 1] - k->at[i] - 1;
}

static bool key_is(const name_keys *k, const text_buf *name, size_t i, const char *word)
{
    return text_is(name->text + k->at[i], key_nbytes(k, i), word);
}

/* 'state.FQN.exp_avg' and 'param_groups.FQN.lr', the last key of flattened state. */
static bool mark_flattened(const select_state *a, const name_keys *k, size_t i,
                           const text_buf *name, text_buf *marks)
{
    static const char *const begins[] = {"state.", "param_groups."};
    const char *text = name->text + k->at[i];
    const size_t nbytes = key_nbytes(k, i);
    for (size_t b = 0; b < 2; b++) {
        const size_t n = strlen(begins[b]);
        size_t end = nbytes;
        if (nbytes <= n || memcmp(text, begins[b], n) != 0)
            continue;
        while (end > n && text[end - 1] != '.')
            end--;
        mark(marks, k->at[i], nbytes, MARK_KEY);
        if (end > n + 1) {
            mark(marks, k->at[i] + n - 1, end - n + 1, MARK_BOUND);
            mark_param(a, name, marks, k->at[i] + n, end - 1 - n);
        }
        return true;
    }
    return false;
}

/* Of an optimizer: only the keys before 'state' or 'param_groups' are free, and parameters. */
static void mark_optimizer(const select_state *a, const name_keys *k, const text_buf *name,
                           text_buf *marks)
{
    const size_t count = k->p->count;
    size_t state = count, groups = count;
    for (size_t i = 0; i < count; i++) {
        if (groups == count && key_is(k, name, i, "param_groups"))
            groups = i;
        if (key_is(k, name, i, "state") && (i + 2 < count || state == count))
            state = i;
    }
    if (state == count && groups == count) {
        (void)(count > 0 && mark_flattened(a, k, count - 1, name, marks));
        return;
    }
    const bool has_params = groups == count;
    const size_t root = has_params ? state : groups;
    size_t param = has_params ? state + 1 : count; /* Megatron has state.exp_avg.FQN */
    if (param + 1 < count &&
        optimizer_roots_is_slot(name->text + k->at[param], key_nbytes(k, param)))
        param++;
    for (size_t i = root; i < count; i++)
        if (marks->text[k->at[i]] == MARK_FREE && i != param)
            mark(marks, k->at[i], key_nbytes(k, i), MARK_KEY);
    if (param < count && value_kind_of(k->p->elements[param]) == VALUE_STR)
        mark_param(a, name, marks, k->at[param], key_nbytes(k, param));
}

/* Whether a name begins with the keys of a path from `first` on. */
static bool align(const value_pool *pool, const target_path *p, size_t first, const text_buf *name,
                  text_buf *element, name_keys *k)
{
    size_t at = 0;
    for (size_t i = first; i < p->count; i++) {
        element->nbytes = 0;
        target_path_append_element(pool, p->elements[i], element);
        text_append(element, "", 0);
        if (element->failed || at + element->nbytes > name->nbytes ||
            memcmp(name->text + at, element->text, element->nbytes) != 0)
            return false;
        k->at[i - first] = at;
        at += element->nbytes;
        if (at < name->nbytes && name->text[at] != '.')
            return false;
        at++;
    }
    k->at[p->count - first] = at;
    return at > 0;
}

static void mark_path(const select_state *a, const name_keys *k, checkpoint_part part,
                      const text_buf *name, text_buf *marks)
{
    const size_t count = k->p->count, end = k->at[count] - 1;
    mark(marks, 0, end, MARK_FREE);
    mark(marks, end, marks->nbytes - end, MARK_RANK);
    for (size_t i = 0; i < count; i++) {
        const value_kind kind = value_kind_of(k->p->elements[i]);
        if (i + 1 < count)
            marks->text[k->at[i + 1] - 1] = MARK_DOT;
        if (kind == VALUE_INT || kind == VALUE_BYTES)
            mark(marks, k->at[i], key_nbytes(k, i), kind == VALUE_INT ? MARK_INDEX : MARK_NUMBER);
    }
    if (part == PART_OPTIMIZER)
        mark_optimizer(a, k, name, marks);
}

/* Empty marks where the path is not the name's. */
static fsdpck_status find_marks(select_state *a, const name_source *s, const text_buf *name,
                                text_buf *marks, fsdpck_error *err)
{
    marks->nbytes = 0;
    text_append(marks, name->text, name->nbytes);
    RETURN_IF(text_check(marks, err));
    if (!has_structure(a) || value_is_none(s->path)) {
        mark(marks, 0, marks->nbytes, MARK_FREE);
        if (s->part == PART_OPTIMIZER)
            mark_digits(name, marks);
        return FSDPCK_OK;
    }
    target_path p, rest;
    text_buf element = {0};
    name_keys k = {.p = &rest};
    RETURN_IF(target_path_copy(a, s->path, s->name, s->part, &p, err));
    bool aligned = false;
    size_t first = 0;
    while (first < p.count && !(aligned = align(&a->to->cat.pool, &p, first, name, &element, &k)))
        first++;
    if (aligned) {
        rest.count = p.count - first;
        memcpy(rest.elements, p.elements + first, rest.count * sizeof *rest.elements);
        mark_path(a, &k, s->part, name, marks);
    } else {
        marks->nbytes = 0;
    }
    text_release(&element);
    return FSDPCK_OK;
}

/* --- names --- */

/* A parameter's name in the state gets the name that it has in the model. */
static fsdpck_status put_param(const select_state *a, text_buf *name, text_buf *marks,
                               bool *changed, fsdpck_error *err)
{
    size_t begin, end;
    if (!name_marks_find(marks, MARK_PARAM, &begin, &end))
        return FSDPCK_OK;
    const uint32_t id = strtab_find(&a->params, name->text + begin, end - begin);
    const uint32_t to = *VEC_AT(&a->param_names, const uint32_t, id);
    const char *text = strtab_text(&a->param_texts, to);
    const size_t nbytes = strtab_nbytes(&a->param_texts, to);
    *changed = *changed || !text_equal(text, nbytes, name->text + begin, end - begin);
    return name_marks_put_param(name, marks, begin, end, text, nbytes, err);
}

fsdpck_status select_apply_rules(select_state *a, const name_source *s, text_buf *name,
                                 text_buf *marks, bool *changed, fsdpck_error *err)
{
    if (!has_rules(a) && !a->request->trainer_keys) {
        marks->nbytes = 0;
        return FSDPCK_OK;
    }
    RETURN_IF(find_marks(a, s, name, marks, err));
    RETURN_IF(select_rules_rename(&a->rules, name, marks, changed, err));
    RETURN_IF(put_param(a, name, marks, changed, err));
    return a->request->trainer_keys ? select_put_trainer_keys(name, marks, changed, err)
                                    : FSDPCK_OK;
}

/* --- parameters of the model --- */

/* Bytes of a name up to and with its depth-th separator. */
static size_t skip_keys(const text_buf *marks, size_t depth)
{
    size_t at = 0;
    for (; at < marks->nbytes && depth > 0; at++)
        depth -= marks->text[at] == MARK_DOT;
    return at;
}

static size_t count_dots(const text_buf *marks)
{
    size_t count = 0;
    for (size_t i = 0; i < marks->nbytes; i++)
        count += marks->text[i] == MARK_DOT;
    return count;
}

static fsdpck_status add_param(select_state *a, size_t i, text_buf *name, text_buf *marks,
                               fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    const name_source s = {t->path, t->name, PART_MODEL};
    const size_t depth = a->parts->model_depth;
    text_buf old = {.limit_bytes = UINT32_MAX};
    bool changed = false;
    uint32_t id;
    fsdpck_status st;
    GOTO_IF(find_marks(a, &s, name, marks, err), out);
    const size_t dots = count_dots(marks), skip = skip_keys(marks, depth);
    text_append(&old, name->text + skip, name->nbytes - skip);
    GOTO_IF(text_check(&old, err), out);
    GOTO_IF(select_rules_rename(&a->rules, name, marks, &changed, err), out);
    /* Where outer keys became part of the name, the rules alone decide. */
    const size_t now = count_dots(marks);
    if (marks->nbytes == 0 || (now != dots && now + depth != dots))
        goto out;
    const size_t new_skip = now == dots ? skip_keys(marks, depth) : 0;
    const size_t before = strtab_count(&a->params);
    GOTO_IF(strtab_intern(&a->params, old.text, old.nbytes, &id, err), out);
    if (id < before)
        goto out;
    uint32_t *slot = vec_push(&a->param_names, err);
    GOTO_IF(slot == NULL ? FSDPCK_LIMIT : FSDPCK_OK, out);
    st = strtab_intern(&a->param_texts, name->text + new_skip, name->nbytes - new_skip, slot, err);
out:
    text_release(&old);
    return st;
}

fsdpck_status select_find_param_names(select_state *a, select_wanted_fn is_wanted,
                                      fsdpck_error *err)
{
    text_buf name = {0}, marks = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; has_rules(a) && has_structure(a) && i < a->parts->tensor_count; i++) {
        bool wanted = a->parts->tensor_part[i] == PART_MODEL && is_wanted(a, i);
        if (!wanted)
            continue;
        select_original_name(a, catalogue_tensor(a->from, i)->name, PART_MODEL, &name);
        GOTO_IF(text_check(&name, err), out);
        GOTO_IF(select_inner_is_selected(a, i, name.text, &wanted, err), out);
        if (wanted)
            GOTO_IF(add_param(a, i, &name, &marks, err), out);
    }
out:
    text_release(&name);
    text_release(&marks);
    return st;
}
