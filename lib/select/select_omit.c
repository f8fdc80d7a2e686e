/* Counts and lists omitted tensors and objects. */
#include <stdlib.h>
#include <string.h>

#include "select/select_internal.h"

fsdpck_status name_list_add(name_list *n, const char *text, size_t nbytes, fsdpck_error *err)
{
    const size_t room = 4 * nbytes + 8;
    if (n->count == n->capacity) {
        const size_t capacity = n->capacity == 0 ? 16 : 2 * n->capacity;
        char **list = realloc(n->list, capacity * sizeof *list);
        if (list == NULL)
            return error_set_nomem(err, capacity * sizeof *list);
        n->list = list;
        n->capacity = capacity;
    }
    char *escaped = malloc(room);
    if (escaped == NULL)
        return error_set_nomem(err, room);
    (void)escape_text(escaped, room, text, nbytes);
    char *fitting = realloc(escaped, strlen(escaped) + 1);
    n->list[n->count++] = fitting == NULL ? escaped : fitting;
    return FSDPCK_OK;
}

/* A tensor of part other that may be a parameter. */
static fsdpck_status record_other_param(select_state *a, size_t i, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    const char *name = catalogue_name(a->from, t->name);
    const size_t nbytes = catalogue_name_nbytes(a->from, t->name);
    if (a->parts->tensor_part[i] != PART_OTHER || a->request->part != PART_MODEL || t->ndim == 0 ||
        (kind != DTYPE_IS_FLOAT && kind != DTYPE_IS_COMPLEX))
        return FSDPCK_OK;
    a->result->other_params_nbytes += catalogue_tensor_nbytes(a->from, i);
    if (a->result->other_params++ > 0)
        return FSDPCK_OK;
    a->result->other_params_first = malloc(4 * nbytes + 8);
    if (a->result->other_params_first == NULL)
        return error_set_nomem(err, 4 * nbytes + 8);
    (void)escape_text(a->result->other_params_first, 4 * nbytes + 8, name, nbytes);
    return FSDPCK_OK;
}

fsdpck_status select_omit_tensor(select_state *a, size_t i, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    RETURN_IF(record_other_param(a, i, err));
    a->result->left_out_tensors++;
    a->result->left_out_nbytes += catalogue_tensor_nbytes(a->from, i);
    if ((t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED))
        a->result->left_out_inside++;
    return name_list_add(&a->result->left_out_names, catalogue_name(a->from, t->name),
                         catalogue_name_nbytes(a->from, t->name), err);
}

/* "NAME (ranks 0, 1, 2)" for all objects of one name, each of one rank, at the first of them. */
static fsdpck_status record_rank_objects(select_state *a, size_t i, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, i);
    const size_t count = catalogue_object_count(a->from);
    if (i > 0 && catalogue_object(a->from, i - 1)->name == o->name)
        return FSDPCK_OK;
    text_buf ranks = {.limit_bytes = 120};
    for (size_t k = i; k < count && catalogue_object(a->from, k)->name == o->name; k++)
        text_printf(&ranks, "%s%u", k == i ? "" : ", ",
                    (unsigned)catalogue_object(a->from, k)->rank);
    text_buf text = {0};
    text_append(&text, catalogue_name(a->from, o->name), catalogue_name_nbytes(a->from, o->name));
    text_printf(&text, " (rank%s %s%s)",
                ranks.text != NULL && strchr(ranks.text, ',') != NULL ? "s" : "",
                ranks.text != NULL ? ranks.text : "", ranks.failed ? ", ..." : "");
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&a->left_out_objects, text.text, text.nbytes, err);
    text_release(&text);
    text_release(&ranks);
    return st;
}

fsdpck_status select_omit_object(select_state *a, size_t i, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, i);
    const char *name = catalogue_name(a->from, o->name);
    if (o->saved_at == CAT_NONE)
        return FSDPCK_OK;
    a->result->left_out_objects++;
    if (a->request->objects == SELECT_OBJECTS_ERROR)
        return FAIL(err, UNSUPPORTED, KEY_TYPE, "object '%s' cannot be stored in the output", name);
    if (o->rank != UINT16_MAX)
        return record_rank_objects(a, i, err);
    return name_list_add(&a->left_out_objects, name, catalogue_name_nbytes(a->from, o->name), err);
}

fsdpck_status select_omit_unread(select_state *a, fsdpck_error *err)
{
    select_result *r = a->result;
    for (size_t i = 0; i < a->from->passed_over.count; i++) {
        const cat_skipped *p = VEC_AT(&a->from->passed_over, const cat_skipped, i);
        if (p->is_object) {
            r->left_out_objects++;
        } else {
            r->tensors_in++;
            r->nbytes_in += p->nbytes;
            r->left_out_tensors++;
            r->left_out_nbytes += p->nbytes;
        }
        RETURN_IF(name_list_add(p->is_object ? &a->left_out_objects : &r->left_out_names,
                                catalogue_name(a->from, p->name),
                                catalogue_name_nbytes(a->from, p->name), err));
    }
    return FSDPCK_OK;
}

fsdpck_status select_omit_finish(select_state *a, fsdpck_error *err)
{
    name_list *to = &a->result->left_out_names, *more = &a->left_out_objects;
    if (more->count == 0)
        return FSDPCK_OK;
    const size_t capacity = to->count + more->count;
    char **list = realloc(to->list, capacity * sizeof *list);
    if (list == NULL)
        return error_set_nomem(err, capacity * sizeof *list);
    to->list = list;
    to->capacity = capacity;
    memcpy(to->list + to->count, more->list, more->count * sizeof *list);
    to->count = capacity;
    more->count = 0;
    return FSDPCK_OK;
}

void name_list_release(name_list *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->list[i]);
    free(n->list);
    *n = (name_list){0};
}
