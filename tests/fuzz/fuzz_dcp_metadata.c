/* Bytes as a `.metadata`: parsed, joined, checked against files of made-up sizes, sealed and walked.
 * The writer then lays out a checkpoint of the same tensors and objects, and what it writes as its
 * `.metadata` must say the same of them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void walk(const catalogue *cat)
{
    for (size_t t = 0; t < catalogue_tensor_count(cat); t++) {
        const cat_tensor *tensor = catalogue_tensor(cat, t);
        const uint64_t *shape = catalogue_shape(cat, t);
        for (uint64_t k = tensor->first_chunk; k < tensor->first_chunk + tensor->nchunks; k++) {
            uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
            const cat_chunk *c = catalogue_chunk(cat, k);
            catalogue_chunk_box(cat, k, offsets, sizes);
            for (unsigned d = 0; d < tensor->ndim; d++)
                if (offsets[d] > shape[d] || sizes[d] > shape[d] - offsets[d])
                    abort();
            if (c->place != LOCATION_EMPTY &&
                (c->file >= catalogue_file_count(cat) ||
                 c->offset_bytes + c->nbytes > catalogue_file(cat, c->file)->nbytes))
                abort();
        }
        for (size_t i = 0; i < value_count(&cat->pool, tensor->path); i++) {
            const value_kind kind = value_kind_of(value_item(&cat->pool, tensor->path, i));
            if (kind != VALUE_STR && kind != VALUE_INT)
                abort();
        }
    }
}

enum { CHUNKS_MAX = 64, WRITTEN_MAX = 500 };

static value copy_path(target *to, const catalogue *from, value path)
{
    value copied = VALUE_OF_NONE;
    MUST(value_is_none(path) ||
         value_copy(&from->pool, path, &to->cat.pool, NULL, &copied, NULL) == FSDPCK_OK);
    return copied;
}

static bool has_box_before(const catalogue *c, const cat_tensor *t, uint64_t chunk)
{
    uint64_t o[2][NDIM_MAX], s[2][NDIM_MAX];
    catalogue_chunk_box(c, chunk, o[0], s[0]);
    for (uint64_t k = t->first_chunk; k < chunk; k++) {
        catalogue_chunk_box(c, k, o[1], s[1]);
        if (box_equal(o[0], s[0], o[1], s[1], t->ndim))
            return true;
    }
    return false;
}

/* Replicas are written once. False where a writer cannot be asked: too much, one rank's own. */
static bool add_tensor(target *to, const catalogue *from, size_t i)
{
    const cat_tensor *t = catalogue_tensor(from, i);
    const uint8_t flags = t->flags & CAT_TENSOR_REQUIRES_GRAD;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint32_t index;
    if (t->flags != flags || t->nchunks > CHUNKS_MAX)
        return false;
    MUST(catalogue_add_tensor(&to->cat, catalogue_name(from, t->name),
                              catalogue_name_nbytes(from, t->name), (dtype)t->dtype, t->ndim,
                              catalogue_shape(from, i), &index, NULL) == FSDPCK_OK);
    catalogue_tensor(&to->cat, index)->flags = flags;
    catalogue_tensor(&to->cat, index)->path = copy_path(to, from, t->path);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const cat_chunk proto = {.file = CAT_NONE, .place = LOCATION_ROWS};
        if (has_box_before(from, t, k))
            continue;
        catalogue_chunk_box(from, k, offsets, sizes);
        MUST(catalogue_add_chunk(&to->cat, index, offsets, sizes, &proto, NULL) == FSDPCK_OK);
    }
    return true;
}

static bool fill_target(target *to, const catalogue *from)
{
    bool fits = catalogue_tensor_count(from) + catalogue_object_count(from) <= WRITTEN_MAX;
    for (size_t i = 0; fits && i < catalogue_tensor_count(from); i++)
        fits = add_tensor(to, from, i);
    for (size_t i = 0; fits && i < catalogue_object_count(from); i++) {
        const cat_object *o = catalogue_object(from, i);
        uint32_t index;
        fits = o->rank == UINT16_MAX;
        MUST(catalogue_add_object(&to->cat, catalogue_name(from, o->name),
                                  catalogue_name_nbytes(from, o->name), &index, NULL) == FSDPCK_OK);
        catalogue_object(&to->cat, index)->loaded = 1;
        catalogue_object(&to->cat, index)->content = VALUE_OF_NONE;
        catalogue_object(&to->cat, index)->path = copy_path(to, from, o->path);
    }
    return fits && catalogue_seal(&to->cat, NULL) == FSDPCK_OK;
}

/* A flat key without a path is written with one of itself. */
static void check_add_path(const catalogue *a, value path_a, const catalogue *b, value path_b,
                           uint32_t name_b)
{
    bool equal = false;
    if (!value_is_none(path_a) && value_count(&a->pool, path_a) > 0) {
        MUST(value_equal(&a->pool, path_a, &b->pool, path_b, &equal, NULL) == FSDPCK_OK && equal);
        return;
    }
    size_t n = 0;
    const char *text;
    MUST(value_is_none(path_b) ||
         (value_count(&b->pool, path_b) == 1 &&
          (text = value_text(&b->pool, value_item(&b->pool, path_b, 0), &n)) != NULL &&
          n == catalogue_name_nbytes(b, name_b) &&
          memcmp(text, catalogue_name(b, name_b), n) == 0));
}

/* a: as written; b: as read back. */
static void check_same(const catalogue *a, const catalogue *b)
{
    MUST(catalogue_tensor_count(a) == catalogue_tensor_count(b) &&
         catalogue_object_count(a) == catalogue_object_count(b));
    for (size_t i = 0; i < catalogue_tensor_count(a); i++) {
        const cat_tensor *x = catalogue_tensor(a, i);
        const uint32_t at =
            catalogue_find(b, catalogue_name(a, x->name), catalogue_name_nbytes(a, x->name));
        MUST(at != CAT_NONE);
        const cat_tensor *y = catalogue_tensor(b, at);
        MUST(x->dtype == y->dtype && x->ndim == y->ndim && x->nchunks == y->nchunks &&
             x->flags == y->flags);
        MUST(box_equal(catalogue_shape(a, i), catalogue_shape(a, i), catalogue_shape(b, at),
                       catalogue_shape(b, at), x->ndim));
        for (uint64_t k = 0; k < x->nchunks; k++) {
            uint64_t o[2][NDIM_MAX], s[2][NDIM_MAX];
            catalogue_chunk_box(a, x->first_chunk + k, o[0], s[0]);
            catalogue_chunk_box(b, y->first_chunk + k, o[1], s[1]);
            MUST(box_equal(o[0], s[0], o[1], s[1], x->ndim));
        }
        check_add_path(a, x->path, b, y->path, y->name);
    }
    for (size_t i = 0; i < catalogue_object_count(a); i++) {
        const cat_object *x = catalogue_object(a, i), *y = catalogue_object(b, i);
        const size_t n = catalogue_name_nbytes(a, x->name);
        MUST(n == catalogue_name_nbytes(b, y->name) &&
             memcmp(catalogue_name(a, x->name), catalogue_name(b, y->name), n) == 0);
        check_add_path(a, x->path, b, y->path, y->name);
    }
}

static void read_again(const target *to, const target_constant *written, budget *b)
{
    dcp_names names;
    catalogue cat;
    dcp_metadata m;
    dcp_builder builder;
    const pickle_input in = {.bytes = (const uint8_t *)to->text.text + written->text_at,
                             .nbytes = (size_t)written->nbytes};
    catalogue_init(&cat, b);
    MUST(dcp_names_init(&names, b, NULL) == FSDPCK_OK);
    fsdpck_status st = dcp_metadata_read(&in, &names, &cat.pool, false, &m, NULL);
    MUST(st == FSDPCK_OK || st == FSDPCK_LIMIT);
    if (st == FSDPCK_OK) {
        dcp_builder_init(&builder, &cat, &names);
        st = dcp_builder_add(&builder, &m, NULL);
        MUST(st == FSDPCK_OK || st == FSDPCK_LIMIT);
        MUST(builder.stray_blobs == 0 && builder.leftovers == 0);
        dcp_builder_release(&builder);
        dcp_metadata_release(&m);
        for (size_t i = 0; i < catalogue_file_count(&cat); i++)
            catalogue_file(&cat, i)->nbytes = INT64_MAX;
        if (st == FSDPCK_OK && catalogue_seal(&cat, NULL) == FSDPCK_OK)
            check_same(&to->cat, &cat);
    }
    catalogue_release(&cat);
    dcp_names_release(&names);
}

static void write_again(const catalogue *from)
{
    const writer_options options = {0};
    budget b;
    target to;
    budget_init(&b, 64u << 20, "metadata", NULL);
    target_init(&to, &b);
    to.world_size = 1;
    to.is_folder = true;
    if (fill_target(&to, from) && dcp_writer.layout(&to, &options, NULL) == FSDPCK_OK) {
        const target_constant *l = to.literals.items;
        size_t i = 0;
        while (i < to.literals.count && l[i].file != catalogue_file_count(&to.cat) - 1)
            i++;
        MUST(i + 1 == to.literals.count && l[i].offset_bytes == 0);
        read_again(&to, &l[i], &b);
    }
    target_release(&to);
    MUST(b.used_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    budget b;
    dcp_names names;
    catalogue cat;
    dcp_metadata m;
    fsdpck_error err;

    fsdpck_error_init(&err);
    budget_init(&b, 64u << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    if (dcp_names_init(&names, &b, &err) != FSDPCK_OK)
        abort();
    const pickle_input in = {.bytes = data, .nbytes = nbytes};
    /* The last byte but the STOP decides about opaque calls, so that both ways are tried. */
    const bool opaque = nbytes > 1 && (data[nbytes - 2] & 1) != 0;
    if (dcp_metadata_read(&in, &names, &cat.pool, opaque, &m, &err) == FSDPCK_OK) {
        dcp_builder builder;
        dcp_builder_init(&builder, &cat, &names);
        fsdpck_status st = dcp_builder_add(&builder, &m, &err);
        dcp_builder_release(&builder);
        dcp_metadata_release(&m);
        for (size_t i = 0; i < catalogue_file_count(&cat); i++)
            catalogue_file(&cat, i)->nbytes = (uint64_t)1 << (10 + i % 30);
        if (st == FSDPCK_OK)
            st = dcp_ranges_check(NULL, &cat, &err);
        if (st == FSDPCK_OK && catalogue_seal(&cat, &err) == FSDPCK_OK) {
            walk(&cat);
            write_again(&cat);
        }
    } else if (err.status == FSDPCK_OK || err.message[0] == '\0') {
        abort(); /* a failure without a word */
    }
    catalogue_release(&cat);
    dcp_names_release(&names);
    if (b.used_bytes != 0)
        abort();
    return 0;
}
