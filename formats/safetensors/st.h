/* st.h: safetensors: one file, a Hugging Face folder of them, and the shards of torch's own writer.
 *
 * Readers:
 *   safetensors      one file: safetensors_reader.c
 *   hf               a folder: `*.safetensors.index.json` with its files, or files without index:
 *                    hf_reader.c. Also a consolidated folder with its shards in `sharded/`.
 *   dcp-safetensors  `shard-R-model-I-of-N.safetensors`, written by HuggingFaceStorageWriter
 *                    (torch 2.8 to 2.15): dcp_safetensors_reader.c. Its files are
 *                    dcp_safetensors_*, its functions shards_*
 *   hf-bin           a folder of numbered `.bin` files with some missing, unreadable or
 *                    duplicate: hf_bin.c, hf_bin_files.c
 *
 * Writers: safetensors (one file), peft (that file in a folder), hf (`model.safetensors`, or numbered files with an index),
 * dcp-safetensors (one file per rank). Their bytes are those of the safetensors library 0.8:
 * tensors by dtype, then name; see st_layout.h.
 *
 * Shared parts: the header of a stream is read by formats/common/st_header.h; open files by
 * st_files.h.
 */
#ifndef FSDPCK_ST_H
#define FSDPCK_ST_H

#include "formats/format.h"

extern const format_reader safetensors_reader;
extern const format_reader hf_reader;
extern const format_reader hf_bin_reader;
extern const format_reader dcp_safetensors_reader;
extern const format_writer safetensors_writer;
extern const format_writer peft_writer;
extern const format_writer hf_writer;
extern const format_writer dcp_safetensors_writer;

#endif
