/* optim_folder.h: the optimizer that NeMo Automodel keeps beside the weights, in model/ and optim/. */
#ifndef FSDPCK_FORMATS_SAFETENSORS_OPTIM_FOLDER_H
#define FSDPCK_FORMATS_SAFETENSORS_OPTIM_FOLDER_H

#include "formats/format.h"

/* Whether ../optim is a DCP folder; *ranks: those that wrote into it. */
bool optim_folder_ranks(const probe_input *in, uint64_t *ranks);

#endif
