/* hf_missing.h: whether all weight files of a Hugging Face folder are there: those that its index
 * names, or those that numbers in names count ("-00001-of-00003"). One rule for safetensors and for
 * files of torch.save.
 *
 *     hf_missing_family(in, ".safetensors", &entry)                 // entry of an incomplete family
 *     hf_missing_family_error(in, ".safetensors", entry, err)       // FILE-MISSING
 *     RETURN_IF(hf_missing_check(req, names, count, suffix, err));  // FILE-MISSING
 */
#ifndef FSDPCK_HF_MISSING_H
#define FSDPCK_HF_MISSING_H

#include "formats/format.h"

bool hf_missing_family(const probe_input *in, const char *suffix, const char **entry);
fsdpck_status hf_missing_family_error(const probe_input *in, const char *suffix, const char *entry,
                                      fsdpck_error *err);
/* `names`: of the files that must be there, sorted. */
fsdpck_status hf_missing_check(const probe_input *in, const char *const *names, size_t count,
                               const char *suffix, fsdpck_error *err) FSDPCK_MUST_CHECK;
bool hf_missing_has_entry(const probe_input *in, const char *name);

#endif
