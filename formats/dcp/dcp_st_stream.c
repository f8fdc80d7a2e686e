/* dcp_st_stream.c: safetensors streams inside `.distcp` files. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/json.h"
#include "formats/common/st_header.h"
#include "formats/dcp/dcp_internal.h"

struct dcp_st_stream {
    uint32_t file;
    uint64_t offset_bytes;
    dcp_st_stream *next; /* another stream of the same file */
    st_header header;
    budget *owner;
    vec by_name; /* uint32_t: entry of each name id */
    vec boxes;   /* inner_box, of each name id */
    vec offsets; /* uint64_t */
};

/* Box of a tensor's elements in the whole tensor, from DCP_SHARDING_INFO. */
typedef struct inner_box {
    uint64_t at; /* in offsets */
    uint32_t ndim;
    uint32_t known;
} inner_box;

fsdpck_status dcp_st_stream_probe(dcp_folder *d, uint32_t file_id, uint64_t offset_bytes,
                                  bool *is_stream, fsdpck_error *err)
{
    const uint64_t file_nbytes = catalogue_file(d->cat, file_id)->nbytes;
    uint8_t head[9];

    *is_stream = false;
    if (!checked_range(offset_bytes, sizeof head, file_nbytes))
        return FSDPCK_OK;
    RETURN_IF(file_set_read_at(&d->blobs, file_id, offset_bytes, head, sizeof head, err));
    *is_stream =
        load_le64(head) <= file_nbytes - offset_bytes - 8 && load_le64(head) > 1 && head[8] == '{';
    return FSDPCK_OK;
}

void dcp_st_stream_free(dcp_st_stream *inner)
{
    while (inner != NULL) {
        dcp_st_stream *next = inner->next;
        st_header_release(&inner->header);
        VEC_RELEASE_ALL(&inner->by_name, &inner->boxes, &inner->offsets);
        budget_free(inner->owner, inner, sizeof *inner);
        inner = next;
    }
}

/* {"saved_offsets": [3, 0]}, whose first token was read. */
static fsdpck_status read_box(json_reader *json, dcp_st_stream *inner, inner_box *box,
                              fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(json, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(json, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const bool offsets = t.nbytes == 13 && memcmp(t.text, "saved_offsets", 13) == 0;
        RETURN_IF(json_next(json, &t, err));
        if (!offsets || t.kind != JSON_ARRAY) {
            RETURN_IF(json_skip(json, &t, err));
            continue;
        }
        *box = (inner_box){.at = inner->offsets.count, .known = 1};
        for (;;) {
            RETURN_IF(json_next(json, &t, err));
            if (t.kind == JSON_ARRAY_END)
                break;
            uint64_t *offset = vec_push(&inner->offsets, err);
            if (offset == NULL)
                return FSDPCK_LIMIT;
            if (t.kind != JSON_NUMBER || !t.is_u64 || ++box->ndim > NDIM_MAX)
                return FAIL(err, BADINPUT, ST_META, "DCP_SHARDING_INFO has no list of offsets");
            *offset = t.u64;
        }
    }
}

static fsdpck_status read_boxes(dcp_st_stream *inner, fsdpck_error *err)
{
    size_t nbytes;
    const char *text = st_header_metadata(&inner->header, "DCP_SHARDING_INFO", &nbytes);
    json_reader json;
    json_token t;
    fsdpck_status st;

    if (text == NULL)
        return FSDPCK_OK;
    json_reader_init(&json, text, nbytes, FSDPCK_FINDING_ST_META);
    GOTO_IF(json_expect(&json, JSON_OBJECT, &t, err), out);
    for (;;) {
        inner_box ignored, *box = &ignored;
        GOTO_IF(json_next(&json, &t, err), out);
        if (t.kind == JSON_OBJECT_END)
            break;
        const uint32_t id = strtab_find(&inner->header.names, t.text, t.nbytes);
        if (id != STRTAB_NONE)
            box = VEC_AT(&inner->boxes, inner_box, id);
        GOTO_IF(read_box(&json, inner, box, err), out);
    }
    st = json_next(&json, &t, err);
out:
    json_reader_release(&json);
    return st;
}

static fsdpck_status inner_open(dcp_folder *d, uint32_t file_id, uint64_t offset_bytes,
                                dcp_st_stream **made, fsdpck_error *err)
{
    dcp_st_stream *inner = budget_alloc(d->owner, sizeof *inner, err);
    dcp_blob_reader reader = {.d = d, .file = file_id};
    const st_input in = {
        .read = dcp_blob_read,
        .ctx = &reader,
        .base_offset_bytes = offset_bytes,
        .nbytes = catalogue_file(d->cat, file_id)->nbytes - offset_bytes,
    };
    if (inner == NULL)
        return FSDPCK_LIMIT;
    *inner = (dcp_st_stream){
        .file = file_id,
        .offset_bytes = offset_bytes,
        .owner = d->owner,
        .by_name = VEC_OF(uint32_t, d->owner),
        .boxes = VEC_OF(inner_box, d->owner),
        .offsets = VEC_OF(uint64_t, d->owner),
    };
    fsdpck_status st = st_header_read(&in, d->owner, &inner->header, err);
    if (st != FSDPCK_OK) {
        budget_free(d->owner, inner, sizeof *inner);
        return st;
    }
    const size_t nnames = strtab_count(&inner->header.names);
    st = FSDPCK_LIMIT;
    uint32_t *by_name = vec_push_n(&inner->by_name, nnames, err);
    if (by_name == NULL || vec_push_n(&inner->boxes, nnames, err) == NULL)
        goto out;
    memset(by_name, 0xFF, nnames * sizeof *by_name);
    for (size_t i = 0; i < inner->header.entries.count; i++)
        by_name[VEC_AT(&inner->header.entries, st_entry, i)->name] = (uint32_t)i;
    st = read_boxes(inner, err);
out:
    if (st != FSDPCK_OK)
        dcp_st_stream_free(inner);
    else
        *made = inner;
    return st;
}

/* Header of the stream that begins there, parsed once. */
static fsdpck_status inner_get(dcp_folder *d, uint32_t file_id, uint64_t offset_bytes,
                               const dcp_st_stream **found, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    dcp_st_stream *inner = NULL;

    pthread_mutex_lock(&d->lock);
    if (d->streams.count <= file_id &&
        vec_push_n(&d->streams, file_id + 1 - d->streams.count, err) == NULL)
        st = FSDPCK_LIMIT;
    if (st == FSDPCK_OK) {
        dcp_st_stream **first = VEC_AT(&d->streams, dcp_st_stream *, file_id);
        inner = *first;
        while (inner != NULL && inner->offset_bytes != offset_bytes)
            inner = inner->next;
        if (inner == NULL &&
            (st = inner_open(d, file_id, offset_bytes, &inner, err)) == FSDPCK_OK) {
            inner->next = *first;
            *first = inner;
        }
    }
    pthread_mutex_unlock(&d->lock);
    *found = inner;
    return st;
}

/* Two chunks of one FQN in one file share a name: only the last one exists. */
static fsdpck_status check_box(const dcp_folder *d, const dcp_st_stream *inner, uint32_t name,
                               uint64_t chunk, fsdpck_error *err)
{
    const inner_box *box = VEC_AT(&inner->boxes, inner_box, name);
    const unsigned ndim = catalogue_tensor(d->cat, catalogue_chunk(d->cat, chunk)->tensor)->ndim;
    uint64_t offsets[NDIM_MAX];

    if (!box->known)
        return FSDPCK_OK;
    catalogue_chunk_box(d->cat, chunk, offsets, NULL);
    if (shape_equal(VEC_AT(&inner->offsets, uint64_t, box->at), box->ndim, offsets, ndim))
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, DCP_ST_BOX,
                     ("chunk in a safetensors stream differs from the metadata"),
                     (next, "use a checkpoint saved without SerializationFormat.SAFETENSORS: with "
                            "it, torch keeps only one chunk of a tensor per file"));
}

fsdpck_status dcp_st_stream_locate(dcp_folder *d, uint64_t chunk, place *where, fsdpck_error *err)
{
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);
    const cat_tensor *t = catalogue_tensor(d->cat, c->tensor);
    const dcp_st_stream *inner;

    RETURN_IF(inner_get(d, c->file, c->offset_bytes, &inner, err));
    const st_header *h = &inner->header;
    const uint32_t id = strtab_find(&h->names, catalogue_name(d->cat, t->name),
                                    catalogue_name_nbytes(d->cat, t->name));
    const uint32_t number =
        id == STRTAB_NONE ? UINT32_MAX : *VEC_AT(&inner->by_name, const uint32_t, id);
    if (number == UINT32_MAX)
        return FAIL(err, BADINPUT, DCP_ORPHAN, "safetensors stream does not hold the tensor");
    const st_entry *e = VEC_AT(&h->entries, const st_entry, number);
    const uint64_t *sizes = st_header_shape(h, e);
    RETURN_IF(dcp_payload_check(d, chunk, (dtype)e->dtype, e->ndim, sizes, err));
    RETURN_IF(check_box(d, inner, id, chunk, err));
    *where = (place){
        .file = c->file,
        .rows = true,
        .offset_bytes = h->data_offset_bytes + e->begin_bytes,
        .record_offset_bytes = h->data_offset_bytes + e->begin_bytes,
        .record_nbytes = e->end_bytes - e->begin_bytes,
    };
    box_row_major_strides(sizes, e->ndim, where->strides);
    return FSDPCK_OK;
}
