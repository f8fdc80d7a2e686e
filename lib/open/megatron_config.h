/* megatron_config.h: metadata.json of Megatron-Core, which names the format of a folder and is written last. */
#ifndef FSDPCK_OPEN_MEGATRON_CONFIG_H
#define FSDPCK_OPEN_MEGATRON_CONFIG_H

#include "formats/format.h"

#define MEGATRON_CONFIG_FILE "metadata.json"

typedef enum megatron_config_state {
    MEGATRON_CONFIG_ABSENT,
    MEGATRON_CONFIG_BAD, /* no JSON object, or without sharded_backend */
    MEGATRON_CONFIG_OK
} megatron_config_state;

megatron_config_state megatron_config_read(const probe_input *in);

#endif
