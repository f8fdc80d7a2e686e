/* lost_text.h: tensors that a missing or short file costs, for its error, in the same words for all formats.
 *
 *     lost_text l = LOST_TEXT_INIT;
 *     l.whole++, l.whole_nbytes += n                        // each tensor that is complete
 *     lost_text_add(&l, name);                              // each that the file costs
 *     lost_text_write(&l, tensors, false, text);            // "26 of 29 tensors are whole (1234 bytes), ..."
 *     lost_text_release(&l);
 */
#ifndef FSDPCK_LOST_TEXT_H
#define FSDPCK_LOST_TEXT_H

#include "base/alloc.h"

typedef struct lost_text {
    uint64_t whole, whole_nbytes; /* tensors */
    uint64_t lost, named;
    bool no_cut; /* files are missing, none is short */
    text_buf names; /* of the first ones */
} lost_text;

#define LOST_TEXT_INIT ((lost_text){.names = {.limit_bytes = 65536}})

void lost_text_add(lost_text *l, const char *name);
/* `objects`: those that are lost may be objects too. */
void lost_text_write(const lost_text *l, uint64_t tensors, bool objects, text_buf *text);
void lost_text_release(lost_text *l);

#endif
