/* dcp_folder.c: an open DCP folder before anything in it is read, and its end. */
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_item_tensor.h"

void dcp_folder_free(void *self)
{
    dcp_folder *d = self;
    if (d == NULL)
        return;
    if (d->has_blobs)
        file_set_release(&d->blobs);
    if (d->has_metadatas)
        file_set_release(&d->metadatas);
    for (size_t i = 0; i < d->streams.count; i++)
        dcp_st_stream_free(*VEC_AT(&d->streams, dcp_st_stream *, i));
    VEC_RELEASE_ALL(&d->streams, &d->inside, &d->flat_boxes);
    strtab_release(&d->item_tensor_names);
    VEC_RELEASE_ALL(&d->repeats, &d->ends, &d->uses);
    if (d->has_names)
        dcp_names_release(&d->names);
    if (d->has_lock)
        pthread_mutex_destroy(&d->lock);
    folder_close(&d->dir);
    budget_free(d->owner, d, sizeof *d);
}

fsdpck_status dcp_folder_new(const open_request *req, catalogue *cat, dcp_folder **made,
                             fsdpck_error *err)
{
    const unsigned flags = req->no_follow ? FILE_NO_FOLLOW : 0;
    dcp_folder *d = budget_alloc(req->metadata, sizeof *d, err);
    fsdpck_status st;

    if (d == NULL)
        return FSDPCK_LIMIT;
    d->dir = FOLDER_CLOSED;
    d->owner = req->metadata;
    d->log = req->log;
    d->opaque_calls = req->opaque_calls;
    d->cat = cat;
    d->inside = VEC_OF(dcp_item_tensor, req->metadata);
    strtab_init(&d->item_tensor_names, req->metadata);
    d->streams = VEC_OF(dcp_st_stream *, req->metadata);
    d->repeats = VEC_OF(dcp_repeat, req->metadata);
    d->ends = VEC_OF(uint64_t, req->metadata);
    d->uses = VEC_OF(uint8_t, req->metadata);
    d->flat_boxes = VEC_OF(dcp_flat_box, req->metadata);
    d->has_lock = pthread_mutex_init(&d->lock, NULL) == 0;
    d->has_names = true;
    GOTO_IF(dcp_names_init(&d->names, req->metadata, err), out);
    GOTO_IF(open_request_folder(req, &d->dir, err), out);
    GOTO_IF(file_set_init(&d->blobs, &d->dir, 0, flags, err), out);
    d->has_blobs = true;
    GOTO_IF(file_set_init(&d->metadatas, &d->dir, 4, flags, err), out);
    d->has_metadatas = true;
    *made = d;
    return FSDPCK_OK;
out:
    dcp_folder_free(d);
    return st;
}
