#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "select/select_internal.h"

static fsdpck_status put_text(select_state *a, target_path *p, const char *text, size_t nbytes,
                              fsdpck_error *err)
{
    if (p->count == SELECT_PATH_MAX)
        return FAIL(err, LIMIT, KEY_NEST, "path has more than %u elements", SELECT_PATH_MAX);
    return value_new_str(&a->to->cat.pool, text, nbytes, &p->elements[p->count++], err);
}

fsdpck_status target_path_copy(select_state *a, value path, uint32_t name, checkpoint_part part,
                               target_path *p, fsdpck_error *err)
{
    const catalogue *c = a->from;
    p->count = 0;
    if (value_is_none(path))
        return put_text(a, p, catalogue_name(c, name), catalogue_name_nbytes(c, name), err);
    text_buf cleaned = {0};
    bool is_param = false; /* the key is that of a parameter in an optimizer's state */
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < value_count(&c->pool, path); i++) {
        const value v = value_item(&c->pool, path, i);
        int64_t index;
        if (value_as_i64(&c->pool, v, &index)) {
            if (p->count == SELECT_PATH_MAX)
                GOTO_IF(put_text(a, p, "", 0, err), out);
            GOTO_IF(value_new_int(&a->to->cat.pool, index, &p->elements[p->count++], err), out);
            continue;
        }
        size_t nbytes;
        const char *text = value_text(&c->pool, v, &nbytes);
        if (value_kind_of(v) == VALUE_BYTES && p->count < SELECT_PATH_MAX) { /* an int key */
            GOTO_IF(value_new_bytes(&a->to->cat.pool, text, nbytes, &p->elements[p->count++], err),
                    out);
            continue;
        }
        if (a->request->clean) {
            cleaned.nbytes = 0;
            if (part == PART_OPTIMIZER && !is_param)
                checkpoint_parts_clean_state(a->parts, text, nbytes, &cleaned);
            else
                fqn_clean(text, nbytes,
                          is_param ? a->parts->model_has_ddp
                                   : i == a->parts->model_depth &&
                                         checkpoint_parts_has_ddp(a->parts, part),
                          &cleaned);
            text_append(&cleaned, "", 0);
            GOTO_IF(text_check(&cleaned, err), out);
            is_param = part == PART_OPTIMIZER &&
                       (text_is(text, nbytes, "state") || text_is(text, nbytes, "param_groups"));
            text = cleaned.text;
            nbytes = cleaned.nbytes;
        }
        GOTO_IF(put_text(a, p, text, nbytes, err), out);
    }
out:
    text_release(&cleaned);
    return st;
}

void target_path_append_element(const value_pool *pool, value v, text_buf *out)
{
    int64_t index;
    size_t nbytes;
    if (value_as_i64(pool, v, &index)) {
        text_printf(out, "%" PRId64, index);
    } else {
        const char *text = value_text(pool, v, &nbytes);
        text_append(out, text, nbytes);
    }
}

/* Elements after `keep` that the rest of the name still ends with, except one that must change;
 * *rest_nbytes: without them. A list index belongs to the name of its list. */
static fsdpck_status find_tail(const target_path *p, const value_pool *pool, const char *rest,
                               size_t keep, size_t *rest_nbytes, size_t *tail, fsdpck_error *err)
{
    text_buf element = {0};
    fsdpck_status st = FSDPCK_OK;
    size_t nbytes = *rest_nbytes;
    *tail = p->count;
    for (size_t i = p->count; i > keep + 1; i--) {
        const value v = p->elements[i - 1];
        element.nbytes = 0;
        text_append(&element, ".", 1);
        target_path_append_element(pool, v, &element);
        st = text_check(&element, err);
        if (st != FSDPCK_OK || element.nbytes >= nbytes ||
            memcmp(rest + nbytes - element.nbytes, element.text, element.nbytes) != 0)
            break;
        nbytes -= element.nbytes;
        if (value_kind_of(v) == VALUE_INT)
            continue;
        *rest_nbytes = nbytes;
        *tail = i - 1;
    }
    text_release(&element);
    return st;
}

fsdpck_status target_path_of_marks(select_state *a, const char *name, size_t nbytes,
                                   const char *marks, target_path *p, fsdpck_error *err)
{
    value_pool *pool = &a->to->cat.pool;
    p->count = 0;
    for (size_t at = 0, end; at <= nbytes; at = end + 1) {
        size_t same = 0;
        for (end = at; end < nbytes && marks[end] != MARK_DOT; end++)
            same += marks[end] == marks[at];
        const char kind = end > at && same == end - at ? marks[at] : MARK_FREE;
        if (p->count == SELECT_PATH_MAX)
            return FAIL(err, LIMIT, KEY_NEST, "path has more than %u elements", SELECT_PATH_MAX);
        value *v = &p->elements[p->count++];
        if (kind == MARK_INDEX)
            RETURN_IF(value_new_int(pool, strtoll(name + at, NULL, 10), v, err));
        else if (kind == MARK_NUMBER)
            RETURN_IF(value_new_bytes(pool, name + at, end - at, v, err));
        else
            RETURN_IF(value_new_str(pool, name + at, end - at, v, err));
    }
    return FSDPCK_OK;
}

/* Whether the name is the elements joined with dots. An empty key ends a name with a dot. */
static fsdpck_status is_joined(const target_path *p, const value_pool *pool, const char *name,
                               size_t nbytes, bool *joined, fsdpck_error *err)
{
    text_buf text = {0};
    for (size_t i = 0; i < p->count; i++) {
        if (i > 0)
            text_append(&text, ".", 1);
        target_path_append_element(pool, p->elements[i], &text);
    }
    text_append(&text, "", 0);
    const fsdpck_status st = text_check(&text, err);
    *joined = st == FSDPCK_OK && p->count > 0 && text_equal(text.text, text.nbytes, name, nbytes);
    text_release(&text);
    return st;
}

fsdpck_status target_path_fit(select_state *a, const char *name, size_t nbytes, uint32_t marks,
                              target_path *p, fsdpck_error *err)
{
    if (marks != CAT_NONE)
        return target_path_of_marks(a, name, nbytes, strtab_text(&a->marks, marks), p, err);
    const value_pool *pool = &a->to->cat.pool;
    text_buf joined = {0};
    size_t keep = 0, keep_nbytes = 0;
    bool is_list_next = false, is_same = false;
    RETURN_IF(is_joined(p, pool, name, nbytes, &is_same, err));
    if (is_same)
        return FSDPCK_OK;
    for (size_t i = 0; i < p->count; i++) {
        target_path_append_element(pool, p->elements[i], &joined);
        const bool last = i + 1 == p->count;
        text_append(&joined, ".", 1);
        is_list_next = !last && value_kind_of(p->elements[i + 1]) == VALUE_INT;
        if (last || joined.failed || joined.nbytes >= nbytes ||
            memcmp(joined.text, name, joined.nbytes) != 0)
            break;
        if (!is_list_next) {
            keep = i + 1;
            keep_nbytes = joined.nbytes;
        }
    }
    const fsdpck_status st = text_check(&joined, err);
    text_release(&joined);
    if (st != FSDPCK_OK)
        return st;
    size_t rest_nbytes = nbytes - keep_nbytes, tail;
    RETURN_IF(find_tail(p, pool, name + keep_nbytes, keep, &rest_nbytes, &tail, err));
    const size_t ntail = p->count - tail;
    value ends[SELECT_PATH_MAX];
    memcpy(ends, p->elements + tail, ntail * sizeof *ends);
    p->count = keep;
    RETURN_IF(put_text(a, p, name + keep_nbytes, rest_nbytes, err));
    memcpy(p->elements + p->count, ends, ntail * sizeof *ends); /* no more than there were */
    p->count += ntail;
    return FSDPCK_OK;
}
