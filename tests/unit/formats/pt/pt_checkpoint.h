/* pt_checkpoint.h: a .pt file read through pt_reader and written through pt_writer, without planner or
 * engine.
 *
 *     pt_checkpoint o;
 *     st = pt_checkpoint_open(&o, path, opaque_calls, &err);
 *     uint8_t *bytes = pt_tensor_bytes(&o, tensor, &nbytes);   // row-major; free()
 *     pt_digest(&o, tensor, text);
 *     pt_copy(&o, "copy.pt");
 *     pt_checkpoint_close(&o);
 */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_PT_PT_CHECKPOINT_H
#define FSDPCK_TESTS_UNIT_FORMATS_PT_PT_CHECKPOINT_H

#include "formats/pt/pt.h"

typedef struct pt_checkpoint {
    budget owner;
    catalogue cat;
    source src;
    void *self;
} pt_checkpoint;

enum { PT_DIGEST_BYTES = 1024 };

fsdpck_status pt_checkpoint_open(pt_checkpoint *o, const char *path, bool opaque_calls,
                                 fsdpck_error *err);
void pt_checkpoint_close(pt_checkpoint *o);
/* NULL and err on failure. */
uint8_t *pt_tensor_bytes(pt_checkpoint *o, uint32_t tensor, uint64_t *nbytes, fsdpck_error *err);
/* "<digest>  <dtype>[<dims>]  <name>", as the fixtures' .digests files have it. */
fsdpck_status pt_digest(pt_checkpoint *o, uint32_t tensor, char text[PT_DIGEST_BYTES],
                        fsdpck_error *err);
/* All tensors and the nested state. flat: without the nesting. */
fsdpck_status pt_copy(pt_checkpoint *o, const char *path, bool flat, fsdpck_error *err);

#endif
