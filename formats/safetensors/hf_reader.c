#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "formats/safetensors/hf_choice.h"
#include "formats/safetensors/hf_gap.h"
#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/hf_missing.h"
#include "formats/safetensors/hf_note.h"
#include "formats/safetensors/hf_shadow.h"
#include "formats/safetensors/hf_ties.h"
#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_files.h"
#include "formats/safetensors/st_lost.h"

/* ".SAFETENSORS": one that other programs do not read from a folder either. */
static bool has_upper_suffix(const char *name)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(name);
    return n >= sizeof suffix && strcasecmp(name + n - sizeof suffix + 1, suffix) == 0;
}

static bool probe(const probe_input *in, const char **near_miss)
{
    if (!in->is_folder) {
        if (hf_choice_is_index(in->name) || hf_choice_is_variant(in->name))
            *near_miss = "an index of safetensors files: give the folder that holds it";
        return false;
    }
    for (size_t i = 0; i < in->entry_count; i++)
        if (hf_choice_is_index(in->entries[i]) || hf_choice_is_variant(in->entries[i]) ||
            shard_name_is_safetensors(in->entries[i]))
            return true;
    for (size_t i = 0; i < in->entry_count; i++)
        if (has_upper_suffix(in->entries[i]))
            *near_miss =
                "the suffix of its safetensors files is not in lower case: rename them, as loaders "
                "require .safetensors, or give one file";
    return false;
}

/* Of the chosen files: a variant that is not read may lack some. */
static fsdpck_status check_numbered(const open_request *req, const hf_choice *c, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    const char *entry;
    size_t count = 0;
    RETURN_IF(hf_missing_check_mixed(in, ".safetensors", err));
    const char **names = budget_alloc(req->metadata, in->entry_count * sizeof *names, err);
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < in->entry_count; i++)
        if (hf_choice_has(c, in->entries[i]))
            names[count++] = in->entries[i];
    const bool lacks = hf_missing_family_of(in, names, count, ".safetensors", &entry);
    if (!lacks) {
        hf_gap_report_index(req, names, count);
        hf_gap_warn(req, names, count);
        hf_gap_warn_ranks(req, names, count);
        hf_gap_note_joined(req, names, count);
        if (c->families > 1)
            hf_gap_warn_sets(req, c->other, c->family);
    }
    budget_free(req->metadata, names, in->entry_count * sizeof *names);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status st =
        lacks ? hf_missing_family_error(req, ".safetensors", entry, &what) : FSDPCK_OK;
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    return open_request_tolerate(req, st, &what) ? FSDPCK_OK : st;
}

#define INDEX_NBYTES_MAX 512u

static const char next_of_model[] = "to read this model of the run, give its path";
static const char next_of_extra[] =
    "remove the file if it is a leftover, because a loader may read it; to read it, give its path";

/* Whether a file is of a set with another index than `index`, such as that of a variant. One line for a set: `told` is the
 * index of the last one. */
static bool warn_other_set(const open_request *req, const char *index, const char *reading,
                           const char *entry, char told[INDEX_NBYTES_MAX])
{
    char other[INDEX_NBYTES_MAX];
    if (!shard_name_index(entry, other, sizeof other) || strcmp(other, index) == 0 ||
        !probe_has_entry(req->probe, other))
        return false;
    if (strcmp(other, told) != 0)
        log_warn(&req->log, FSDPCK_FINDING_WEIGHTS_BESIDE,
                 "to read the other files, give the path of their index",
                 "reading '%s'; ignoring the files of '%s' beside it", reading, other);
    memcpy(told, other, sizeof other);
    return true;
}

static void warn_extra(const open_request *req, const hf_choice *c, const char *entry)
{
    const char *model = c->alone != NULL ? c->alone : c->families == 1 ? c->family : NULL;
    const char *next = shard_name_is_of_models(entry) ? next_of_model : next_of_extra;
    if (c->alone != NULL && hf_choice_is_variant_of(entry, c->alone))
        log_warn(&req->log, FSDPCK_FINDING_WEIGHTS_BESIDE, "to read the variant, give its path",
                 "reading '%s'; ignoring its variant '%s' beside it", c->alone, entry);
    else if (model != NULL)
        log_warn(&req->log, FSDPCK_FINDING_IDX_EXTRA, next,
                 "'%s' is not read: it is not part of the model '%s'", entry, model);
    else
        log_warn(&req->log, FSDPCK_FINDING_IDX_EXTRA, next, "'%s' is not read: it is hidden",
                 entry);
}

/* *by_suffix: nothing else shows that the files belong together. */
static fsdpck_status add_without_index(const open_request *req, st_files *s, bool *by_suffix,
                                       fsdpck_error *err)
{
    const probe_input *in = req->probe;
    hf_choice c;
    char told[INDEX_NBYTES_MAX] = "";
    hf_choice_survey(in, &c);
    *by_suffix = c.alone == NULL && c.families != 1;
    if (c.alone == NULL)
        RETURN_IF(check_numbered(req, &c, err));
    for (size_t i = 0; i < in->entry_count; i++) {
        if (hf_choice_has(&c, in->entries[i])) {
            RETURN_IF(hf_missing_check_slices(req, in->entries[i], err));
            RETURN_IF(st_files_add(s, in->entries[i], err));
        } else if (shard_name_is_safetensors(in->entries[i]) &&
                   !(c.alone != NULL && warn_other_set(req, "", c.alone, in->entries[i], told))) {
            warn_extra(req, &c, in->entries[i]);
        }
    }
    return FSDPCK_OK;
}

static bool is_among(const char *const *names, size_t count, const char *name)
{
    return bsearch(&name, names, count, sizeof *names, text_compare) != NULL;
}

static fsdpck_status add_indexed(const open_request *req, const char *index, const hf_index *ix,
                                 st_files *s, fsdpck_error *err)
{
    char told[INDEX_NBYTES_MAX] = "";
    const size_t count = strtab_count(&ix->files);
    const char **names = budget_alloc(req->metadata, count * sizeof *names, err);
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < count; i++)
        names[i] = strtab_text(&ix->files, i);
    qsort(names, count, sizeof *names, text_compare);
    fsdpck_status st = hf_missing_check(req, names, count, ".safetensors", ix, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        if (!open_request_is_damaged(req) || probe_has_entry(req->probe, names[i]))
            st = st_files_add(s, names[i], err);
    for (size_t i = 0; st == FSDPCK_OK && i < req->probe->entry_count; i++) {
        const char *entry = req->probe->entries[i];
        if (shard_name_is_safetensors(entry) && !is_among(names, count, entry) &&
            strcmp(entry, HF_SINGLE_FILE) != 0 && !warn_other_set(req, index, index, entry, told))
            log_warn(&req->log, FSDPCK_FINDING_IDX_EXTRA, next_of_extra, "'%s' is not in the index",
                     entry);
    }
    budget_free(req->metadata, names, count * sizeof *names);
    return st;
}

/* --- their contents --- */

typedef struct misplaced {
    const char *tensor;
    const char *where;
} misplaced;

static fsdpck_status error_missing(const open_request *req, const hf_index *ix, uint32_t tensor,
                                   const misplaced *m, fsdpck_error *err)
{
    const char *name = strtab_text(&ix->tensors, tensor);
    const fsdpck_status st =
        FAIL(err, BADINPUT, IDX_TENSOR, "tensor is missing from the file that the index gives");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", req->path,
             strtab_text(&ix->files, *VEC_AT(&ix->file_of, const uint32_t, tensor)));
    error_path(err, path);
    error_tensor(err, name);
    const bool elsewhere = m->tensor != NULL && strcmp(m->tensor, name) == 0;
    if (elsewhere)
        error_found(err, "it is in '%s'", m->where);
    error_next(err, elsewhere ? "correct the file name of this entry in the index"
                              : "restore the tensor, or remove its entry from the index; if the "
                                "model ties it to another tensor, give --model FILE "
                                "(fsdpck-model(5))");
    return st;
}

/* Checks that each tensor of the map is in its file and in no other, or is filled from another. */
static fsdpck_status compare_index(const open_request *req, const hf_index *ix, const st_files *s,
                                   uint8_t *seen, hf_ties *ties, fsdpck_error *err)
{
    misplaced m = {0};
    uint64_t total = 0;
    fsdpck_status failed = FSDPCK_OK;
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        const uint32_t self =
            strtab_find(&ix->files, st_files_name(s, i), strlen(st_files_name(s, i)));
        size_t extra = 0;
        for (size_t k = 0; k < h->entries.count; k++) {
            const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
            size_t nbytes;
            const char *name = st_header_name(h, e, &nbytes);
            const uint32_t tensor = strtab_find(&ix->tensors, name, nbytes);
            total += e->end_bytes - e->begin_bytes;
            if (tensor == STRTAB_NONE)
                extra++;
            else if (*VEC_AT(&ix->file_of, const uint32_t, tensor) == self)
                seen[tensor] = 1;
            else if (m.tensor == NULL)
                m = (misplaced){name, st_files_name(s, i)};
        }
        if (extra > 0)
            log_warn(
                &req->log, FSDPCK_FINDING_IDX_EXTRA,
                "omit such tensors with --exclude of consolidate or reshard",
                "'%s' holds %zu tensor%s that the index does not list; such tensors are also read",
                st_files_name(s, i), extra, text_plural(extra));
    }
    for (uint32_t t = 0; t < ix->file_of.count; t++) {
        bool filled = false;
        if (!seen[t] && m.tensor == NULL)
            RETURN_IF(hf_ties_fill(ties, ix, seen, t, &filled, err));
        if (seen[t] || filled)
            continue;
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = error_missing(req, ix, t, &m, &what);
        const bool told = open_request_report(req, st, &what);
        if ((failed == FSDPCK_OK || !told) && err != NULL)
            *err = what;
        if (!told)
            return st;
        failed = st;
    }
    if (failed != FSDPCK_OK)
        return failed;
    if (m.tensor != NULL)
        return FAIL_WITH(err, BADINPUT, IDX_DUP, ("tensor is in two files"), (tensor, m.tensor),
                         (path, req->path), (found, "also in '%s'", m.where));
    if (!ix->has_total)
        log_write(&req->log, LOG_NOTE, "IDX-TOTAL: the index has no total_size");
    else if (ix->total_nbytes != total)
        log_warn(&req->log, FSDPCK_FINDING_IDX_TOTAL,
                 "check whether files were replaced after the index was written",
                 "the index records %" PRIu64 " bytes, its files hold %" PRIu64, ix->total_nbytes,
                 total);
    return FSDPCK_OK;
}

static fsdpck_status check_index(const open_request *req, const hf_index *ix, const st_files *s,
                                 hf_ties *ties, fsdpck_error *err)
{
    const size_t count = ix->file_of.count;
    uint8_t *seen = budget_alloc(req->metadata, count, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = compare_index(req, ix, s, seen, ties, err);
    budget_free(req->metadata, seen, count);
    return st;
}

/* Two files with one tensor: reported here, where both files are known. */
static fsdpck_status add_file_tensors(const st_files *s, size_t index, strtab *names, vec *owners,
                                      catalogue *cat, fsdpck_error *err)
{
    const st_header *h = st_files_header(s, index);
    for (size_t k = 0; k < h->entries.count; k++) {
        const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
        size_t nbytes;
        const char *name = st_header_name(h, e, &nbytes);
        const size_t known = strtab_count(names);
        uint32_t id;
        RETURN_IF(strtab_intern(names, name, nbytes, &id, err));
        if (id < known) {
            const fsdpck_status st = FAIL_WITH(
                err, BADINPUT, IDX_DUP, ("tensor is in two files"), (tensor, name),
                (found, "also in '%s'", st_files_name(s, *VEC_AT(owners, const uint32_t, id))),
                (next, "give one file instead of the folder"));
            st_files_error_path(s, index, err);
            return st;
        }
        RETURN_IF(vec_add(owners, &(uint32_t){(uint32_t)index}, err));
        RETURN_IF(st_files_add_tensor(s, index, e, cat, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status fill(const st_files *s, const hf_ties *ties, budget *owner, catalogue *cat,
                          fsdpck_error *err)
{
    strtab names;
    vec owners = VEC_OF(uint32_t, owner);
    strtab_init(&names, owner);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < st_files_count(s); i++) {
        uint32_t index;
        const char *name = st_files_name(s, i);
        st = catalogue_add_file(cat, name, strlen(name), st_files_nbytes(s, i), CAT_NONE, &index,
                                err);
        if (st == FSDPCK_OK)
            catalogue_file(cat, index)->identity = st_files_identity(s, i);
        if (st == FSDPCK_OK)
            st = add_file_tensors(s, i, &names, &owners, cat, err);
    }
    if (st == FSDPCK_OK)
        st = hf_ties_add(ties, s, cat, err);
    strtab_release(&names);
    vec_release(&owners);
    return st == FSDPCK_OK ? catalogue_seal(cat, err) : st;
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    st_files *s = NULL;
    hf_index ix = {0};
    hf_ties ties;
    const char *index_name;
    hf_ties_init(&ties, req);
    RETURN_IF(hf_choice_index(req->probe, &index_name, err));
    fsdpck_status st;
    GOTO_IF(st_files_open(req, &s, err), out);
    if (index_name != NULL) {
        GOTO_IF(hf_index_read(&req->probe->dir, index_name, req->metadata, &ix, err), out);
        GOTO_IF(add_indexed(req, index_name, &ix, s, err), out);
    } else {
        GOTO_IF(add_without_index(req, s, &cat->origin.by_suffix, err), out);
    }
    st_files_describe_lost(s, st_lost_describe, index_name != NULL ? &ix : NULL);
    GOTO_IF(st_files_read_headers(s, err), out);
    st_files_warn_extra_fields(s, &req->log);
    st_files_warn_tied(s, &req->log);
    st_files_note_unpadded(s, req);
    if (index_name != NULL && !open_request_is_damaged(req)) {
        GOTO_IF(check_index(req, &ix, s, &ties, err), out);
        GOTO_IF(hf_shadow_check(req, s, index_name, err), out);
    }
    GOTO_IF(fill(s, &ties, req->metadata, cat, err), out);
    hf_note_describe(req, s, &cat->origin);
    GOTO_IF(st_files_keep_metadata(s, &cat->origin, err), out);
    st_files_keep_index(s, &ix.metadata, cat);
    st_files_drop_headers(s);
    *self = s;
out:
    hf_ties_release(&ties);
    hf_index_release(&ix);
    if (st != FSDPCK_OK)
        st_files_close(s);
    return st;
}

static bool owns(const probe_input *in, const cat_origin *origin, const char *path, uint64_t nbytes)
{
    const char *index;
    (void)origin;
    (void)nbytes;
    return hf_choice_index(in, &index, NULL) == FSDPCK_OK && index != NULL &&
           strcmp(path, index) == 0;
}

const format_reader hf_reader = {
    .name = "hf",
    .description = "a folder of safetensors files with an index, as in transformers",
    .probe = probe,
    .open = open_folder,
    .source = st_files_source,
    .close = st_files_close,
    .owns = owns,
    .id = FSDPCK_FORMAT_HF,
    .writer = &hf_writer,
    .by_content = true,
    .of_model = true,
};
