#include "run/digest_rows.h"

#include <stdlib.h>

#include "base/crc.h"
#include "base/text.h"
#include "manifest/manifest.h"

static int compare_names(const void *a, const void *b)
{
    const digest_row *x = a, *y = b;
    return text_order(x->name, x->name_nbytes, y->name, y->name_nbytes);
}

static bool is_listed(const cat_tensor *ct)
{
    return (ct->flags & CAT_TENSOR_STORAGE) == 0 &&
           (!(ct->flags & CAT_TENSOR_IN_OBJECT) || (ct->flags & CAT_TENSOR_NAMED));
}

static fsdpck_status make_row(digest_rows *d, const target *t, uint64_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const cat_tensor *ct = catalogue_tensor(cat, tensor);
    digest_row *row = &d->rows[d->count];
    const size_t at = d->texts.nbytes;
    uint64_t elements;
    manifest_put_type(&d->texts, (dtype)ct->dtype, ct->ndim, catalogue_shape(cat, tensor));
    text_puts(&d->texts, "\n");
    RETURN_IF(text_check(&d->texts, err));
    const uint64_t head = crc64_update(0, d->texts.text + at, d->texts.nbytes - at);
    d->texts.text[d->texts.nbytes - 1] = '\0';
    RETURN_IF(target_tensor_crc(t, tensor, &elements, err));
    const uint64_t nbytes = catalogue_tensor_nbytes(cat, tensor);
    *row = (digest_row){.tensor = tensor,
                        .name = catalogue_name(cat, ct->name),
                        .name_nbytes = catalogue_name_nbytes(cat, ct->name),
                        .type_at = at,
                        .digest = crc64_join(head, elements, nbytes)};
    d->nbytes += nbytes;
    d->count++;
    return FSDPCK_OK;
}

void digest_rows_update_total(digest_rows *d)
{
    d->whole = 0;
    for (uint64_t i = 0; i < d->count; i++) {
        const digest_row *row = &d->rows[i];
        d->whole = manifest_digest_line(d->whole, row->digest, d->texts.text + row->type_at,
                                        row->name, row->name_nbytes);
    }
}

fsdpck_status digest_rows_make(digest_rows *d, const target *t, fsdpck_error *err)
{
    const uint64_t most = catalogue_tensor_count(&t->cat);
    *d = (digest_rows){.texts.limit_bytes = SIZE_MAX / 2};
    d->rows = calloc(most + 1, sizeof *d->rows);
    if (d->rows == NULL)
        return error_set_nomem(err, most * sizeof *d->rows);
    for (uint64_t i = 0; i < most; i++)
        if (is_listed(catalogue_tensor(&t->cat, i)))
            RETURN_IF(make_row(d, t, i, err));
    qsort(d->rows, d->count, sizeof *d->rows, compare_names);
    digest_rows_update_total(d);
    return FSDPCK_OK;
}

uint64_t digest_rows_find(const digest_rows *d, const char *name, size_t nbytes)
{
    const digest_row wanted = {.name = name, .name_nbytes = nbytes};
    const digest_row *row =
        d->count == 0 ? NULL : bsearch(&wanted, d->rows, d->count, sizeof wanted, compare_names);
    return row == NULL ? d->count : (uint64_t)(row - d->rows);
}

void digest_rows_release(digest_rows *d)
{
    text_release(&d->texts);
    free(d->rows);
    *d = (digest_rows){0};
}
