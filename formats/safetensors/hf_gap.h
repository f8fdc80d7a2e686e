/* hf_gap.h: files without a stated count: others may be lost.
 *
 *     hf_gap_warn(req, names, count);     // FILE-OF-SET: model-00001, model-00003
 *     hf_gap_note_joined(req, names, count);    // generator.safetensors and discriminator.safetensors
 *     hf_gap_warn_ranks(req, names, count);     // FILE-OF-SET: rank1; RANKS-UNKNOWN: rank0, rank1
 *     hf_gap_warn_sets(req, one, other);        // RANK-MIXED: model-00001-of-00002, ema-00001-of-00002
 *     hf_gap_report_index(req, names, count);   // IDX-NONE: model-00001-of-00002 without an index
 */
#ifndef FSDPCK_HF_GAP_H
#define FSDPCK_HF_GAP_H

#include "formats/format.h"

/* One warning if names that differ in one number alone lack a number, or begin above 1. */
void hf_gap_warn(const open_request *req, const char *const *names, size_t count);
/* A note if there are several, none with a number. */
void hf_gap_note_joined(const open_request *req, const char *const *names, size_t count);
/* A warning that files of two numbered sets are read as one model. */
void hf_gap_warn_sets(const open_request *req, const char *one, const char *other);
/* One warning if names contain ranks. */
void hf_gap_warn_ranks(const open_request *req, const char *const *names, size_t count);
/* IDX-NONE if these files, without an index, have the names of save_pretrained and are beside config.json:
 * transformers finds such files by the index alone. Other writers of numbered files have other names, or no config.json. */
void hf_gap_report_index(const open_request *req, const char *const *names, size_t count);

#endif
