/* hf_gap.h: files without a stated count: one in between may be lost.
 *
 *     hf_gap_warn(req, names, count);     // FILE-OF-SET: model-00001, model-00003
 */
#ifndef FSDPCK_HF_GAP_H
#define FSDPCK_HF_GAP_H

#include "formats/format.h"

/* One warning if names that differ in one number alone lack a number, or begin above 1. */
void hf_gap_warn(const open_request *req, const char *const *names, size_t count);

#endif
