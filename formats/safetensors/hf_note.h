/* hf_note.h: the format of a Hugging Face folder, and the files beside its weights, for inspect. */
#ifndef FSDPCK_HF_NOTE_H
#define FSDPCK_HF_NOTE_H

#include "formats/format.h"
#include "formats/safetensors/st_files.h"

void hf_note_describe(const open_request *req, const st_files *s, cat_origin *origin);

#endif
