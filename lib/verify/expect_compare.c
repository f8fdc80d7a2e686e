/* A list of tensors and a catalogue, name by name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "verify/expect_internal.h"

typedef struct list_report {
    const expect_ids *ids;
    findings *found;
    uint64_t missing, extra, type;
} list_report;

bool expect_is_listed(const cat_tensor *t)
{
    return (t->flags & CAT_TENSOR_STORAGE) == 0 &&
           (!(t->flags & CAT_TENSOR_IN_OBJECT) || (t->flags & CAT_TENSOR_NAMED));
}

static void begin(fsdpck_error *what, fsdpck_finding_id id, const char *text, const char *list)
{
    error_set(what, FSDPCK_BADINPUT, id, text, list);
}

static void report_type(list_report *t, const char *name, const char *expected, const char *found)
{
    fsdpck_error what;
    t->type++;
    begin(&what, t->ids->type, "dtype or shape of the tensor differs from %s", t->ids->list);
    error_tensor(&what, name);
    error_expected(&what, "%s", expected);
    error_found(&what, "%s", found);
    findings_report_in(t->found, FINDINGS_LIST_TYPE, &what);
}

static void report_missing(list_report *t, const char *name)
{
    fsdpck_error what;
    t->missing++;
    begin(&what, t->ids->missing, "tensor in %s is missing from the checkpoint", t->ids->list);
    error_tensor(&what, name);
    findings_report_in(t->found, FINDINGS_LIST_MISSING, &what);
}

static void report_extra(list_report *t, const char *name)
{
    fsdpck_error what;
    t->extra++;
    begin(&what, t->ids->extra, "tensor of the checkpoint is not in %s", t->ids->list);
    error_tensor(&what, name);
    findings_report_in(t->found, FINDINGS_LIST_EXTRA, &what);
}

static bool same_type(const manifest *list, const manifest_tensor *a, const catalogue *cat,
                      size_t tensor)
{
    const cat_tensor *b = catalogue_tensor(cat, tensor);
    return a->dtype == b->dtype &&
           shape_equal(manifest_shape(list, a), a->ndim, catalogue_shape(cat, tensor), b->ndim);
}

/* A tensor of the catalogue against entry `at` of the list. */
static void compare_types(list_report *t, const manifest *list, size_t at, const catalogue *cat,
                          size_t tensor)
{
    const manifest_tensor *a = VEC_AT(&list->tensors, const manifest_tensor, at);
    const cat_tensor *b = catalogue_tensor(cat, tensor);
    text_buf expected = {0}, found = {0};
    if (a->dtype == DTYPE_NONE || same_type(list, a, cat, tensor))
        return;
    manifest_put_type(&expected, (dtype)a->dtype, a->ndim, manifest_shape(list, a));
    manifest_put_type(&found, (dtype)b->dtype, b->ndim, catalogue_shape(cat, tensor));
    report_type(t, catalogue_name(cat, b->name), expected.text == NULL ? "" : expected.text,
                found.text == NULL ? "" : found.text);
    text_release(&expected);
    text_release(&found);
}

size_t expect_find(const manifest *list, const expect_naming *names, const char *name,
                   size_t nbytes)
{
    const size_t n = names->outer == NULL ? 0 : strlen(names->outer);
    const size_t at = manifest_find_tensor(list, name, nbytes);
    if (at != SIZE_MAX || n == 0 || nbytes <= n || memcmp(name, names->outer, n) != 0)
        return at;
    return manifest_find_tensor(list, name + n, nbytes - n);
}

static size_t find_tensor(const manifest *list, const expect_naming *names, const catalogue *cat,
                          size_t tensor)
{
    const uint32_t name = catalogue_tensor(cat, tensor)->name;
    return expect_find(list, names, catalogue_name(cat, name), catalogue_name_nbytes(cat, name));
}

uint64_t expect_compare(const manifest *list, const expect_naming *names, const catalogue *cat,
                        const expect_ids *ids, findings *found)
{
    list_report t = {.ids = ids, .found = found};
    uint8_t *met = calloc(list->tensors.count + 1, 1);
    if (met == NULL) {
        found->lost = true;
        return 1;
    }
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *ct = catalogue_tensor(cat, i);
        const size_t at = find_tensor(list, names, cat, i);
        if (!expect_is_listed(ct) && (at == SIZE_MAX || (ct->flags & CAT_TENSOR_STORAGE)))
            continue;
        if (at == SIZE_MAX) {
            /* Lists of earlier releases have none of the tensors inside objects. */
            if (!names->ignore_extra && !(ct->flags & CAT_TENSOR_IN_OBJECT))
                report_extra(&t, catalogue_name(cat, ct->name));
            continue;
        }
        met[at] = 1;
        compare_types(&t, list, at, cat, i);
    }
    for (size_t i = 0; i < list->tensors.count; i++)
        if (!met[i] && !names->ignore_missing)
            report_missing(&t, strtab_text(&list->tensor_names, (uint32_t)i));
    free(met);
    return t.missing + t.extra + t.type;
}
