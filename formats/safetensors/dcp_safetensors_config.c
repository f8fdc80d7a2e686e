/* Sizes from the settings of a model. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/safetensors/dcp_safetensors_check.h"
#include "model/weight_role.h"

#define CONFIG_NBYTES_MAX ((uint64_t)1 << 20)

/* Numbers of the outer object, and of the object `text_config` in it. */
static fsdpck_status parse(json_reader *r, shards_config *config, fsdpck_error *err)
{
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model"};
    json_token t;
    unsigned depth = 1;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    while (depth > 0) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END) {
            depth--;
            continue;
        }
        const bool is_vocab = json_is(&t, "vocab_size");
        const bool is_hidden = TEXT_IS_IN(t.text, t.nbytes, hidden);
        const bool is_inner = json_is(&t, "text_config");
        RETURN_IF(json_next(r, &t, err));
        if (is_inner && t.kind == JSON_OBJECT && depth == 1) {
            depth++;
            continue;
        }
        if (t.kind == JSON_NUMBER && t.is_u64 && is_vocab)
            config->vocab_size = t.u64;
        if (t.kind == JSON_NUMBER && t.is_u64 && is_hidden)
            config->hidden_size = t.u64;
        RETURN_IF(json_skip(r, &t, err));
    }
    return json_expect(r, JSON_END, &t, err);
}

static bool read_from(const folder *dir, shards_config *config)
{
    char *text = NULL;
    size_t nbytes = 0;
    json_reader r;
    path_kind kind;
    if (path_probe(dir, "config.json", &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE ||
        file_read_whole(dir, "config.json", CONFIG_NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return false;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    if (parse(&r, config, NULL) != FSDPCK_OK)
        *config = (shards_config){0};
    json_reader_release(&r);
    free(text);
    return true;
}

/* torch keeps the shards of a model that it consolidates in its folder 'sharded'. */
static bool is_sharded(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n >= 7 && memcmp(path + n - 7, "sharded", 7) == 0 && (n == 7 || path[n - 8] == '/');
}

void shards_config_read(const open_request *req, shards_config *config)
{
    folder above = FOLDER_CLOSED;
    text_buf path = {0};
    *config = (shards_config){0};
    if (read_from(&req->probe->dir, config) || !is_sharded(req->path))
        return;
    text_printf(&path, "%s/..", req->path);
    if (text_check(&path, NULL) == FSDPCK_OK && folder_open(&above, path.text, NULL) == FSDPCK_OK)
        (void)read_from(&above, config);
    folder_close(&above);
    text_release(&path);
}

uint64_t shards_config_size(const shards_config *config, const char *tensor, const uint64_t *shape,
                            unsigned ndim, unsigned *dim)
{
    const weight_role role = weight_role_of(tensor);
    *dim = 0;
    if (ndim == 1 && role == WEIGHT_NORM)
        return config->hidden_size;
    if (ndim != 2 || role != WEIGHT_TABLE)
        return 0;
    if (config->hidden_size > 0 && shape[1] == config->hidden_size)
        return config->vocab_size;
    *dim = 1;
    return config->vocab_size > 0 && shape[0] == config->vocab_size ? config->hidden_size : 0;
}
