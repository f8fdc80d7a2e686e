#include "manifest/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/file.h"
#include "state/box.h"

void manifest_init(manifest *m, budget *owner)
{
    *m = (manifest){.owner = owner,
                    .files = VEC_OF(manifest_file, owner),
                    .tensors = VEC_OF(manifest_tensor, owner),
                    .shapes = VEC_OF(uint64_t, owner)};
    strtab_init(&m->file_names, owner);
    strtab_init(&m->tensor_names, owner);
}

void manifest_release(manifest *m)
{
    strtab_release(&m->file_names);
    strtab_release(&m->tensor_names);
    VEC_RELEASE_ALL(&m->files, &m->tensors, &m->shapes);
}

/* A new name, whose id is the count of what there is. */
static fsdpck_status add_name(strtab *names, size_t count, const char *name, size_t nbytes,
                              const char *what, fsdpck_error *err)
{
    char shown[256];
    uint32_t id;
    RETURN_IF(strtab_intern(names, name, nbytes, &id, err));
    if (id == count)
        return FSDPCK_OK;
    escape_text(shown, sizeof shown, name, nbytes);
    return FAIL(err, BADINPUT, MAN_DUP, "manifest lists the %s '%s' twice", what, shown);
}

fsdpck_status manifest_add_file(manifest *m, const char *name, size_t name_nbytes, uint64_t nbytes,
                                manifest_file **added, fsdpck_error *err)
{
    *added = NULL;
    RETURN_IF(path_check_inside(name, name_nbytes, FSDPCK_FINDING_MAN_PATH, err));
    if (!utf8_is_text(name, name_nbytes))
        return FAIL_WITH(err, UNSUPPORTED, MAN_PATH,
                         ("file name is not UTF-8: a manifest cannot list it"), (path, name));
    RETURN_IF(add_name(&m->file_names, m->files.count, name, name_nbytes, "file", err));
    *added = vec_push(&m->files, err);
    if (*added == NULL)
        return FSDPCK_LIMIT;
    (*added)->nbytes = nbytes;
    return FSDPCK_OK;
}

/* As it is kept: malloc'd where it is not `name` itself. NULL: no memory. */
static char *stored_name(const char *name, size_t *nbytes)
{
    if (utf8_is_text(name, *nbytes))
        return (char *)name;
    const size_t capacity = 4 * *nbytes + 1;
    char *text = malloc(capacity);
    if (text == NULL)
        return NULL;
    escape_text(text, capacity, name, *nbytes);
    *nbytes = strlen(text);
    return text;
}

fsdpck_status manifest_add_tensor(manifest *m, const char *name, size_t name_nbytes, dtype d,
                                  unsigned ndim, const uint64_t *shape, uint64_t digest,
                                  fsdpck_error *err)
{
    char *kept = stored_name(name, &name_nbytes);
    if (kept == NULL)
        return error_set_nomem(err, 4 * name_nbytes);
    const fsdpck_status st =
        add_name(&m->tensor_names, m->tensors.count, kept, name_nbytes, "tensor", err);
    if (kept != name)
        free(kept);
    if (st != FSDPCK_OK)
        return st;
    const manifest_tensor t = {
        .shape_at = m->shapes.count, .digest = digest, .dtype = (uint8_t)d, .ndim = (uint8_t)ndim};
    RETURN_IF(vec_add(&m->tensors, &t, err));
    return vec_add_n(&m->shapes, shape, ndim, err);
}

const char *manifest_file_name(const manifest *m, size_t i)
{
    return strtab_text(&m->file_names, (uint32_t)i);
}

size_t manifest_find_file(const manifest *m, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&m->file_names, name, nbytes);
    return id == STRTAB_NONE ? SIZE_MAX : id;
}

size_t manifest_find_tensor(const manifest *m, const char *name, size_t nbytes)
{
    char *kept = stored_name(name, &nbytes);
    const uint32_t id = kept == NULL ? STRTAB_NONE : strtab_find(&m->tensor_names, kept, nbytes);
    if (kept != name)
        free(kept);
    return id == STRTAB_NONE ? SIZE_MAX : id;
}

const uint64_t *manifest_shape(const manifest *m, const manifest_tensor *t)
{
    return t->ndim == 0 ? NULL : VEC_AT(&m->shapes, const uint64_t, t->shape_at);
}

/* ---- order and sums ---- */

typedef struct sorted_name {
    const char *text;
    size_t nbytes;
    uint32_t id;
} sorted_name;

static int compare_names(const void *a, const void *b)
{
    const sorted_name *x = a, *y = b;
    return text_order(x->text, x->nbytes, y->text, y->nbytes);
}

uint32_t *manifest_sorted_names(const strtab *names, fsdpck_error *err)
{
    const size_t count = strtab_count(names);
    sorted_name *list = calloc(count + 1, sizeof *list);
    uint32_t *order = calloc(count + 1, sizeof *order);
    if (list == NULL || order == NULL) {
        free(list);
        free(order);
        error_set_nomem(err, count * sizeof *list);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        list[i] = (sorted_name){strtab_text(names, i), strtab_nbytes(names, i), i};
    qsort(list, count, sizeof *list, compare_names);
    for (size_t i = 0; i < count; i++)
        order[i] = list[i].id;
    free(list);
    return order;
}

void manifest_put_type(text_buf *out, dtype d, unsigned ndim, const uint64_t *shape)
{
    text_printf(out, "%s[", dtype_get(d)->name);
    for (unsigned i = 0; i < ndim; i++)
        text_printf(out, "%s%" PRIu64, i == 0 ? "" : ",", shape[i]);
    text_puts(out, "]");
}

uint64_t manifest_digest_line(uint64_t crc, uint64_t digest, const char *type, const char *name,
                              size_t name_nbytes)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016" PRIx64 "  ", digest);
    crc = crc64_update(crc, hex, 18);
    crc = crc64_update(crc, type, strlen(type));
    crc = crc64_update(crc, "  ", 2);
    crc = crc64_update(crc, name, name_nbytes);
    return crc64_update(crc, "\n", 1);
}

fsdpck_status manifest_digest(const manifest *m, uint64_t *sum, fsdpck_error *err)
{
    text_buf type = {0};
    uint32_t *order = manifest_sorted_names(&m->tensor_names, err);
    fsdpck_status st = order == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    *sum = 0;
    for (size_t i = 0; st == FSDPCK_OK && i < m->tensors.count; i++) {
        const manifest_tensor *t = VEC_AT(&m->tensors, const manifest_tensor, order[i]);
        type.nbytes = 0;
        manifest_put_type(&type, (dtype)t->dtype, t->ndim, manifest_shape(m, t));
        st = text_check(&type, err);
        if (st == FSDPCK_OK)
            *sum = manifest_digest_line(*sum, t->digest, type.text,
                                        strtab_text(&m->tensor_names, order[i]),
                                        strtab_nbytes(&m->tensor_names, order[i]));
    }
    text_release(&type);
    free(order);
    return st;
}

/* ---- writing ---- */

static void put_hex(json_writer *w, const char *key, const uint8_t *bytes, size_t nbytes)
{
    char hex[80];
    for (size_t i = 0; i < nbytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    json_member_text(w, key, hex, 2 * nbytes);
}

static void put_hex64(json_writer *w, const char *key, uint64_t v)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (56 - 8 * i));
    put_hex(w, key, bytes, sizeof bytes);
}

/* One line per entry, so that line-based tools such as diff are useful. */
static void put_files(const manifest *m, const uint32_t *order, json_writer *w)
{
    json_member_array(w, "files");
    for (size_t i = 0; i < m->files.count; i++) {
        const manifest_file *f = VEC_AT(&m->files, const manifest_file, order[i]);
        json_begin_line(w);
        json_member_text(w, "name", strtab_text(&m->file_names, order[i]),
                         strtab_nbytes(&m->file_names, order[i]));
        json_member_u64(w, "nbytes", f->nbytes);
        put_hex64(w, "crc64", f->crc64);
        if (f->has_sha256)
            put_hex(w, "sha256", f->sha256, sizeof f->sha256);
        json_end_line(w);
    }
    json_end_array(w);
}

static void put_tensors(const manifest *m, const uint32_t *order, json_writer *w)
{
    json_member_array(w, "tensors");
    for (size_t i = 0; i < m->tensors.count; i++) {
        const manifest_tensor *t = VEC_AT(&m->tensors, const manifest_tensor, order[i]);
        json_begin_line(w);
        json_member_text(w, "name", strtab_text(&m->tensor_names, order[i]),
                         strtab_nbytes(&m->tensor_names, order[i]));
        json_member_string(w, "dtype", dtype_get((dtype)t->dtype)->name);
        json_member_u64s(w, "shape", manifest_shape(m, t), t->ndim);
        put_hex64(w, "digest", t->digest);
        json_end_line(w);
    }
    json_end_array(w);
}

static fsdpck_status put_all(const manifest *m, const uint32_t *files, const uint32_t *tensors,
                             text_buf *out, fsdpck_error *err)
{
    json_writer w;
    uint64_t sum;
    RETURN_IF(manifest_digest(m, &sum, err));
    json_writer_init(&w, out, 1);
    json_begin_object(&w);
    json_member_string(&w, "schema", MANIFEST_SCHEMA);
    json_member_u64(&w, "version", MANIFEST_VERSION);
    json_member_string(&w, "checksum", "crc64-xz");
    put_hex64(&w, "digest", sum);
    put_files(m, files, &w);
    put_tensors(m, tensors, &w);
    json_end_object(&w);
    text_puts(out, "\n");
    return text_check(out, err);
}

fsdpck_status manifest_write(const manifest *m, text_buf *out, fsdpck_error *err)
{
    uint32_t *files = manifest_sorted_names(&m->file_names, err);
    uint32_t *tensors = files == NULL ? NULL : manifest_sorted_names(&m->tensor_names, err);
    const fsdpck_status st = tensors == NULL ? FSDPCK_LIMIT : put_all(m, files, tensors, out, err);
    free(files);
    free(tensors);
    return st;
}
