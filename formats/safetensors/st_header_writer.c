#include "formats/safetensors/st_header_writer.h"

#include <string.h>

#include "base/bytes.h"
#include "formats/common/st_header.h"

void st_header_write_begin(st_header_writer *w, text_buf *out)
{
    st_header_write_begin_as(w, out, "pt", strlen("pt"));
}

void st_header_write_begin_as(st_header_writer *w, text_buf *out, const char *format, size_t nbytes)
{
    static const uint8_t length_to_come[8];
    w->out = out;
    text_append(out, length_to_come, sizeof length_to_come);
    json_writer_init(&w->json, out, 0);
    json_begin_object(&w->json);
    json_member_object(&w->json, "__metadata__");
    json_member_text(&w->json, "format", format, nbytes);
    w->in_metadata = true;
}

void st_header_write_metadata(st_header_writer *w, const char *key, const char *text, size_t nbytes)
{
    st_header_write_pair(w, key, strlen(key), text, nbytes);
}

void st_header_write_pair(st_header_writer *w, const char *key, size_t key_nbytes, const char *text,
                          size_t nbytes)
{
    json_put_key(&w->json, key, key_nbytes);
    json_put_string(&w->json, text, nbytes);
}

static void end_metadata(st_header_writer *w)
{
    if (w->in_metadata)
        json_end_object(&w->json);
    w->in_metadata = false;
}

void st_header_write_tensor(st_header_writer *w, const char *name, size_t nbytes, dtype d,
                            unsigned ndim, const uint64_t *shape, uint64_t begin_bytes,
                            uint64_t end_bytes)
{
    json_writer *j = &w->json;
    end_metadata(w);
    json_put_key(j, name, nbytes);
    json_begin_object(j);
    json_member_string(j, "dtype", dtype_get(d)->safetensors);
    json_member_array(j, "shape");
    for (unsigned i = 0; i < ndim; i++)
        json_put_u64(j, i + 1 == ndim ? shape[i] * dtype_get(d)->packing : shape[i]);
    json_end_array(j);
    json_member_u64s(j, "data_offsets", (const uint64_t[]){begin_bytes, end_bytes}, 2);
    json_end_object(j);
}

fsdpck_status st_header_write_end(st_header_writer *w, fsdpck_error *err)
{
    end_metadata(w);
    json_end_object(&w->json);
    while (!w->out->failed && w->out->nbytes % 8 != 0)
        text_append(w->out, " ", 1);
    RETURN_IF(text_check(w->out, err));
    const uint64_t n = w->out->nbytes - 8;
    if (n > ST_HEADER_NBYTES_MAX)
        return FAIL_WITH(err, LIMIT, ST_HEADER_SIZE,
                         ("too many tensors for the header of one safetensors file"),
                         (next, "write a folder (--format hf) with a smaller --max-shard-size"));
    store_le64((uint8_t *)w->out->text, n);
    return FSDPCK_OK;
}
