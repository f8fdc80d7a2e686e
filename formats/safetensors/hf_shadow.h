/* hf_shadow.h: a `model.safetensors` beside an index that does not name it.
 *
 * transformers looks for that file first and reads it alone; fsdpck reads what the index names. So
 * the two may see two models: IDX-SHADOW says which was read, and what the headers tell of the rest.
 */
#ifndef FSDPCK_HF_SHADOW_H
#define FSDPCK_HF_SHADOW_H

#include "formats/safetensors/st_files.h"

#define HF_SINGLE_FILE "model.safetensors"

/* s: files of the index, their headers read. Damage of the other file is said, not an error. */
fsdpck_status hf_shadow_check(const open_request *req, const st_files *s, const char *index_name,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* torch 2.9 to 2.15 writes 0-dim tensors as zeros when it consolidates its shards in 'sharded'. */
bool hf_shadow_zeroed_scalars(const probe_input *in, const st_files *s);

#endif
