/* The header of a safetensors stream, and the two JSON texts that come with such files.
 *
 * First byte: 0 the stream, 1 the index of a Hugging Face folder. An accepted stream must keep its
 * guarantees: its entries tile the data, shape and dtype give the bytes, and the header that the
 * writer would write for it reads back as the same. An independent reader of the tests must accept
 * the same streams. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/common/st_header.h"
#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/st_header_writer.h"
#include "tests/support/memory_bytes.h"
#include "tests/support/st_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_entries(const st_header *h)
{
    uint64_t at = 0;
    for (size_t i = 0; i < h->entries.count; i++) {
        const st_entry *e = VEC_AT(&h->entries, const st_entry, i);
        uint64_t nbytes = dtype_get((dtype)e->dtype)->itemsize_bytes;
        for (unsigned d = 0; d < e->ndim; d++)
            nbytes *= st_header_shape(h, e)[d];
        MUST(nbytes > 0 || e->ndim > 0);
        MUST(e->begin_bytes == at && e->end_bytes == at + nbytes);
        at = e->end_bytes;
    }
    MUST(at == h->data_nbytes);
}

static void check_written(const st_header *h, budget *owner)
{
    text_buf text = {0};
    st_header_writer w;
    st_header_write_begin(&w, &text);
    for (size_t i = 0; i < h->entries.count; i++) {
        const st_entry *e = VEC_AT(&h->entries, const st_entry, i);
        size_t n;
        const char *name = st_header_name(h, e, &n);
        st_header_write_tensor(&w, name, n, (dtype)e->dtype, e->ndim, st_header_shape(h, e),
                               e->begin_bytes, e->end_bytes);
    }
    MUST(st_header_write_end(&w, NULL) == FSDPCK_OK);
    st_header again;
    MUST(st_header_parse(text.text + 8, text.nbytes - 8, 8, h->data_nbytes, owner, &again, NULL) ==
         FSDPCK_OK);
    MUST(again.entries.count == h->entries.count);
    for (size_t i = 0; i < h->entries.count; i++) {
        const st_entry *a = VEC_AT(&h->entries, const st_entry, i);
        size_t n;
        const char *name = st_header_name(h, a, &n);
        /* Entries without bytes may change places among themselves: found by name. */
        const uint32_t id = strtab_find(&again.names, name, n);
        MUST(id != STRTAB_NONE);
        const st_entry *b = VEC_AT(&again.entries, const st_entry, 0);
        while (b->name != id)
            b++;
        MUST(a->dtype == b->dtype && a->ndim == b->ndim && a->begin_bytes == b->begin_bytes &&
             a->end_bytes == b->end_bytes);
        MUST(a->ndim == 0 || memcmp(st_header_shape(h, a), st_header_shape(&again, b),
                                    a->ndim * sizeof(uint64_t)) == 0);
    }
    st_header_release(&again);
    text_release(&text);
}

static void fuzz_stream(const uint8_t *bytes, size_t nbytes, budget *owner)
{
    memory_bytes m = {.bytes = bytes, .nbytes = nbytes};
    const st_input in = {.read = memory_bytes_read, .ctx = &m, .nbytes = nbytes};
    st_header h;
    fsdpck_error err;
    fsdpck_error_init(&err);
    const fsdpck_status st = st_header_read(&in, owner, &h, &err);
    const st_answer expected = st_reference(bytes, nbytes);
    MUST(expected == ST_UNSURE || (expected == ST_GOOD) == (st == FSDPCK_OK));
    if (st != FSDPCK_OK) {
        MUST(st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT);
        MUST(err.status == st && err.message[0] != '\0');
        MUST(st == FSDPCK_LIMIT || err.finding != FSDPCK_FINDING_NONE);
        MUST(!err.has_offset || err.offset_bytes <= nbytes);
        return;
    }
    check_entries(&h);
    check_written(&h, owner);
    st_header_release(&h);
}

static void fuzz_index(const uint8_t *bytes, size_t nbytes, budget *owner)
{
    hf_index ix;
    fsdpck_error err;
    fsdpck_error_init(&err);
    if (hf_index_parse((const char *)bytes, nbytes, owner, &ix, &err) != FSDPCK_OK) {
        MUST(err.status != FSDPCK_OK &&
             (err.status == FSDPCK_LIMIT || err.finding != FSDPCK_FINDING_NONE));
        return;
    }
    MUST(ix.file_of.count > 0 && ix.file_of.count == strtab_count(&ix.tensors));
    for (uint32_t i = 0; i < ix.file_of.count; i++) {
        const uint32_t name = *VEC_AT(&ix.file_of, const uint32_t, i);
        MUST(name < strtab_count(&ix.files));
        const char *path = strtab_text(&ix.files, name);
        MUST(path[0] != '/' && path[0] != '\0' && strlen(path) == strtab_nbytes(&ix.files, name));
        MUST(strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0 &&
             strstr(path, "/../") == NULL);
    }
    hf_index_release(&ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    budget owner;
    budget_init(&owner, (uint64_t)256 << 20, "metadata", NULL);
    if (nbytes == 0)
        return 0;
    if (data[0] == 0)
        fuzz_stream(data + 1, nbytes - 1, &owner);
    else
        fuzz_index(data + 1, nbytes - 1, &owner);
    MUST(owner.used_bytes == 0);
    return 0;
}
