/* hf_keras.h: weights of a Keras model in several HDF5 files: `m.weights.json` maps layers to
 * `m_00000.weights.h5`, `m_00001.weights.h5`.
 *
 *     if (hf_keras_find(in, &index))
 *         RETURN_IF(hf_keras_check(req, index, err));     // FILE-MISSING, or the files are refused
 */
#ifndef FSDPCK_HF_KERAS_H
#define FSDPCK_HF_KERAS_H

#include "formats/format.h"

/* The first index with numbered files of its name beside it; false without one. */
bool hf_keras_find(const probe_input *in, const char **index);
/* Never OK: FILE-MISSING if the index lists files that are missing, SRC-FOREIGN for a complete set. */
fsdpck_status hf_keras_check(const open_request *req, const char *index,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the name is that of one of several such files: "m_00000.weights.h5". */
bool hf_keras_is_shard(const char *name);

#endif
