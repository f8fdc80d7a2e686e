#include "formats/safetensors/st_lost.h"

#include <string.h>

#include "formats/common/lost_text.h"

/* Whether the bytes are in the file. */
static bool is_whole(const st_header *h, const st_entry *e)
{
    return e->end_bytes <= h->data_nbytes;
}

/* Without an index: the tensors are those of the headers, which must all be there. */
static void describe_headers(const st_files *s, size_t index, text_buf *text)
{
    lost_text l = LOST_TEXT_INIT;
    uint64_t tensors = 0;
    bool known = index != ST_LOST_MISSING;
    for (size_t i = 0; known && i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        known = st_files_has_header(s, i);
        tensors += h->entries.count;
        for (size_t k = 0; known && k < h->entries.count; k++) {
            const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
            size_t nbytes;
            if (is_whole(h, e)) {
                lost_text_add_whole(&l, e->end_bytes - e->begin_bytes);
            } else if (i == index) {
                lost_text_add(&l, st_header_name(h, e, &nbytes));
            }
        }
    }
    if (known)
        lost_text_write(&l, tensors, text);
    lost_text_release(&l);
}

/* *nbytes of each whole tensor of the index plus 1, by its id. */
static void see_entries(const st_files *s, const hf_index *ix, uint64_t *nbytes_plus_1,
                        uint8_t *is_opened)
{
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        const uint32_t self =
            strtab_find(&ix->files, st_files_name(s, i), strlen(st_files_name(s, i)));
        if (self == STRTAB_NONE)
            continue;
        is_opened[self] = 1;
        for (size_t k = 0; k < h->entries.count; k++) {
            const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
            size_t nbytes;
            const char *name = st_header_name(h, e, &nbytes);
            const uint32_t tensor = strtab_find(&ix->tensors, name, nbytes);
            if (tensor != STRTAB_NONE && *VEC_AT(&ix->file_of, const uint32_t, tensor) == self &&
                is_whole(h, e))
                nbytes_plus_1[tensor] = e->end_bytes - e->begin_bytes + 1;
        }
    }
}

static void describe_index(const st_files *s, const hf_index *ix, size_t index,
                           const uint64_t *nbytes_plus_1, const uint8_t *is_opened, text_buf *text)
{
    lost_text l = LOST_TEXT_INIT;
    l.no_cut = index == ST_LOST_MISSING;
    const uint32_t self =
        index == ST_LOST_MISSING
            ? STRTAB_NONE
            : strtab_find(&ix->files, st_files_name(s, index), strlen(st_files_name(s, index)));
    for (uint32_t t = 0; t < ix->file_of.count; t++) {
        const uint32_t of = *VEC_AT(&ix->file_of, const uint32_t, t);
        if (nbytes_plus_1[t] > 0) {
            lost_text_add_whole(&l, nbytes_plus_1[t] - 1);
        } else if (index == ST_LOST_MISSING ? !is_opened[of] : of == self) {
            lost_text_add(&l, strtab_text(&ix->tensors, t));
        }
    }
    lost_text_write(&l, ix->file_of.count, text);
    lost_text_release(&l);
}

void st_lost_describe(const st_files *s, const void *hf_index_or_null, size_t index, text_buf *text)
{
    const hf_index *ix = hf_index_or_null;
    if (ix == NULL) {
        describe_headers(s, index, text);
        return;
    }
    budget *owner = ix->file_of.owner;
    const size_t sizes_nbytes = (ix->file_of.count + 1) * sizeof(uint64_t);
    const size_t files = strtab_count(&ix->files) + 1;
    uint64_t *sizes = budget_alloc(owner, sizes_nbytes, NULL);
    uint8_t *is_opened = budget_alloc(owner, files, NULL);
    if (sizes != NULL && is_opened != NULL) {
        memset(sizes, 0, sizes_nbytes);
        memset(is_opened, 0, files);
        see_entries(s, ix, sizes, is_opened);
        describe_index(s, ix, index, sizes, is_opened, text);
    }
    budget_free(owner, is_opened, files);
    budget_free(owner, sizes, sizes_nbytes);
}

void st_lost_describe_missing(const open_request *req, const hf_index *ix, text_buf *text)
{
    open_request quiet = *req;
    st_files *s;
    quiet.found = NULL;
    quiet.damage = NULL;
    if (st_files_open(&quiet, &s, NULL) != FSDPCK_OK)
        return;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&ix->files); i++) {
        path_kind kind = PATH_ABSENT;
        st = path_probe(&req->probe->dir, strtab_text(&ix->files, i), &kind, NULL, NULL);
        if (st == FSDPCK_OK && kind != PATH_ABSENT)
            st = st_files_add(s, strtab_text(&ix->files, i), NULL);
    }
    if (st == FSDPCK_OK && st_files_read_damaged(s, NULL) == FSDPCK_OK)
        st_lost_describe(s, ix, ST_LOST_MISSING, text);
    st_files_close(s);
}
