#include "open/megatron_config.h"

#include <stdlib.h>

#include "base/json.h"

#define NBYTES_MAX ((uint64_t)64 << 10)

/* A JSON object with this member, and nothing after it. */
static bool has_backend(const char *text, size_t nbytes)
{
    json_reader r;
    json_token t;
    bool found = false;
    unsigned depth = 0;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, NULL);
    while (st == FSDPCK_OK && t.kind != JSON_END) {
        depth += t.kind == JSON_OBJECT || t.kind == JSON_ARRAY;
        depth -= t.kind == JSON_OBJECT_END || t.kind == JSON_ARRAY_END;
        found = found || (depth == 1 && t.kind == JSON_KEY && json_is(&t, "sharded_backend"));
        st = json_next(&r, &t, NULL);
    }
    json_reader_release(&r);
    return st == FSDPCK_OK && found;
}

megatron_config_state megatron_config_read(const probe_input *in)
{
    char *text = NULL;
    size_t nbytes;
    if (!probe_has_entry(in, MEGATRON_CONFIG_FILE))
        return MEGATRON_CONFIG_ABSENT;
    if (file_read_whole(&in->dir, MEGATRON_CONFIG_FILE, NBYTES_MAX, &text, &nbytes, NULL) !=
        FSDPCK_OK)
        return MEGATRON_CONFIG_BAD;
    const bool is_good = has_backend(text, nbytes);
    free(text);
    return is_good ? MEGATRON_CONFIG_OK : MEGATRON_CONFIG_BAD;
}
