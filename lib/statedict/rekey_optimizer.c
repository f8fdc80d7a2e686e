/* rekey_optimizer.c: an optimizer: elements of paths, labels, its description, errors. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "statedict/rekey_internal.h"

const char *rekey_element(const catalogue *c, value v, char digits[24], size_t *nbytes)
{
    int64_t number;
    if (value_kind_of(v) == VALUE_INT && value_as_i64(&c->pool, v, &number)) {
        *nbytes = (size_t)snprintf(digits, 24, "%" PRId64, number);
        return digits;
    }
    *nbytes = 0;
    const char *text = value_text(&c->pool, v, nbytes);
    return text == NULL ? "" : text;
}

bool rekey_is(const catalogue *c, value path, size_t i, const char *text)
{
    return i < value_count(&c->pool, path) &&
           value_is_str(&c->pool, value_item(&c->pool, path, i), text);
}

fsdpck_status rekey_fail(const rekey *r, const rekey_optimizer *o, fsdpck_status status,
                         fsdpck_finding_id finding, fsdpck_error *err, const char *fmt, ...)
{
    char why[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    const fsdpck_status st = error_set(err, status, finding, "%s", why);
    const size_t nbytes = strtab_nbytes(&r->texts, o->prefix);
    char prefix[200];
    snprintf(prefix, sizeof prefix, "%.*s%s", nbytes < 150 ? (int)nbytes : 150,
             strtab_text(&r->texts, o->prefix), o->flat ? "state.*" : "state");
    error_tensor(err, prefix);
    return st;
}

const optim_list *rekey_described(const rekey *r, const rekey_optimizer *o)
{
    return r->order->groups == NULL
               ? NULL
               : optim_groups_find(r->order->groups, strtab_text(&r->texts, o->prefix),
                                   strtab_nbytes(&r->texts, o->prefix), r->optimizers.count == 1);
}

void rekey_label(const rekey *r, const rekey_optimizer *o, uint32_t position, text_buf *out)
{
    const rekey_position *p = REKEY_POSITION(o, position);
    if (r->to != OPTIM_KEYS_ID)
        text_append(out, strtab_text(&r->texts, p->written), strtab_nbytes(&r->texts, p->written));
    else if (o->form == OPTIM_KEYS_ID)
        text_append(out, strtab_text(&o->labels, position), strtab_nbytes(&o->labels, position));
    else
        text_printf(out, "%" PRIu32, p->number);
}
