#include <inttypes.h>
#include <stdio.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/dcp_write_internal.h"

/* A folder that torch.distributed.checkpoint of torch 2.1 to 2.15 loads: `__{rank}_0.distcp` of
 * every rank, byte items first, then tensors, and `.metadata` (dcp_write_metadata.c). A rank
 * without data has an empty file, as with torch. The output contains no path, host, time or random
 * number. Input from a folder with one DCP folder per part (dcp_part_folders.h) becomes such a folder
 * again, with the same files for each part. */

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
    VEC_RELEASE_ALL(&w->forms, &w->pickle_blobs, &w->inner_blobs, &w->inner_chunks, &w->parts,
                    &w->file_names);
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
        .parts = VEC_OF(dcp_write_part, owner),
        .file_names = VEC_OF(uint32_t, owner),
    };
    strtab_init(&w->form_keys, owner);
    strtab_init(&w->pickles, owner);
    t->writer_state = w;
    t->free_writer_state = free_state;
    t->make_deferred = dcp_make_deferred;
    t->want_crc = true;
    t->is_folder = true;
    return FSDPCK_OK;
}

/* --- checks --- */

/* A flat key must be unique: the dicts of .metadata would keep only one of two items. */
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
        if (seen[name])
            st = FAIL_WITH(err, UNSUPPORTED, KEY_DUP,
                           ("DCP folder cannot hold two entries with the same name"),
                           (tensor, catalogue_name(cat, name)));
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
            return FAIL(err, INTERNAL, NONE, "DCP folder can hold only contiguous tensors");
    }
    if (opt->align_nbytes > DCP_ALIGN_NBYTES_MAX)
        return FAIL(err, USAGE, NONE, "alignment of %" PRIu64 " bytes exceeds the maximum, %u",
                    opt->align_nbytes, DCP_ALIGN_NBYTES_MAX);
    return FSDPCK_OK;
}

/* --- layout --- */

static fsdpck_status add_part(dcp_write *w, const char *folder_name, uint32_t part,
                              fsdpck_error *err)
{
    return vec_add(&w->parts, &(dcp_write_part){.folder = folder_name, .part = part}, err);
}

/* The parts that are not empty. */
static fsdpck_status choose_parts(dcp_write *w, const target *t, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const dcp_part_folders *f = w->form = dcp_part_folders_of(t);
    bool used[DCP_PARTS_MAX + 1] = {false};

    if (f == NULL)
        return add_part(w, NULL, 0, err);
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        used[dcp_part_of(f, catalogue_name(cat, catalogue_tensor(cat, i)->name))] = true;
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        used[dcp_part_of(f, catalogue_name(cat, catalogue_object(cat, i)->name))] = true;
    for (uint32_t part = 0; part < dcp_part_count(f); part++)
        if (used[part])
            RETURN_IF(add_part(w, f->parts[part].folder, part, err));
    return w->parts.count > 0 ? FSDPCK_OK : add_part(w, NULL, 0, err);
}

/* A file of `part`, named there `name`. */
static fsdpck_status add_file(target *t, const dcp_write_part *part, const char *name,
                              uint32_t rank, uint32_t *index, fsdpck_error *err)
{
    char path[80];
    const int n = snprintf(path, sizeof path, "%s%s%s", part->folder != NULL ? part->folder : "",
                           part->folder != NULL ? "/" : "", name);
    return catalogue_add_file(&t->cat, path, (size_t)n, 0, rank, index, err);
}

/* Inner tensors have no file until their object is put; see cat_chunk.file. */
static fsdpck_status add_files(dcp_write *w, target *t, fsdpck_error *err)
{
    char name[40];
    uint32_t index;

    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++)
        catalogue_chunk(&t->cat, i)->file = CAT_NONE;
    for (size_t p = 0; p < w->parts.count; p++) {
        for (uint32_t rank = 0; rank < t->world_size; rank++) {
            uint32_t *id = vec_push(&w->file_names, err);
            if (id == NULL)
                return FSDPCK_LIMIT;
            const int n = snprintf(name, sizeof name, "__%" PRIu32 "_0.distcp", rank);
            RETURN_IF(
                add_file(t, VEC_AT(&w->parts, const dcp_write_part, p), name, rank, &index, err));
            if (index != p * t->world_size + rank)
                return FAIL(err, INTERNAL, NONE, "target has files before its layout");
            RETURN_IF(strtab_intern(&t->cat.names, name, (size_t)n, id, err));
        }
    }
    return FSDPCK_OK;
}

/* Number of files before those of the part of a name. */
static uint32_t first_file_of(const dcp_write *w, const target *t, uint32_t name)
{
    if (w->form == NULL)
        return 0;
    const uint32_t part = dcp_part_of(w->form, catalogue_name(&t->cat, name));
    for (size_t p = 0; p < w->parts.count; p++)
        if (VEC_AT(&w->parts, const dcp_write_part, p)->part == part)
            return (uint32_t)(p * t->world_size);
    return 0;
}

/* From the rank that writes an item to its file. */
static void move_to_parts(const dcp_write *w, target *t)
{
    if (w->parts.count < 2)
        return;
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++) {
        cat_chunk *c = catalogue_chunk(&t->cat, i);
        if (c->file != CAT_NONE)
            c->file += first_file_of(w, t, catalogue_tensor(&t->cat, c->tensor)->name);
    }
    for (size_t i = 0; i < catalogue_object_count(&t->cat); i++) {
        cat_object *o = catalogue_object(&t->cat, i);
        o->file += first_file_of(w, t, o->name);
    }
}

static fsdpck_status put_files(target *t, const writer_options *opt, const rank_order *chunks,
                               const rank_order *objects, fsdpck_error *err)
{
    dcp_write *w = t->writer_state;

    for (uint32_t file_index = 0; file_index < w->file_names.count; file_index++) {
        uint64_t at = 0;
        for (uint64_t i = objects->first[file_index]; i < objects->first[file_index + 1]; i++)
            RETURN_IF(dcp_put_object(w, t, objects->items[i], &at, err));
        for (uint64_t i = chunks->first[file_index]; i < chunks->first[file_index + 1]; i++)
            RETURN_IF(dcp_put_chunk(w, t, chunks->items[i], opt->align_nbytes, &at, err));
        catalogue_file(&t->cat, file_index)->nbytes = at;
    }
    return FSDPCK_OK;
}

/* A tensor that its object does not contain would have no location. */
static fsdpck_status check_placed(const target *t, fsdpck_error *err)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++) {
        const cat_chunk *c = catalogue_chunk(&t->cat, i);
        if (c->file != CAT_NONE)
            continue;
        return FAIL_WITH(
            err, INTERNAL, NONE, ("no object has a location for a tensor"),
            (tensor, catalogue_name(&t->cat, catalogue_tensor(&t->cat, c->tensor)->name)));
    }
    return FSDPCK_OK;
}

static fsdpck_status lay_out_files(target *t, const writer_options *opt, fsdpck_error *err)
{
    const dcp_write *w = t->writer_state;
    const uint64_t nfiles = w->file_names.count;
    rank_order chunks, objects;

    RETURN_IF(
        rank_order_by(t, catalogue_chunk_count(&t->cat), file_of_chunk, nfiles, &chunks, err));
    fsdpck_status st =
        rank_order_by(t, catalogue_object_count(&t->cat), file_of_object, nfiles, &objects, err);
    if (st == FSDPCK_OK) {
        st = put_files(t, opt, &chunks, &objects, err);
        rank_order_release(&objects);
    }
    rank_order_release(&chunks);
    return st;
}

static fsdpck_status put_metadatas(dcp_write *w, target *t, fsdpck_error *err)
{
    for (size_t p = 0; p < w->parts.count; p++) {
        const dcp_write_part *part = VEC_AT(&w->parts, const dcp_write_part, p);
        uint64_t nbytes = 0;
        uint32_t index;
        RETURN_IF(add_file(t, part, ".metadata", CAT_NONE, &index, err));
        RETURN_IF(dcp_put_metadata(t, w, part, index, &nbytes, err));
        catalogue_file(&t->cat, index)->nbytes = nbytes;
    }
    return FSDPCK_OK;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    RETURN_IF(check_options(t, opt, err));
    RETURN_IF(check_names(t, err));
    RETURN_IF(make_state(t, err));
    dcp_write *w = t->writer_state;
    RETURN_IF(choose_parts(w, t, err));
    RETURN_IF(add_files(w, t, err));
    RETURN_IF(rank_assign(t, opt->lowest_rank, err));
    move_to_parts(w, t);
    RETURN_IF(lay_out_files(t, opt, err));
    RETURN_IF(check_placed(t, err));
    return put_metadatas(w, t, err);
}

static fsdpck_status seal(const target *t, deferred_fn put, void *ctx, fsdpck_error *err)
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
    .takes = STATE_FLAT_KEYS,
    .has_paths = true,
    .sharded = true,
    .holds = holds,
    .layout = layout,
    .seal = seal,
    .id = FSDPCK_FORMAT_DCP,
    .options = WRITER_ALIGN,
};
