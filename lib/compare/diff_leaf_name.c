/* diff_leaf_name.c: the name of an object's leaf after the rules, as consolidate names it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "compare/diff.h"

static void mark(text_buf *marks, size_t begin, size_t end, char letter)
{
    if (begin < end)
        memset(marks->text + begin, letter, end - begin);
}

/* The begin of the next word that is `word`; nbytes: none. */
static size_t find_word(const char *text, size_t nbytes, size_t at, const char *word)
{
    const size_t n = strlen(word);
    for (; at < nbytes; at++)
        if ((at == 0 || text[at - 1] == '.') && nbytes - at >= n &&
            memcmp(text + at, word, n) == 0 && (nbytes - at == n || text[at + n] == '.'))
            return at;
    return nbytes;
}

/* Numbers of the path stay. */
static void mark_indexes(const value_pool *pool, value path, const text_buf *name, text_buf *marks)
{
    size_t at = 0;
    for (size_t i = 0; !value_is_none(path) && i < value_count(pool, path); i++) {
        const value v = value_item(pool, path, i);
        char digits[32];
        int64_t index;
        size_t nbytes;
        if (value_as_i64(pool, v, &index))
            snprintf(digits, sizeof digits, "%" PRId64, index);
        else if (value_kind_of(v) == VALUE_BYTES)
            snprintf(digits, sizeof digits, "%.31s", value_text(pool, v, &nbytes));
        else
            continue;
        at = find_word(name->text, name->nbytes, at, digits);
        if (at < name->nbytes)
            mark(marks, at, at + strlen(digits), MARK_INDEX);
    }
}

/* 'state.FQN.step' and 'param_groups.FQN.lr': only the parameter gets another name. */
static void mark_optimizer(const target *to, const text_buf *name, text_buf *marks)
{
    const char *root = "param_groups";
    size_t at = find_word(name->text, name->nbytes, 0, root);
    if (at == name->nbytes)
        at = find_word(name->text, name->nbytes, 0, root = "state");
    const size_t begin = at + strlen(root) + 1;
    size_t end = name->nbytes;
    while (end > begin && name->text[end - 1] != '.')
        end--;
    mark(marks, at, name->nbytes, MARK_KEY);
    if (at == name->nbytes || end <= begin + 1 || name->text[begin - 1] != '.')
        return;
    const bool known = !value_is_none(target_param_name(to, name->text + begin, end - 1 - begin));
    if (!known && name->text[begin] >= '0' && name->text[begin] <= '9')
        return;
    mark(marks, begin - 1, end, MARK_BOUND);
    mark(marks, begin, end - 1, known ? MARK_PARAM : MARK_FREE);
}

static fsdpck_status put_param(const target *to, text_buf *name, text_buf *marks, fsdpck_error *err)
{
    size_t begin, end, nbytes;
    if (!name_marks_find(marks, MARK_PARAM, &begin, &end))
        return FSDPCK_OK;
    const value now = target_param_name(to, name->text + begin, end - begin);
    const char *text = value_text(&to->cat.pool, now, &nbytes);
    return name_marks_put_param(name, marks, begin, end, text, nbytes, err);
}

fsdpck_status diff_leaf_name(const run *r, uint32_t object, select_rules *rules, text_buf *name,
                             fsdpck_error *err)
{
    const select_options *w = rules->options;
    text_buf marks = {.limit_bytes = UINT32_MAX};
    bool changed = false;
    if (w->rename_count + w->strip_prefix_count == 0)
        return FSDPCK_OK;
    text_append(&marks, name->text, name->nbytes);
    fsdpck_status st = text_check(&marks, err);
    if (st == FSDPCK_OK) {
        mark(&marks, 0, marks.nbytes, MARK_FREE);
        for (size_t i = 0; i < marks.nbytes; i++)
            if (name->text[i] == '.')
                marks.text[i] = MARK_DOT;
        mark_indexes(&r->src->cat.pool, catalogue_object(&r->src->cat, object)->path, name, &marks);
        if (r->src->parts.object_part[object] == PART_OPTIMIZER)
            mark_optimizer(&r->to, name, &marks);
        st = select_rules_rename(rules, name, &marks, &changed, err);
    }
    if (st == FSDPCK_OK)
        st = put_param(&r->to, name, &marks, err);
    text_release(&marks);
    return st;
}
