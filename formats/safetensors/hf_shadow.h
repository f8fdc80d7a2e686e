/* hf_shadow.h: a `model.safetensors` beside an index that does not list it.
 *
 * transformers prefers that file and reads only it; fsdpck reads the files in the index. The two
 * may therefore read different models: IDX-SHADOW names the files read and compares the headers.
 */
#ifndef FSDPCK_HF_SHADOW_H
#define FSDPCK_HF_SHADOW_H

#include "formats/safetensors/st_files.h"

#define HF_SINGLE_FILE "model.safetensors"

/* s: files of the index, their headers read. Damage of the other file is reported, but is not an
 * error. */
fsdpck_status hf_shadow_check(const open_request *req, const st_files *s, const char *index_name,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* torch 2.9 to 2.15 writes 0-dim tensors as zeros when it consolidates its shards in 'sharded'. */
bool hf_shadow_zeroed_scalars(const probe_input *in, const st_files *s);

#endif
