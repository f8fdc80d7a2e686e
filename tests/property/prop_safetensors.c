/* What the hf writer lays out, its reader finds: random tensors, cut into files at random limits,
 * written as laid out and opened by several threads, have the same dtypes, shapes and bytes.
 *
 *     prop_safetensors [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/st.h"
#include "tests/support/rounds.h"
#include "tests/support/scratch.h"

static uint8_t byte_of(uint32_t tensor, uint64_t i)
{
    return (uint8_t)((tensor * 2654435761u) >> 24 ^ (i * 31 + 7));
}

static void add_tensors(target *t, unsigned count)
{
    static const uint64_t zeros[NDIM_MAX];
    for (unsigned i = 0; i < count; i++) {
        char name[64];
        uint64_t shape[5];
        dtype d;
        do
            d = (dtype)(1 + below(DTYPE_COUNT - 1));
        while (!hf_writer.holds(d));
        unsigned ndim = (unsigned)below(5);
        if (ndim == 0 && dtype_get(d)->packing > 1)
            ndim = 1;
        for (unsigned k = 0; k < ndim; k++)
            shape[k] = below(6);
        const int n = snprintf(name, sizeof name, "%c\"\\%c.%u", (int)('a' + below(3)),
                               (int)(1 + below(31)), i);
        const cat_chunk proto = {.file = CAT_NONE, .place = LOCATION_ROWS};
        uint32_t tensor;
        REQUIRE(catalogue_add_tensor(&t->cat, name, (size_t)n, d, ndim, shape, &tensor, NULL) ==
                FSDPCK_OK);
        REQUIRE(catalogue_add_chunk(&t->cat, tensor, zeros, shape, &proto, NULL) == FSDPCK_OK);
    }
    REQUIRE(catalogue_seal(&t->cat, NULL) == FSDPCK_OK);
}

static void write_files(const target *t, const char *dir)
{
    for (uint32_t f = 0; f < catalogue_file_count(&t->cat); f++) {
        const cat_file *file_row = catalogue_file(&t->cat, f);
        uint8_t *bytes = calloc(1, file_row->nbytes + 1);
        REQUIRE(bytes != NULL);
        for (size_t i = 0; i < t->literals.count; i++) {
            const target_constant *lit = VEC_AT(&t->literals, const target_constant, i);
            if (lit->file != f)
                continue;
            REQUIRE(lit->offset_bytes + lit->nbytes <= file_row->nbytes);
            memcpy(bytes + lit->offset_bytes, t->text.text + lit->text_at, lit->nbytes);
        }
        for (uint64_t k = 0; k < catalogue_chunk_count(&t->cat); k++) {
            const cat_chunk *c = catalogue_chunk(&t->cat, k);
            if (c->file != f || c->place == LOCATION_EMPTY)
                continue;
            REQUIRE(c->offset_bytes + c->nbytes <= file_row->nbytes);
            for (uint64_t i = 0; i < c->nbytes; i++)
                bytes[c->offset_bytes + i] = byte_of(c->tensor, i);
        }
        scratch_write(dir, catalogue_name(&t->cat, file_row->path), bytes, file_row->nbytes);
        free(bytes);
    }
}

static void compare_tensor(const target *t, uint32_t tensor, const source *src)
{
    const cat_tensor *want = catalogue_tensor(&t->cat, tensor);
    const uint32_t found = catalogue_find(src->cat, catalogue_name(&t->cat, want->name),
                                          catalogue_name_nbytes(&t->cat, want->name));
    REQUIRE(found != CAT_NONE);
    const cat_tensor *got = catalogue_tensor(src->cat, found);
    REQUIRE(got->dtype == want->dtype && got->ndim == want->ndim && got->nchunks == 1);
    REQUIRE(got->ndim == 0 ||
            memcmp(catalogue_shape(src->cat, found), catalogue_shape(&t->cat, tensor),
                   got->ndim * sizeof(uint64_t)) == 0);
    const uint64_t nbytes = catalogue_tensor_nbytes(&t->cat, tensor);
    if (nbytes == 0) {
        REQUIRE(catalogue_chunk(src->cat, got->first_chunk)->place == LOCATION_EMPTY);
        return;
    }
    place where;
    REQUIRE(src->locate(src->ctx, got->first_chunk, &where, NULL) == FSDPCK_OK);
    REQUIRE(where.rows && where.record_nbytes == nbytes);
    uint8_t *bytes = malloc(nbytes);
    REQUIRE(bytes != NULL);
    REQUIRE(src->read_at(src->ctx, where.file, where.offset_bytes, bytes, nbytes, NULL) ==
            FSDPCK_OK);
    for (uint64_t i = 0; i < nbytes; i++)
        REQUIRE(bytes[i] == byte_of(tensor, i));
    free(bytes);
}

static void read_back(const target *t, const char *dir, budget *owner)
{
    probe_input in = {.path = dir, .is_folder = true};
    const char *near_miss = NULL;
    catalogue cat;
    void *self = NULL;
    source src;
    REQUIRE(folder_open(&in.dir, dir, NULL) == FSDPCK_OK);
    REQUIRE(folder_list(&in.dir, ".", &in.entries, &in.entry_count, NULL) == FSDPCK_OK);
    REQUIRE(hf_reader.probe(&in, &near_miss));
    catalogue_init(&cat, owner);
    const open_request req = {.path = dir, .probe = &in, .metadata = owner, .nthreads = 4};
    REQUIRE(hf_reader.open(&req, &cat, &self, NULL) == FSDPCK_OK);
    hf_reader.source(self, &cat, &src);
    REQUIRE(catalogue_tensor_count(&cat) == catalogue_tensor_count(&t->cat));
    for (uint32_t i = 0; i < catalogue_tensor_count(&t->cat); i++)
        compare_tensor(t, i, &src);
    REQUIRE(src.check_unchanged(src.ctx, NULL) == FSDPCK_OK);
    hf_reader.close(self);
    catalogue_release(&cat);
    free(in.entries);
    folder_close(&in.dir);
}

static void run_round(void)
{
    char dir[SCRATCH_BYTES];
    budget owner;
    target t;
    scratch_make(dir);
    budget_init(&owner, (uint64_t)64 << 20, "metadata", NULL);
    target_init(&t, &owner);
    add_tensors(&t, (unsigned)below(40));
    const writer_options opt = {.max_shard_nbytes = below(3) == 0 ? 0 : 1 + below(3000)};
    REQUIRE(hf_writer.layout(&t, &opt, NULL) == FSDPCK_OK);
    write_files(&t, dir);
    read_back(&t, dir, &owner);
    target_release(&t);
    REQUIRE(owner.used_bytes == 0);
    scratch_remove(dir);
}

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200;
    for (the_round = 0; the_round < rounds; the_round++) {
        state = the_round;
        run_round();
    }
    return 0;
}
