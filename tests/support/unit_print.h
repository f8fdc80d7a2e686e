/* unit_print.h: what unit_table and model_table share: units as JSON, and the whole of stdin. */
#ifndef FSDPCK_TESTS_SUPPORT_UNIT_PRINT_H
#define FSDPCK_TESTS_SUPPORT_UNIT_PRINT_H

#include <stdio.h>

#include "base/json.h"
#include "model/unit.h"

static inline void put_unit_name(json_writer *w, const unit_list *l, uint32_t name_id)
{
    size_t nbytes;
    const char *text = unit_name(l, name_id, &nbytes);
    json_put_string(w, text, nbytes);
}

/* "fqns", "shapes" and "shared" of a unit. */
static inline void put_unit_params(json_writer *w, const unit_list *l, const unit *u)
{
    json_member_array(w, "fqns");
    for (uint32_t k = 0; k < u->nparams; k++)
        put_unit_name(w, l, unit_param_at(l, u, k)->fqn);
    json_end_array(w);
    json_member_array(w, "shapes");
    for (uint32_t k = 0; k < u->nparams; k++) {
        const unit_param *p = unit_param_at(l, u, k);
        json_put_u64s(w, unit_param_shape(l, p), p->ndim);
    }
    json_end_array(w);
    json_member_array(w, "shared");
    for (uint32_t k = 0; k < u->nshared; k++) {
        json_begin_array(w);
        put_unit_name(w, l, unit_shared_at(l, u, k)->fqn);
        put_unit_name(w, l, unit_shared_at(l, u, k)->same_as);
        json_end_array(w);
    }
    json_end_array(w);
}

static inline fsdpck_status read_all(text_buf *text, fsdpck_error *err)
{
    char block[4096];
    size_t nbytes;
    while ((nbytes = fread(block, 1, sizeof block, stdin)) > 0)
        text_append(text, block, nbytes);
    return text_check(text, err);
}

#endif
