/* hf_missing.h: checks that all weight files of a Hugging Face folder exist: those in its index, or
 * those that numbered names imply ("-00001-of-00003"). The same rule applies to safetensors and
 * torch.save files.
 *
 *     hf_missing_family(in, ".safetensors", &entry)                 // entry of an incomplete family
 *     hf_missing_family_error(req, ".safetensors", entry, err)      // FILE-MISSING
 *     RETURN_IF(hf_missing_check(req, names, count, suffix, ix, err));  // FILE-MISSING
 */
#ifndef FSDPCK_HF_MISSING_H
#define FSDPCK_HF_MISSING_H

#include "formats/format.h"
#include "formats/safetensors/hf_index.h"

bool hf_missing_family(const probe_input *in, const char *suffix, const char **entry);
/* Only the families of these names, which are in the folder. */
bool hf_missing_family_of(const probe_input *in, const char *const *names, size_t count,
                          const char *suffix, const char **entry);
/* RANK_MIXED if names state two numbers of files. */
fsdpck_status hf_missing_check_mixed(const probe_input *in, const char *suffix,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hf_missing_family_error(const open_request *req, const char *suffix,
                                      const char *entry, fsdpck_error *err);
/* `names`: the required files, sorted. With the index of safetensors files, which may be NULL, the error names the lost
 * tensors. */
fsdpck_status hf_missing_check(const open_request *req, const char *const *names, size_t count,
                               const char *suffix, const hf_index *ix,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* UNSUPPORTED (SRC-FOREIGN) for DeepSeek's model0-mp4.safetensors: no file contains which tensors are split, or along which
 * dim. */
fsdpck_status hf_missing_check_slices(const open_request *req, const char *entry,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
