/* ds_reader.c: the reader of DeepSpeed folders. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/step_folder.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/ds_internal.h"

/* --- probe --- */

bool deepspeed_name_has_rank(const char *name)
{
    ds_file f;
    const ds_kind kind = ds_name_parse(name, &f);
    return kind == DS_OPTIM || kind == DS_MODEL_3;
}

static fsdpck_status read_whole(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                fsdpck_error *err)
{
    return file_read_at(ctx, offset_bytes, dst, nbytes, err);
}

/* Whether model states contain what only a ZeRO optimizer needs: its files are then missing. Without
 * ZeRO, the model states are one torch.save file. */
static bool is_of_zero(const probe_input *in, const char *name)
{
    enum { PROBE_NBYTES = 256 << 20 };
    file f = FILE_CLOSED;
    budget memory;
    value_pool pool;
    torch_archive a;
    value dict, shapes;
    if (file_open_read(&f, &in->dir, name, 0, NULL) != FSDPCK_OK)
        return false;
    budget_init(&memory, PROBE_NBYTES, "metadata", NULL);
    value_pool_init(&pool, &memory);
    const zip_input zip = {.read = read_whole, .ctx = &f, .nbytes = f.nbytes};
    bool is = torch_archive_open(&zip, &memory, &pool, TORCH_CALLS_KEEP, &a, NULL) == FSDPCK_OK;
    is = is && ds_is_dict(&pool, a.root, &dict) &&
         value_dict_find(&pool, dict, "param_shapes", &shapes) &&
         value_kind_of(shapes) == VALUE_LIST;
    torch_archive_release(&a);
    value_pool_release(&pool);
    file_abandon(&f);
    return is;
}

/* The last entry of a kind, or NULL. */
static const char *entry_of(const probe_input *in, ds_kind kind)
{
    const char *found = NULL;
    ds_file f;
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++)
        if (ds_name_parse(in->entries[i], &f) == kind)
            found = in->entries[i];
    return found;
}

static bool probe_universal(const probe_input *in, const char **near_miss)
{
    (void)near_miss;
    return in->is_folder && probe_has_entry(in, "zero") && entry_of(in, DS_OPTIM) == NULL &&
           (entry_of(in, DS_MODEL) != NULL || entry_of(in, DS_MODEL_3) != NULL);
}

static bool probe(const probe_input *in, const char **near_miss)
{
    const char *model = entry_of(in, DS_MODEL);
    if (probe_universal(in, near_miss))
        return false;
    return entry_of(in, DS_OPTIM) != NULL || entry_of(in, DS_MODEL_3) != NULL ||
           entry_of(in, DS_FOREIGN) != NULL || (model != NULL && is_of_zero(in, model));
}

/* --- open --- */

static void state_init(ds_state *s, const open_request *req, catalogue *cat)
{
    budget *owner = req->metadata;
    *s = (ds_state){.req = req,
                    .cat = cat,
                    .left_out_names = {.limit_bytes = 1000},
                    .stateless_names = {.limit_bytes = 1000},
                    .unmastered_names = {.limit_bytes = 1000},
                    .differing_names = {.limit_bytes = 1000}};
    strtab_init(&s->paths, owner);
    strtab_init(&s->names, owner);
    strtab_init(&s->slots, owner);
    s->files = VEC_OF(ds_file, owner);
    s->partitions = VEC_OF(ds_partition, owner);
    s->scalars = VEC_OF(ds_scalar, owner);
    s->params = VEC_OF(ds_param, owner);
    s->shapes = VEC_OF(uint64_t, owner);
    s->paddings = VEC_OF(ds_padding, owner);
    s->by_name = VEC_OF(ds_name, owner);
    s->frozen = VEC_OF(ds_whole, owner);
    s->frozen_shapes = VEC_OF(ds_param, owner);
    s->slices = VEC_OF(ds_slice, owner);
    s->misfits = VEC_OF(ds_misfit, owner);
    s->group_params = VEC_OF(uint32_t, owner);
    s->group_first = VEC_OF(uint32_t, owner);
}

static void state_release(ds_state *s)
{
    strtab_release(&s->paths);
    strtab_release(&s->names);
    strtab_release(&s->slots);
    VEC_RELEASE_ALL(&s->files, &s->partitions, &s->scalars, &s->params, &s->shapes, &s->paddings,
                    &s->by_name, &s->frozen, &s->frozen_shapes, &s->slices, &s->misfits,
                    &s->group_params, &s->group_first);
    text_release(&s->left_out_names);
    text_release(&s->stateless_names);
    text_release(&s->unmastered_names);
    text_release(&s->differing_names);
}

static fsdpck_status add_files(ds_state *s, fsdpck_error *err)
{
    for (size_t i = 0; i < s->files.count; i++) {
        ds_file *f = VEC_AT(&s->files, ds_file, i);
        RETURN_IF(torch_folder_add(s->reader, s->cat, f->name,
                                   s->is_universal ? CAT_NONE : (uint32_t)f->rank, &f->index, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_one(ds_state *s, const ds_file *f,
                              fsdpck_status (*fn)(ds_open *o, fsdpck_error *err), bool *was_read,
                              fsdpck_error *err)
{
    ds_open o;
    fsdpck_status st = ds_open_file(s, f, &o, err);
    *was_read = st == FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = fn(&o, err);
    ds_close_file(&o, st == FSDPCK_OK);
    if (st != FSDPCK_OK)
        error_path_in(err, s->req->path, f->name);
    return st;
}

/* All files of a kind, from rank `first` on. With request->found, reports all unreadable files. */
static fsdpck_status read_kind(ds_state *s, ds_kind kind, uint64_t first,
                               fsdpck_status (*fn)(ds_open *o, fsdpck_error *err),
                               fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    for (size_t i = 0; i < s->files.count; i++) {
        const ds_file *f = VEC_AT(&s->files, const ds_file, i);
        fsdpck_error what = FSDPCK_ERROR_INIT;
        bool was_read;
        if (f->kind != kind || f->rank < first)
            continue;
        const fsdpck_status st = read_one(s, f, fn, &was_read, &what);
        if (st == FSDPCK_OK)
            continue;
        const bool told = !was_read && open_request_report(s->req, st, &what);
        if ((failed == FSDPCK_OK || !told) && err != NULL)
            *err = what;
        if (!told)
            return st;
        failed = st;
    }
    return failed;
}

/* The rest, while rank 0's model states are open. */
static fsdpck_status build(ds_open *o, fsdpck_error *err)
{
    ds_state *s = o->s;
    RETURN_IF(ds_read_model(o, err));
    if (s->stage == 3)
        RETURN_IF(read_kind(s, DS_MODEL_3, 1, ds_read_model_of_rank, err));
    if (s->is_universal) {
        RETURN_IF(read_kind(s, DS_SLOT, 0, ds_read_slot, err));
        RETURN_IF(ds_universal_check(s, err));
    } else {
        RETURN_IF(ds_flat_lay_out(s, err));
    }
    RETURN_IF(ds_check_scalars(s, err));
    ds_sort_frozen(s);
    RETURN_IF(ds_build_state(o, err));
    return ds_build_optimizer(s, err);
}

static fsdpck_status check_one_save(ds_state *s, fsdpck_error *err)
{
    const ds_facts *a = &s->model_facts, *b = &s->optim_facts;
    char x[200], y[200];
    if (a->world >= 0 && (uint64_t)a->world != s->world)
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("model states and optimizer were saved by different numbers of ranks"),
                         (path, s->req->path),
                         (expected, "%" PRIu64 " ranks, as the optimizer has", s->world),
                         (found, "%" PRId64 " ranks ('dp_world_size')", a->world),
                         (next, "take all files from one save"));
    if (a->version[0] == '\0' || b->version[0] == '\0' || strcmp(a->version, b->version) == 0)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                     ("model states and optimizer were saved by different versions of DeepSpeed"),
                     (path, s->req->path),
                     (found, "'%s' and '%s'",
                      escape_text(x, sizeof x, a->version, strlen(a->version)),
                      escape_text(y, sizeof y, b->version, strlen(b->version))),
                     (next, "take all files from one save"));
}

static fsdpck_status read_all(ds_state *s, fsdpck_error *err)
{
    uint32_t master;
    RETURN_IF(strtab_intern(&s->slots, "", 0, &master, err)); /* 0: no key of a slot */
    RETURN_IF(s->is_universal ? read_kind(s, DS_GROUPS, 0, ds_read_groups, err)
                              : read_kind(s, DS_OPTIM, 0, ds_read_optim, err));
    RETURN_IF(ds_check_files(s, err));
    for (size_t i = 0; i < s->files.count; i++) {
        const ds_file *f = VEC_AT(&s->files, const ds_file, i);
        bool was_read;
        if ((f->kind == DS_MODEL || f->kind == DS_MODEL_3) && f->rank == 0)
            RETURN_IF(read_one(s, f, build, &was_read, err));
    }
    RETURN_IF(check_one_save(s, err));
    if (!s->is_universal)
        RETURN_IF(ds_check_copies(s, err));
    RETURN_IF(ds_check_frozen_copies(s, err));
    return catalogue_seal(s->cat, err);
}

static void describe(const ds_state *s, cat_origin *o)
{
    const open_request *req = s->req;
    snprintf(o->format, sizeof o->format, "%s",
             s->is_universal ? deepspeed_universal_reader.name : deepspeed_reader.name);
    snprintf(o->torch_version, sizeof o->torch_version, "%s", s->form);
    snprintf(o->note, sizeof o->note, "DeepSpeed %s, ZeRO %u",
             s->optim_facts.version[0] != '\0' ? s->optim_facts.version : s->model_facts.version,
             s->stage);
    o->types_keys = true;
    if (!s->is_universal) /* its files do not depend on the ranks */
        o->world_size = (int64_t)s->world;
    o->by_flat_buffers = true;
    o->step_is_recorded = s->model_facts.step >= 0;
    o->step = o->step_is_recorded ? s->model_facts.step : step_of_folder(req->path);
    o->left_out = s->left_out;
    if (s->left_out > 0)
        snprintf(o->left_out_kinds, sizeof o->left_out_kinds, "%" PRIu64 " value%s of DeepSpeed",
                 s->left_out, text_plural(s->left_out));
}

static void report(const ds_state *s)
{
    const logger *log = &s->req->log;
    if (s->left_out > 0)
        log_warn(log, FSDPCK_FINDING_ZERO_LEFT_OUT, "read them with torch.load, if they are needed",
                 "values that are left out: %" PRIu64 " (%s%s)", s->left_out,
                 s->left_out_names.text == NULL ? "" : s->left_out_names.text,
                 s->left_out > 3 ? ", ..." : "");
    if (s->stateless > 0)
        log_warn(log, FSDPCK_FINDING_ZERO_LEFT_OUT,
                 "check whether the optimizer files lost it, before a training continues from them",
                 "optimizer state that other groups of parameters have is missing: %" PRIu64
                 " (%s%s)",
                 s->stateless, s->stateless_names.text == NULL ? "" : s->stateless_names.text,
                 s->stateless > 3 ? ", ..." : "");
    if (s->unmastered > 0)
        log_warn(log, FSDPCK_FINDING_ZERO_LEFT_OUT,
                 "check whether 'param_shapes' or 'shared_params' of the model states lost them",
                 "weights that are not frozen and have no master weights; using the copies in the "
                 "dtype of the training: %" PRIu64 " (%s%s)",
                 s->unmastered, s->unmastered_names.text == NULL ? "" : s->unmastered_names.text,
                 s->unmastered > 3 ? ", ..." : "");
    if (s->differing > 0)
        log_warn(log, FSDPCK_FINDING_RANK_DIFFER, "check that all files are from one save",
                 "values that differ between ranks; using those of rank 0: %" PRIu64 " (%s%s)",
                 s->differing, s->differing_names.text == NULL ? "" : s->differing_names.text,
                 s->differing > 3 ? ", ..." : "");
}

static fsdpck_status open_as(bool is_universal, const open_request *req, catalogue *cat,
                             void **self, fsdpck_error *err)
{
    ds_state s;

    if (!req->probe->is_folder)
        return FAIL(err, USAGE, NONE, "deepspeed reads a folder; this is a file");
    state_init(&s, req, cat);
    s.is_universal = is_universal;
    fsdpck_status st = ds_list_files(req, &s.files, err);
    if (st == FSDPCK_OK && s.files.count == 0)
        st = FAIL_WITH(err, BADINPUT, FILE_MISSING, ("folder contains no files of DeepSpeed"),
                       (path, req->path),
                       (next, "give the folder of a step, such as 'global_step100'"));
    if (st == FSDPCK_OK)
        st = torch_folder_open(req, &s.reader, err);
    if (st == FSDPCK_OK && is_universal)
        st = ds_universal_list(&s, err);
    if (st == FSDPCK_OK)
        st = add_files(&s, err);
    if (st == FSDPCK_OK)
        st = read_all(&s, err);
    if (st == FSDPCK_OK) {
        describe(&s, &cat->origin);
        torch_folder_finish(s.reader, req, cat);
        report(&s);
        *self = s.reader;
    } else {
        torch_folder_close(s.reader);
    }
    state_release(&s);
    return st;
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    return open_as(false, req, cat, self, err);
}

static fsdpck_status open_universal(const open_request *req, catalogue *cat, void **self,
                                    fsdpck_error *err)
{
    return open_as(true, req, cat, self, err);
}

/* --- the source --- */

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const torch_folder *r = ctx;
    const cat_chunk *k = catalogue_chunk(r->cat, chunk);
    const cat_tensor *t = catalogue_tensor(r->cat, k->tensor);
    uint64_t sizes[NDIM_MAX];

    RETURN_IF(torch_folder_locate(r, VEC_AT(&r->pieces, const torch_shard, k->aux), where, err));
    where->offset_bytes = k->offset_bytes;
    if (k->rank == UINT16_MAX) /* a whole tensor */
        return FSDPCK_OK;
    /* A box, whose elements are consecutive in a partition. */
    const uint64_t stride = where->strides[0];
    catalogue_chunk_box(r->cat, chunk, NULL, sizes);
    box_row_major_strides(sizes, t->ndim, where->strides);
    for (unsigned i = 0; i < t->ndim; i++)
        where->strides[i] *= stride;
    return FSDPCK_OK;
}

static void fill_source(void *self, catalogue *cat, source *src)
{
    torch_folder_source(self, cat, src);
    src->locate = locate;
}

const format_reader deepspeed_reader = {
    .name = "deepspeed",
    .description = "a folder of DeepSpeed's ZeRO 1, 2 or 3: model states and optimizer partitions",
    .probe = probe,
    .open = open_folder,
    .source = fill_source,
    .check_records = torch_folder_check_records,
    .close = torch_folder_close,
    .id = FSDPCK_FORMAT_DEEPSPEED,
    .of_two_saves = true,
};

const format_reader deepspeed_universal_reader = {
    .name = "deepspeed-universal",
    .description = "a universal checkpoint of DeepSpeed: one file for each parameter and slot",
    .probe = probe_universal,
    .open = open_universal,
    .source = fill_source,
    .check_records = torch_folder_check_records,
    .close = torch_folder_close,
    .id = FSDPCK_FORMAT_DEEPSPEED_UNIVERSAL,
    .of_two_saves = true,
};
