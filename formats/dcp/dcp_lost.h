/* dcp_lost.h: what a missing or short file costs, for its error. */
#ifndef FSDPCK_DCP_LOST_H
#define FSDPCK_DCP_LOST_H

#include "base/text.h"
#include "formats/dcp/dcp_missing.h"

/* Appends "16 of 116 tensors are whole (1234 bytes), 100 tensors and objects are lost or cut: 'a', 'b' and 98 more"; nothing
 * without memory. The catalogue has the sizes of the files, 0 for a missing one. The lost ones are those of file `file_id`, or of
 * the missing files if `states` is given. */
void dcp_lost_describe(const dcp_folder *d, const catalogue *cat, const dcp_file_state *states,
                       uint32_t file_id, text_buf *text);

#endif
