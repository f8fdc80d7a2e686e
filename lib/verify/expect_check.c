/* Compares expected names, dtypes and shapes, from any kind of list. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "compare/digest.h"
#include "verify/expect_internal.h"

/* Lists of names and indexes: some ten million tensors. */
#define LIST_NBYTES_MAX ((uint64_t)2 << 30)

static const expect_ids expect_list_ids = {FSDPCK_FINDING_EXPECT_MISSING,
                                           FSDPCK_FINDING_EXPECT_EXTRA, FSDPCK_FINDING_EXPECT_TYPE,
                                           "the expected list"};

/* ---- two sets of names of a checkpoint ---- */

/* The whole checkpoint under its own names; and the model part under the model's names. */
typedef struct naming_sets {
    run model; /* its target, where has_model */
    bool has_model;
    const catalogue *all;
} naming_sets;

static void naming_sets_release(naming_sets *v)
{
    run_release(&v->model);
}

/* ctx: a separate one, as warnings of the selection are no findings of the checkpoint. */
static void naming_sets_init(naming_sets *v, fsdpck_context *ctx, fsdpck_checkpoint *src)
{
    run_options options;
    run_options_init(&options);
    options.select.part = FSDPCK_PART_MODEL;
    run_init(&v->model, ctx, src, &options);
    v->model.dst = "";
    v->has_model = digest_select(&v->model, NULL) == FSDPCK_OK;
    v->all = &src->cat;
}

static const catalogue *naming_set_of(const naming_sets *v, bool as_model)
{
    return as_model ? &v->model.to.cat : v->all;
}

static uint64_t count_matching(const manifest *list, const catalogue *cat)
{
    uint64_t met = 0;
    for (size_t i = 0; i < list->tensors.count; i++)
        met += catalogue_find(cat, strtab_text(&list->tensor_names, (uint32_t)i),
                              strtab_nbytes(&list->tensor_names, (uint32_t)i)) != CAT_NONE;
    return met;
}

/* ---- lists ---- */

static fsdpck_status refuse(const char *what, fsdpck_error *err)
{
    return FAIL(err, BADINPUT, EXPECT_LIST, "%s", what);
}

static fsdpck_status add_name(manifest *list, const char *name, size_t nbytes, fsdpck_error *err)
{
    if (manifest_find_tensor(list, name, nbytes) != SIZE_MAX)
        return FSDPCK_OK;
    return manifest_add_tensor(list, name, nbytes, DTYPE_NONE, 0, NULL, 0, err);
}

/* "float32[5,3]" */
static bool read_type(const char *text, size_t nbytes, dtype *d, unsigned *ndim, uint64_t *shape)
{
    const char *bracket = memchr(text, '[', nbytes);
    if (bracket == NULL || text[nbytes - 1] != ']')
        return false;
    *d = dtype_from_name(text, (size_t)(bracket - text));
    *ndim = 0;
    for (const char *at = bracket + 1; at < text + nbytes - 1; at++) {
        uint64_t v = 0;
        const char *const first = at;
        for (; *at >= '0' && *at <= '9' && at - first < 19; at++)
            v = v * 10 + (uint64_t)(*at - '0');
        if (at == first || (*at != ',' && *at != ']') || *ndim == NDIM_MAX)
            return false;
        shape[(*ndim)++] = v;
    }
    return *d != DTYPE_NONE;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* The name that fsdpck digest prints as `text`: "\x09" is one byte. dst: nbytes. */
static size_t unescape(char *dst, const char *text, size_t nbytes)
{
    size_t n = 0;
    for (size_t i = 0; i < nbytes; n++) {
        const bool pair = nbytes - i >= 4 && text[i] == '\\' && text[i + 1] == 'x' &&
                          hex_digit(text[i + 2]) >= 0 && hex_digit(text[i + 3]) >= 0;
        dst[n] = pair ? (char)(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3])) : text[i];
        i += pair ? 4 : 1;
    }
    return n;
}

/* A backslash is not escaped: the name in the list is literal if it is in the checkpoint, or if it
 * would be printed otherwise. */
static fsdpck_status add_printed(manifest *list, const catalogue *cat, const digest_line *l,
                                 dtype d, unsigned ndim, const uint64_t *shape, fsdpck_error *err)
{
    const char *name = l->name;
    size_t nbytes = l->name_nbytes;
    char *raw = malloc(5 * nbytes + 1), *printed = raw == NULL ? NULL : raw + nbytes;
    if (raw == NULL)
        return error_set_nomem(err, 5 * nbytes + 1);
    const size_t n = unescape(raw, name, nbytes);
    escape_text(printed, 4 * nbytes + 1, raw, n);
    if (n < nbytes && catalogue_find(cat, name, nbytes) == CAT_NONE &&
        text_is(name, nbytes, printed)) {
        name = raw;
        nbytes = n;
    }
    fsdpck_status st = FSDPCK_OK;
    if (manifest_find_tensor(list, name, nbytes) == SIZE_MAX)
        st = manifest_add_tensor(list, name, nbytes, d, ndim, shape, l->value, err);
    free(raw);
    return st;
}

static fsdpck_status add_line(manifest *list, const catalogue *cat, const char *text, size_t nbytes,
                              fsdpck_error *err)
{
    uint64_t shape[NDIM_MAX];
    digest_line l = {0};
    unsigned ndim;
    dtype d;
    if (!digest_line_parse(text, nbytes, &l))
        return add_name(list, text, nbytes, err);
    if (l.type_nbytes == 5 && memcmp(l.type, "whole", 5) == 0)
        return FSDPCK_OK;
    if (!read_type(l.type, l.type_nbytes, &d, &ndim, shape))
        return add_name(list, text, nbytes, err);
    return add_printed(list, cat, &l, d, ndim, shape, err);
}

static fsdpck_status read_lines(manifest *list, const catalogue *cat, const char *text,
                                size_t nbytes, fsdpck_error *err)
{
    if (memchr(text, '\0', nbytes) != NULL)
        return refuse("list of expected tensors is not text", err);
    for (size_t at = 0; at < nbytes;) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        size_t length = end == NULL ? nbytes - at : (size_t)(end - (text + at));
        const size_t next = at + length + 1;
        if (length > 0 && text[at + length - 1] == '\r')
            length--;
        if (length > 0 && text[at] != '#')
            RETURN_IF(add_line(list, cat, text + at, length, err));
        at = next;
    }
    return FSDPCK_OK;
}

/* The keys of an index's "weight_map". */
static fsdpck_status read_index(manifest *list, const char *text, size_t nbytes, fsdpck_error *err)
{
    static const char key[] = "weight_map";
    json_reader r;
    json_token t;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_EXPECT_LIST);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    while (st == FSDPCK_OK) {
        st = json_next(&r, &t, err);
        if (st != FSDPCK_OK || t.kind != JSON_KEY)
            break;
        const bool map = t.nbytes == sizeof key - 1 && memcmp(t.text, key, t.nbytes) == 0;
        st = json_next(&r, &t, err);
        if (st == FSDPCK_OK && (!map || t.kind != JSON_OBJECT)) {
            st = json_skip(&r, &t, err);
            continue;
        }
        while (st == FSDPCK_OK && (st = json_next(&r, &t, err)) == FSDPCK_OK &&
               t.kind == JSON_KEY) {
            st = add_name(list, t.text, t.nbytes, err);
            if (st == FSDPCK_OK)
                st = json_next(&r, &t, err);
            if (st == FSDPCK_OK)
                st = json_skip(&r, &t, err);
        }
    }
    if (st == FSDPCK_OK)
        st = json_expect(&r, JSON_END, &t, err);
    json_reader_release(&r);
    return st;
}

static fsdpck_status read_list(manifest *list, const catalogue *cat, const char *path,
                               fsdpck_error *err)
{
    char *text;
    size_t nbytes, at = 0;
    RETURN_IF(file_read_whole(NULL, path, LIST_NBYTES_MAX, &text, &nbytes, err));
    while (at < nbytes && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r'))
        at++;
    fsdpck_status st;
    if (manifest_is_likely(text, nbytes))
        st = manifest_read(list, text, nbytes, err);
    else if (at < nbytes && text[at] == '{')
        st = read_index(list, text, nbytes, err);
    else
        st = read_lines(list, cat, text, nbytes, err);
    free(text);
    if (st == FSDPCK_OK && list->tensors.count == 0)
        st = refuse("list of expected tensors is empty", err);
    if (st != FSDPCK_OK)
        error_path(err, path);
    return st;
}

/* ---- another checkpoint ---- */

static bool is_checkpoint(const char *path)
{
    probe_input in;
    const char *near_miss = NULL;
    const bool found = probe_gather(path, &in, NULL) == FSDPCK_OK &&
                       (in.is_folder || probe_readers(&in, &near_miss) != NULL);
    probe_release(&in);
    return found;
}

static fsdpck_status list_catalogue(manifest *list, const catalogue *cat, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        if (expect_is_listed(t))
            RETURN_IF(manifest_add_tensor(list, catalogue_name(cat, t->name),
                                          catalogue_name_nbytes(cat, t->name), (dtype)t->dtype,
                                          t->ndim, catalogue_shape(cat, i), 0, err));
    }
    return FSDPCK_OK;
}

/* ---- both sides ---- */

/* Uses the set in which more names match; `part` is empty without such a set. */
static void compare(const expect_request *r, const naming_sets *v, const manifest *all,
                    const manifest *part)
{
    const bool as_model = v->has_model && count_matching(part, naming_set_of(v, true)) >
                                              count_matching(all, naming_set_of(v, false));
    const expect_naming names = {0};
    (void)expect_compare(as_model ? part : all, &names, naming_set_of(v, as_model),
                         &expect_list_ids, r->found);
}

static fsdpck_status expect_checkpoint(const expect_request *r, fsdpck_context *ctx,
                                       const naming_sets *v, const char *path, fsdpck_error *err)
{
    fsdpck_checkpoint *other;
    naming_sets w;
    manifest all, part;
    RETURN_IF(fsdpck_open(ctx, path, NULL, &other, err));
    naming_sets_init(&w, ctx, other);
    manifest_init(&all, &other->metadata);
    manifest_init(&part, &other->metadata);
    fsdpck_status st = list_catalogue(&all, naming_set_of(&w, false), err);
    if (st == FSDPCK_OK && w.has_model)
        st = list_catalogue(&part, naming_set_of(&w, true), err);
    if (st == FSDPCK_OK)
        compare(r, v, &all, &part);
    manifest_release(&all);
    manifest_release(&part);
    naming_sets_release(&w);
    fsdpck_close(other);
    return st;
}

static fsdpck_status expect_list(const expect_request *r, const naming_sets *v, const char *path,
                                 fsdpck_error *err)
{
    manifest list;
    manifest_init(&list, &r->src->metadata);
    const fsdpck_status st = read_list(&list, &r->src->cat, path, err);
    if (st == FSDPCK_OK)
        compare(r, v, &list, &list);
    manifest_release(&list);
    return st;
}

fsdpck_status expect_check(const expect_request *r, const char *expect, fsdpck_error *err)
{
    naming_sets v;
    if (r->src == NULL)
        return FSDPCK_OK;
    fsdpck_context *ctx = fsdpck_context_new();
    if (ctx == NULL)
        return error_set_nomem(err, sizeof *ctx);
    naming_sets_init(&v, ctx, r->src);
    const fsdpck_status st = is_checkpoint(expect) ? expect_checkpoint(r, ctx, &v, expect, err)
                                                   : expect_list(r, &v, expect, err);
    naming_sets_release(&v);
    fsdpck_context_free(ctx);
    return st;
}
