/* zip_stream.h: a deflated record as a source's stream (state/source.h).
 *
 *     RETURN_IF(zip_stream_open(&zip->in, entry, !zip->no_crc, &s, err)); // from source.stream_open
 *     *src = (source){..., .stream_read = zip_stream_read, .stream_finish = zip_stream_finish,
 *                     .stream_close = zip_stream_close};
 */
#ifndef FSDPCK_FORMATS_COMMON_ZIP_STREAM_H
#define FSDPCK_FORMATS_COMMON_ZIP_STREAM_H

#include "formats/common/zip.h"
#include "state/source.h"

/* As zip_inflater_open; *s is NULL on failure. */
fsdpck_status zip_stream_open(const zip_input *in, const zip_entry *e, bool check_crc,
                              source_stream **s, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status zip_stream_read(source_stream *s, void *dst, uint64_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status zip_stream_finish(source_stream *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
void zip_stream_close(source_stream *s); /* NULL is fine */

#endif
