/* target_write.h: writes a target's files as exec would, without plan and engine.
 *
 *     RETURN_IF(some_writer.layout(&t, &options, err));
 *     RETURN_IF(target_write(&t, &some_writer, path, target_fill_index, NULL, err));
 *
 * `path` is the file, or the existing folder of a folder target. Constants, chunks, deferred bytes
 * and the bytes of seal() must cover every file once: else INTERNAL, with the byte offset.
 */
#ifndef FSDPCK_TESTS_TARGET_WRITE_H
#define FSDPCK_TESTS_TARGET_WRITE_H

#include "formats/format.h"

/* One element of a target tensor, by its row-major index in the whole tensor. */
typedef void (*target_fill_fn)(void *ctx, const catalogue *cat, uint32_t tensor, uint64_t element,
                               uint8_t *dst);

/* Its index, in float32, bfloat16 or int64. */
void target_fill_index(void *ctx, const catalogue *cat, uint32_t tensor, uint64_t element,
                       uint8_t *dst);

fsdpck_status target_write(target *t, const format_writer *writer, const char *path,
                           target_fill_fn fill, void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
