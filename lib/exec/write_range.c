/* Writes a range of a file from a buffer: whole blocks with direct I/O if the file uses it, partial
 * blocks through the page cache. Ranges of different items may share a block. */
#include <string.h>

#include "exec/exec_internal.h"

bool write_range_is_direct(const struct exec *x, uint32_t file_index)
{
    const uint64_t nbytes = catalogue_file(&x->r.target->cat, file_index)->nbytes;
    if (x->r.direct == EXEC_DIRECT_OFF || !output_is_direct(x->out, file_index))
        return false;
    return x->r.direct == EXEC_DIRECT_ON || nbytes >= EXEC_DIRECT_NBYTES;
}

static uint64_t align_down(uint64_t at)
{
    return at - at % FILE_DIRECT_ALIGN;
}

fsdpck_status write_range(worker *w, const output_range *range, uint8_t *bytes, fsdpck_error *err)
{
    struct exec *x = w->x;
    const uint64_t begin = range->begin;
    const uint64_t file_nbytes = catalogue_file(&x->r.target->cat, range->file)->nbytes;
    const uint64_t head = align_down(begin + FILE_DIRECT_ALIGN - 1);
    uint64_t tail = align_down(range->end);
    uint64_t end = range->end;
    if (x->out == NULL)
        return FSDPCK_OK;
    w->stats.bytes_written += end - begin;
    if (!write_range_is_direct(x, range->file) || (end < file_nbytes && head >= tail) || head > end)
        return output_write_at(x->out, range->file, begin, bytes, end - begin, err);
    if (end == file_nbytes && tail >= head && tail < end) {
        /* output_commit cuts the padding off. */
        tail += FILE_DIRECT_ALIGN;
        memset(bytes + (end - begin), 0, tail - end);
        end = tail;
    }
    if (begin < head)
        RETURN_IF(output_write_at(x->out, range->file, begin, bytes, head - begin, err));
    if (head < tail) {
        w->stats.direct_bytes += (tail < range->end ? tail : range->end) - head;
        RETURN_IF(output_write_direct(x->out, range->file, head, bytes + (head - begin),
                                      tail - head, err));
    }
    if (tail < end)
        return output_write_at(x->out, range->file, tail, bytes + (tail - begin), end - tail, err);
    return FSDPCK_OK;
}
