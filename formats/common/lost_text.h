/* lost_text.h: tensors that a missing or short file costs, for its error, in the same words for all formats.
 *
 *     lost_text l = LOST_TEXT_INIT;
 *     lost_text_add_whole(&l, nbytes);                      // each tensor that is complete
 *     lost_text_add(&l, name);                              // each that the file costs
 *     lost_text_write(&l, tensors, text);                   // "26 of 29 tensors are whole (1234 bytes), ..."
 *     lost_text_release(&l);
 */
#ifndef FSDPCK_LOST_TEXT_H
#define FSDPCK_LOST_TEXT_H

#include "base/alloc.h"

typedef struct lost_text {
    uint64_t whole, whole_nbytes, largest_nbytes; /* tensors */
    uint64_t lost, named;                         /* tensors and objects */
    uint64_t objects;                             /* lost ones */
    bool no_cut;                                  /* files are missing, none is short */
    text_buf names;                               /* of the first ones */
} lost_text;

#define LOST_TEXT_INIT ((lost_text){.names = {.limit_bytes = 65536}})

void lost_text_add_whole(lost_text *l, uint64_t nbytes);
void lost_text_add(lost_text *l, const char *name);
void lost_text_add_object(lost_text *l, const char *name);
void lost_text_write(const lost_text *l, uint64_t tensors, text_buf *text);
void lost_text_release(lost_text *l);

#endif
