#include "formats/safetensors/hf_shadow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_missing.h"

typedef struct count_of {
    uint64_t same, other, missing; /* tensors of the single file; of the index, not in it */
} count_of;

static bool same_type(const st_header *a, const st_entry *x, const st_header *b, const st_entry *y)
{
    return x->dtype == y->dtype && shape_equal(VEC_AT(&a->dims, uint64_t, x->dims_at), x->ndim,
                                               VEC_AT(&b->dims, uint64_t, y->dims_at), y->ndim);
}

/* Entries of a header by their name's id. */
static fsdpck_status by_name(const st_header *h, budget *owner, uint32_t **entries,
                             fsdpck_error *err)
{
    const size_t count = strtab_count(&h->names);
    *entries = budget_alloc(owner, count * sizeof **entries, err);
    if (*entries == NULL && count > 0)
        return FSDPCK_LIMIT;
    for (size_t k = 0; k < h->entries.count; k++)
        (*entries)[VEC_AT(&h->entries, const st_entry, k)->name] = (uint32_t)k;
    return FSDPCK_OK;
}

static fsdpck_status compare(const open_request *req, const st_files *s, const st_header *single,
                             count_of *n, fsdpck_error *err)
{
    uint32_t *entries;
    RETURN_IF(by_name(single, req->metadata, &entries, err));
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        for (size_t k = 0; k < h->entries.count; k++) {
            const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
            size_t nbytes;
            const char *name = st_header_name(h, e, &nbytes);
            const uint32_t id = strtab_find(&single->names, name, nbytes);
            if (id == STRTAB_NONE)
                n->missing++;
            else if (same_type(h, e, single, VEC_AT(&single->entries, const st_entry, entries[id])))
                n->same++;
            else
                n->other++;
        }
    }
    budget_free(req->metadata, entries, strtab_count(&single->names) * sizeof *entries);
    return FSDPCK_OK;
}

static bool is_named(const st_files *s)
{
    for (size_t i = 0; i < st_files_count(s); i++)
        if (strcmp(st_files_name(s, i), HF_SINGLE_FILE) == 0)
            return true;
    return false;
}

static void warn_shadow(const open_request *req, const char *index_name, const char *what)
{
    log_warn(&req->log, FSDPCK_FINDING_IDX_SHADOW,
             "compare them: fsdpck diff DIR DIR/" HF_SINGLE_FILE "; then remove the old one",
             "reading the files of '%s', but transformers reads '" HF_SINGLE_FILE
             "' next to it; that file %s",
             index_name, what);
}

static fsdpck_status read_single(st_files *single, fsdpck_error *err)
{
    RETURN_IF(st_files_add(single, HF_SINGLE_FILE, err));
    return st_files_read_headers(single, err);
}

fsdpck_status hf_shadow_check(const open_request *req, const st_files *s, const char *index_name,
                              fsdpck_error *err)
{
    const probe_input *in = req->probe;
    st_files *single = NULL;
    count_of n = {0};
    fsdpck_error what = FSDPCK_ERROR_INIT;
    char text[200];

    if (!probe_has_entry(in, HF_SINGLE_FILE) || is_named(s))
        return FSDPCK_OK;
    RETURN_IF(st_files_open(req, &single, err));
    fsdpck_status st = read_single(single, &what);
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED) {
        warn_shadow(req, index_name, "is damaged");
        st_files_close(single);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    const st_header *h = st == FSDPCK_OK ? st_files_header(single, 0) : NULL;
    if (h != NULL)
        st = compare(req, s, h, &n, err);
    if (st == FSDPCK_OK) {
        const uint64_t extra = h->entries.count - n.same - n.other;
        if (n.other + n.missing + extra == 0)
            snprintf(text, sizeof text, "has the same names and shapes");
        else
            snprintf(text, sizeof text,
                     "lacks %" PRIu64 " tensor%s, adds %" PRIu64 " and has %" PRIu64
                     " with a different dtype or shape",
                     n.missing, text_plural(n.missing), extra, n.other);
        warn_shadow(req, index_name, text);
    }
    st_files_close(single);
    return st;
}

/* torch 2.9 to 2.15 writes 0-dim tensors as zeros when it consolidates; its files have no
 * metadata. */
bool hf_shadow_zeroed_scalars(const probe_input *in, const st_files *s)
{
    if (!probe_has_entry(in, "sharded"))
        return false;
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        if (strtab_count(&h->metadata_keys) > 0)
            continue;
        for (size_t k = 0; k < h->entries.count; k++)
            if (VEC_AT(&h->entries, const st_entry, k)->ndim == 0)
                return true;
    }
    return false;
}
