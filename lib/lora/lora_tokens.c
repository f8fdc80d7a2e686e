/* lora_tokens.c: trainable_token_indices of adapter_config.json: a list of rows for the only embedding, or an object with
 * such a list for each name of a module. */
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "lora/lora.h"

static bool is_module(const json_token *key, const char *path, size_t nbytes)
{
    return key->nbytes <= nbytes &&
           memcmp(path + nbytes - key->nbytes, key->text, key->nbytes) == 0 &&
           (key->nbytes == nbytes || path[nbytes - key->nbytes - 1] == '.');
}

/* After JSON_ARRAY. */
static fsdpck_status read_rows(json_reader *r, vec *rows, fsdpck_error *err)
{
    for (;;) {
        json_token t;
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_NUMBER || !t.is_u64)
            return FAIL(err, BADINPUT, LORA_CONFIG,
                        "trainable_token_indices contains something else than numbers of tokens");
        RETURN_IF(vec_add(rows, &t.u64, err));
    }
}

/* The value of trainable_token_indices. */
static fsdpck_status read_indices(json_reader *r, const char *path, size_t nbytes, vec *rows,
                                  bool *found, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind == JSON_ARRAY) {
        *found = true;
        return read_rows(r, rows, err);
    }
    if (t.kind != JSON_OBJECT)
        return json_skip(r, &t, err);
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const bool wanted = !*found && is_module(&t, path, nbytes);
        RETURN_IF(json_next(r, &t, err));
        if (wanted && t.kind == JSON_ARRAY) {
            *found = true;
            RETURN_IF(read_rows(r, rows, err));
        } else {
            RETURN_IF(json_skip(r, &t, err));
        }
    }
}

static fsdpck_status read_config(json_reader *r, const char *path, size_t nbytes, vec *rows,
                                 bool *found, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        if (json_is(&t, "trainable_token_indices")) {
            RETURN_IF(read_indices(r, path, nbytes, rows, found, err));
        } else {
            RETURN_IF(json_next(r, &t, err));
            RETURN_IF(json_skip(r, &t, err));
        }
    }
}

fsdpck_status lora_token_rows(const lora_config *config, const char *path, size_t nbytes, vec *rows,
                              fsdpck_error *err)
{
    bool found = false;
    json_reader r;
    json_reader_init(&r, config->text, config->nbytes, FSDPCK_FINDING_LORA_CONFIG);
    const fsdpck_status st = read_config(&r, path, nbytes, rows, &found, err);
    json_reader_release(&r);
    RETURN_IF(st);
    if (!found)
        return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                         ("trainable_token_indices of the config has no rows for '%s'", path),
                         (tensor, path));
    return FSDPCK_OK;
}
