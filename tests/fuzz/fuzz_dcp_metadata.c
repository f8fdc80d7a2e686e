/* Bytes as a `.metadata`: parsed, joined, checked against files of made-up sizes, sealed and
 * walked. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_folder.h"

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
            if (c->place != PLACE_EMPTY &&
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
        if (st == FSDPCK_OK && catalogue_seal(&cat, &err) == FSDPCK_OK)
            walk(&cat);
    } else if (err.status == FSDPCK_OK || err.message[0] == '\0') {
        abort(); /* a failure without a word */
    }
    catalogue_release(&cat);
    dcp_names_release(&names);
    if (b.used_bytes != 0)
        abort();
    return 0;
}
