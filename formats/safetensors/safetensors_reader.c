#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_files.h"
#include "formats/safetensors/st_lost.h"

/* Accepts a file of this name that no other reader recognizes, so that the error names its defect.
 */
static bool probe(const probe_input *in, const char **near_miss)
{
    if (in->is_folder)
        return false;
    const uint8_t *head = in->head;
    const uint64_t n = in->head_nbytes > 8 ? load_le64(head) : 0;
    const bool has_header = n >= 2 && n <= ST_HEADER_NBYTES_MAX && head[8] == '{';
    if (has_header && n <= in->nbytes - 8)
        return true;
    if (in->name == NULL || !text_ends_with(in->name, strlen(in->name), ".safetensors"))
        return false;
    if (has_header) /* cut; a length such as 384 resembles the first bytes of a pickle */
        return true;
    if (in->head_nbytes >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        *near_miss = "named .safetensors, but a zip archive";
        return false;
    }
    if (in->head_nbytes >= 2 && head[0] == 0x80 && head[1] <= 5) {
        *near_miss = "named .safetensors, but a pickle";
        return false;
    }
    return true;
}

static fsdpck_status fill(st_files *s, const char *name, catalogue *cat, fsdpck_error *err)
{
    const st_header *h = st_files_header(s, 0);
    uint32_t index;
    RETURN_IF(
        catalogue_add_file(cat, name, strlen(name), st_files_nbytes(s, 0), CAT_NONE, &index, err));
    catalogue_file(cat, index)->identity = st_files_identity(s, 0);
    for (size_t i = 0; i < h->entries.count; i++)
        RETURN_IF(st_files_add_tensor(s, 0, VEC_AT(&h->entries, const st_entry, i), cat, err));
    return catalogue_seal(cat, err);
}

static fsdpck_status open_one(const open_request *req, catalogue *cat, void **self,
                              fsdpck_error *err)
{
    st_files *s = NULL;
    RETURN_IF(st_files_open(req, &s, err));
    fsdpck_status st;
    GOTO_IF(st_files_add(s, req->path, err), out);
    st_files_describe_lost(s, st_lost_describe, NULL);
    GOTO_IF(st_files_read_headers(s, err), out);
    st_files_warn_extra_fields(s, &req->log);
    st_files_warn_tied(s, &req->log);
    st_files_note_unpadded(s, req);
    GOTO_IF(fill(s, text_file_name(req->path), cat, err), out);
    snprintf(cat->origin.format, sizeof cat->origin.format, "safetensors");
    GOTO_IF(st_files_keep_metadata(s, &cat->origin, err), out);
    st_files_drop_headers(s);
    *self = s;
out:
    if (st != FSDPCK_OK)
        st_files_close(s);
    return st;
}

const format_reader safetensors_reader = {
    .name = "safetensors",
    .description = "one safetensors file",
    .probe = probe,
    .open = open_one,
    .source = st_files_source,
    .close = st_files_close,
    .id = FSDPCK_FORMAT_SAFETENSORS,
    .writer = &safetensors_writer,
};
