/* torch_stream.h: torch.save files without tensors, in the format before torch 1.6. A test appends the
 * opcodes of one value between begin and end.
 *
 *     text_buf file = {.limit_bytes = SIZE_MAX / 2};
 *     torch_stream_begin(&file);
 *     text_append(&file, "}", 1);
 *     torch_stream_text(&file, "lr");
 *     torch_stream_int(&file, 1);
 *     text_append(&file, "s", 1);
 *     torch_stream_end(&file);
 *     scratch_write(dir, "state.pt", file.text, file.nbytes);
 */
#ifndef FSDPCK_TESTS_SUPPORT_TORCH_STREAM_H
#define FSDPCK_TESTS_SUPPORT_TORCH_STREAM_H

#include "base/alloc.h"

void torch_stream_begin(text_buf *file);
void torch_stream_end(text_buf *file);
/* The opcodes of a str of at most 255 bytes, and of an int. */
void torch_stream_text(text_buf *file, const char *text);
void torch_stream_int(text_buf *file, int32_t number);
/* Those of an OrderedDict {'a': 1} whose attribute `version` is the number; 0: it has none. */
void torch_stream_dict(text_buf *file, int32_t version);

#endif
