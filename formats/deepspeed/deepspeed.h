/* deepspeed.h: the reader of a folder that DeepSpeed wrote with ZeRO 1, 2 or 3: see ds_internal.h. */
#ifndef FSDPCK_FORMATS_DEEPSPEED_H
#define FSDPCK_FORMATS_DEEPSPEED_H

#include "formats/format.h"

extern const format_reader deepspeed_reader;
extern const format_reader deepspeed_universal_reader;
/* Whether the name is that of one rank's file. */
bool deepspeed_name_has_rank(const char *name);

#endif
