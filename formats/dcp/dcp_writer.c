#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/dcp_write.h"

/* A folder that torch.distributed.checkpoint of torch 2.1 to 2.15 loads: `__{rank}_0.distcp` of
 * every rank, byte items first, then tensors, and `.metadata` (dcp_write_metadata.c). A rank that
 * has nothing to write has an empty file, as torch leaves it. No path, host, time or random number
 * is in any byte. */

static uint32_t file_of_chunk(const target *t, uint64_t chunk)
{
    const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    return catalogue_tensor(&t->cat, c->tensor)->flags & CAT_TENSOR_IN_OBJECT ? CAT_NONE : c->file;
}

static uint32_t file_of_object(const target *t, uint64_t object)
{
    return catalogue_object(&t->cat, object)->file;
}

/* --- state --- */

static void free_state(void *state)
{
    dcp_write *w = state;

    if (w == NULL)
        return;
    strtab_release(&w->form_keys);
    strtab_release(&w->pickles);
    vec_release(&w->forms);
    vec_release(&w->pickle_blobs);
    vec_release(&w->inner_blobs);
    vec_release(&w->inner_chunks);
    budget_free(w->owner, w, sizeof *w);
}

static fsdpck_status make_state(target *t, fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    dcp_write *w = budget_alloc(owner, sizeof *w, err);

    if (w == NULL)
        return FSDPCK_LIMIT;
    *w = (dcp_write){
        .owner = owner,
        .forms = VEC_OF(dcp_form, owner),
        .pickle_blobs = VEC_OF(dcp_pickle_blob, owner),
        .inner_blobs = VEC_OF(dcp_inner_blob, owner),
        .inner_chunks = VEC_OF(uint64_t, owner),
    };
    strtab_init(&w->form_keys, owner);
    strtab_init(&w->pickles, owner);
    t->writer_state = w;
    t->free_writer_state = free_state;
    t->make_late = dcp_make_late;
    t->want_crc = true;
    t->is_folder = true;
    return FSDPCK_OK;
}

/* --- checks --- */

/* A flat key names one item: the dicts of .metadata would keep one of two. */
static fsdpck_status check_names(const target *t, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const size_t count = strtab_count(&cat->names);
    uint8_t *seen = budget_alloc(cat->owner, count, err);
    fsdpck_status st = FSDPCK_OK;

    if (seen == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        if (!(catalogue_tensor(cat, i)->flags & CAT_TENSOR_IN_OBJECT))
            seen[catalogue_tensor(cat, i)->name] = 1;
    }
    for (size_t i = 0; i < catalogue_object_count(cat) && st == FSDPCK_OK; i++) {
        const uint32_t name = catalogue_object(cat, i)->name;
        if (seen[name]) {
            st = error_set(err, FSDPCK_UNSUPPORTED, "KEY-DUP",
                           "a DCP folder cannot hold two entries of one name");
            error_tensor(err, catalogue_name(cat, name));
            error_next(err, "rename one of them with --rename, or leave one out with --exclude");
        }
        seen[name] = 1;
    }
    budget_free(cat->owner, seen, count);
    return st;
}

static fsdpck_status check_options(const target *t, const writer_options *opt, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        const cat_tensor *tensor = catalogue_tensor(&t->cat, i);
        if (tensor->alias != CAT_NONE || (tensor->flags & CAT_TENSOR_STORAGE))
            return error_set(err, FSDPCK_INTERNAL, "", "a DCP folder holds compact tensors only");
    }
    if (opt->align_nbytes > DCP_ALIGN_NBYTES_MAX)
        return error_set(err, FSDPCK_USAGE, "",
                         "alignment of %" PRIu64 " bytes is over the most, %u", opt->align_nbytes,
                         DCP_ALIGN_NBYTES_MAX);
    return FSDPCK_OK;
}

/* --- layout --- */

/* Inner tensors have no file until their object is put; cat_chunk.file tells. */
static fsdpck_status add_files(target *t, fsdpck_error *err)
{
    char name[40];
    uint32_t index;

    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++)
        catalogue_chunk(&t->cat, i)->file = CAT_NONE;
    for (uint32_t rank = 0; rank < t->world_size; rank++) {
        const int n = snprintf(name, sizeof name, "__%" PRIu32 "_0.distcp", rank);
        RETURN_IF(catalogue_add_file(&t->cat, name, (size_t)n, 0, rank, &index, err));
        if (index != rank)
            return error_set(err, FSDPCK_INTERNAL, "", "a target has files before it is laid out");
    }
    return FSDPCK_OK;
}

static fsdpck_status put_files(target *t, const writer_options *opt, const rank_order *chunks,
                               const rank_order *objects, fsdpck_error *err)
{
    dcp_write *w = t->writer_state;

    for (uint32_t rank = 0; rank < t->world_size; rank++) {
        uint64_t at = 0;
        for (uint64_t i = objects->first[rank]; i < objects->first[rank + 1]; i++)
            RETURN_IF(dcp_put_object(w, t, objects->items[i], &at, err));
        for (uint64_t i = chunks->first[rank]; i < chunks->first[rank + 1]; i++)
            RETURN_IF(dcp_put_chunk(w, t, chunks->items[i], opt->align_nbytes, &at, err));
        catalogue_file(&t->cat, rank)->nbytes = at;
    }
    return FSDPCK_OK;
}

/* A tensor whose object does not name it would have no place. */
static fsdpck_status check_placed(const target *t, fsdpck_error *err)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++) {
        const cat_chunk *c = catalogue_chunk(&t->cat, i);
        if (c->file != CAT_NONE)
            continue;
        fsdpck_status st =
            error_set(err, FSDPCK_INTERNAL, "", "no object has a place for a tensor");
        error_tensor(err, catalogue_name(&t->cat, catalogue_tensor(&t->cat, c->tensor)->name));
        return st;
    }
    return FSDPCK_OK;
}

static fsdpck_status lay_out_files(target *t, const writer_options *opt, fsdpck_error *err)
{
    rank_order chunks, objects;

    RETURN_IF(rank_order_by(t, catalogue_chunk_count(&t->cat), file_of_chunk, t->world_size,
                            &chunks, err));
    fsdpck_status st = rank_order_by(t, catalogue_object_count(&t->cat), file_of_object,
                                     t->world_size, &objects, err);
    if (st == FSDPCK_OK) {
        st = put_files(t, opt, &chunks, &objects, err);
        rank_order_release(&objects);
    }
    rank_order_release(&chunks);
    return st;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    static const char metadata[] = ".metadata";
    uint64_t nbytes = 0;
    uint32_t index;

    RETURN_IF(check_options(t, opt, err));
    RETURN_IF(check_names(t, err));
    RETURN_IF(make_state(t, err));
    RETURN_IF(add_files(t, err));
    RETURN_IF(rank_deal(t, err));
    RETURN_IF(lay_out_files(t, opt, err));
    RETURN_IF(check_placed(t, err));
    RETURN_IF(catalogue_add_file(&t->cat, metadata, strlen(metadata), 0, CAT_NONE, &index, err));
    RETURN_IF(dcp_put_metadata(t, index, &nbytes, err));
    catalogue_file(&t->cat, index)->nbytes = nbytes;
    return FSDPCK_OK;
}

static fsdpck_status seal(const target *t, late_fn put, void *ctx, fsdpck_error *err)
{
    return dcp_seal_objects(t, put, ctx, err);
}

static bool holds(dtype d)
{
    return d != DTYPE_NONE && d < DTYPE_COUNT;
}

const format_writer dcp_writer = {
    .name = "dcp",
    .description = "folder of torch.distributed.checkpoint",
    .is_folder = true,
    .takes = TAKES_KEYED,
    .sharded = true,
    .holds = holds,
    .layout = layout,
    .seal = seal,
};
