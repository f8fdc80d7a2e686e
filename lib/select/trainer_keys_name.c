/* trainer_keys_name.c: 'model.w' as 'state_dict.w', and 'optimizer_1.state.w.step' as 'optimizer_states.1.state.w.step', a list. */
#include <string.h>

#include "base/text.h"
#include "select/select_internal.h"

/* The digits of "optimizer_1" as a list index; 0: another key. */
static size_t optimizer_digits(const char *key, size_t nbytes)
{
    static const char word[] = "optimizer_";
    const size_t n = sizeof word - 1;
    size_t at = n;
    if (nbytes <= n || nbytes > n + 6 || memcmp(key, word, n) != 0)
        return 0;
    while (at < nbytes && key[at] >= '0' && key[at] <= '9')
        at++;
    const bool is_padded = key[n] == '0' && nbytes > n + 1;
    return at == nbytes && !is_padded ? nbytes - n : 0;
}

static fsdpck_status put(text_buf *to, const text_buf *rest, size_t from, fsdpck_error *err)
{
    text_append(to, rest->text + from, rest->nbytes - from);
    return text_check(to, err);
}

fsdpck_status select_put_trainer_keys(text_buf *name, text_buf *marks, bool *changed,
                                      fsdpck_error *err)
{
    const char *dot = marks->nbytes == 0 ? NULL : memchr(marks->text, MARK_DOT, marks->nbytes);
    const size_t key = dot == NULL ? name->nbytes : (size_t)(dot - marks->text);
    const size_t digits = optimizer_digits(name->text, key);
    text_buf new_name = {.limit_bytes = UINT32_MAX}, new_marks = {.limit_bytes = UINT32_MAX};
    if (marks->nbytes == 0 || (digits == 0 && !text_is(name->text, key, "model")))
        return FSDPCK_OK;
    if (digits == 0) {
        text_puts(&new_name, "state_dict");
        text_puts(&new_marks, "ffffffffff");
    } else {
        text_puts(&new_name, "optimizer_states.");
        text_puts(&new_marks, "ffffffffffffffff.");
        text_append(&new_name, name->text + key - digits, digits);
        for (size_t i = 0; i < digits; i++)
            text_append(&new_marks, &(const char){MARK_INDEX}, 1);
    }
    fsdpck_status st = put(&new_name, name, key, err);
    if (st == FSDPCK_OK)
        st = put(&new_marks, marks, key, err);
    name->nbytes = marks->nbytes = 0;
    if (st == FSDPCK_OK)
        st = put(name, &new_name, 0, err);
    if (st == FSDPCK_OK)
        st = put(marks, &new_marks, 0, err);
    text_append(name, "", 0);
    *changed = true;
    text_release(&new_name);
    text_release(&new_marks);
    return st;
}
