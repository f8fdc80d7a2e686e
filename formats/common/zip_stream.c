#include "formats/common/zip_stream.h"

#include <stdlib.h>

struct source_stream {
    zip_inflater *inflater;
};

fsdpck_status zip_stream_open(const zip_input *in, const zip_entry *e, bool check_crc,
                              source_stream **s, fsdpck_error *err)
{
    *s = NULL;
    source_stream *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_set_nomem(err, sizeof *made);
    const fsdpck_status st = zip_inflater_open(in, e, check_crc, &made->inflater, err);
    if (st != FSDPCK_OK)
        free(made);
    else
        *s = made;
    return st;
}

fsdpck_status zip_stream_read(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    return zip_inflater_read(s->inflater, dst, nbytes, err);
}

fsdpck_status zip_stream_finish(source_stream *s, fsdpck_error *err)
{
    return zip_inflater_finish(s->inflater, err);
}

void zip_stream_close(source_stream *s)
{
    if (s == NULL)
        return;
    zip_inflater_close(s->inflater);
    free(s);
}
