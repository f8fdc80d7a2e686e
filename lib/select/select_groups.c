/* Items of an optimizer's param_groups. They are selected together, as one item 'ROOT.param_groups';
 * in flattened state, as one item 'ROOT.param_groups.FQN' for each parameter. */
#include <string.h>

#include "select/select_internal.h"

#define GROUPS "param_groups"

/* The next position of `word` as a whole component of the name; NULL if none. */
static const char *find_component(const char *name, const char *from, const char *word)
{
    const size_t nbytes = strlen(word);
    for (const char *at = strstr(from, word); at != NULL; at = strstr(at + 1, word))
        if ((at == name || at[-1] == '.') && (at[nbytes] == '.' || at[nbytes] == '\0'))
            return at;
    return NULL;
}

static bool has_element(const select_state *a, value path, const char *word)
{
    const value_pool *pool = &a->from->pool;
    const size_t count = value_is_none(path) ? 0 : value_count(pool, path);
    for (size_t i = 0; i < count; i++)
        if (value_is_str(pool, value_item(pool, path, i), word))
            return true;
    return false;
}

/* '0.lr' after 'param_groups.': of a list of groups, also where the path is one key. */
static bool is_list_item(const char *rest)
{
    const size_t digits = strspn(rest, "0123456789");
    return digits > 0 && rest[digits] == '.' && strchr(rest + digits + 1, '.') == NULL;
}

/* Shortens the name of an item to that of its groups; false if it is not in param_groups. */
static bool shorten_to_groups(const select_state *a, value path, text_buf *name)
{
    const char *at = find_component(name->text, name->text, GROUPS);
    const char *last = strrchr(name->text, '.');
    if (at == NULL)
        return false;
    const char *end = at + strlen(GROUPS);
    if (*end == '.' && !has_element(a, path, GROUPS) && !is_list_item(end + 1) && last > end)
        end = last;
    name->nbytes = (size_t)(end - name->text);
    name->text[name->nbytes] = '\0';
    return true;
}

/* Adds the names that the groups of a selected tensor 'ROOT.state.FQN.exp_avg' may have. */
static fsdpck_status add_groups_of(select_state *a, const text_buf *tensor, text_buf *groups,
                                   fsdpck_error *err)
{
    static const char state[] = "state";
    const char *at = find_component(tensor->text, tensor->text, state);
    for (; at != NULL; at = find_component(tensor->text, at + 1, state)) {
        const char *rest = at + sizeof state - 1;
        const char *last = strrchr(rest, '.');
        uint32_t id;
        groups->nbytes = 0;
        text_append(groups, tensor->text, (size_t)(at - tensor->text));
        text_puts(groups, GROUPS);
        RETURN_IF(text_check(groups, err));
        RETURN_IF(strtab_intern(&a->used_groups, groups->text, groups->nbytes, &id, err));
        if (last == NULL || last == rest)
            continue;
        text_append(groups, rest, (size_t)(last - rest));
        RETURN_IF(text_check(groups, err));
        RETURN_IF(strtab_intern(&a->used_groups, groups->text, groups->nbytes, &id, err));
    }
    return FSDPCK_OK;
}

/* Fills used_groups: groups with state that --keys and --exclude select. */
static fsdpck_status find_used_groups(select_state *a, fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX}, groups = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < a->parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(a->from, i);
        const checkpoint_part part = (checkpoint_part)a->parts->tensor_part[i];
        if (part != PART_OPTIMIZER || (t->flags & CAT_TENSOR_IN_OBJECT))
            continue;
        select_original_name(a, t->name, part, &name);
        st = text_check(&name, err);
        if (st == FSDPCK_OK && find_component(name.text, name.text, GROUPS) == NULL &&
            select_rules_match(&a->rules, name.text))
            st = add_groups_of(a, &name, &groups, err);
    }
    text_release(&name);
    text_release(&groups);
    a->has_used_groups = true;
    return st;
}

fsdpck_status select_groups_match(select_state *a, const name_source *s, bool *in_groups,
                                  bool *wanted, fsdpck_error *err)
{
    const select_options *options = &a->request->options;
    *in_groups = false;
    if (s->part != PART_OPTIMIZER || options->keys_count + options->exclude_count == 0)
        return FSDPCK_OK;
    text_buf item = {.limit_bytes = UINT32_MAX}, groups = {.limit_bytes = UINT32_MAX},
             below = {.limit_bytes = UINT32_MAX};
    select_original_name(a, s->name, s->part, &item);
    fsdpck_status st = text_check(&item, err);
    if (st == FSDPCK_OK)
        text_append(&groups, item.text, item.nbytes);
    if (st == FSDPCK_OK)
        st = text_check(&groups, err);
    *in_groups = st == FSDPCK_OK && shorten_to_groups(a, s->path, &groups);
    if (*in_groups && !a->has_used_groups)
        st = find_used_groups(a, err);
    if (*in_groups && st == FSDPCK_OK) {
        const uint32_t used = strtab_find(&a->used_groups, groups.text, groups.nbytes);
        text_append(&below, groups.text, groups.nbytes);
        text_append(&below, ".", 1);
        st = text_check(&below, err);
        const group_names names = {groups.text, below.text, item.text};
        if (st == FSDPCK_OK)
            *wanted = select_rules_match_groups(&a->rules, &names, used != STRTAB_NONE);
    }
    text_release(&below);
    text_release(&item);
    text_release(&groups);
    return st;
}
