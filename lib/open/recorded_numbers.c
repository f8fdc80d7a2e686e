#include "open/recorded_numbers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "map/map.h"
#include "open/arguments_check.h"
#include "open/model_config.h"
#include "open/training_arguments.h"

static fsdpck_status apply(fsdpck_checkpoint *c, const char *from, fsdpck_error *err)
{
    text_buf used = {.limit_bytes = 4096};
    const fsdpck_status st = map_apply_arguments(c->map, &used, err);
    if (st == FSDPCK_OK && used.nbytes > 0)
        log_write(&c->ctx->log, LOG_NOTE, "from %s: %s", from, used.text);
    text_release(&used);
    if (st != FSDPCK_OK)
        error_path(err, c->base->path);
    return st;
}

/* --- params.json --- */

static void read_params(fsdpck_checkpoint *c, meta_params *p)
{
    const fsdpck_checkpoint *of = c;
    char *text = NULL;
    size_t nbytes = 0;
    path_kind kind;
    fsdpck_error unread = FSDPCK_ERROR_INIT;
    *p = (meta_params){.scaled_rope = JSON_END};
    while (of->base != NULL)
        of = of->base;
    if (path_probe(&of->probe.dir, META_PARAMS_FILE, &kind, NULL, NULL) != FSDPCK_OK ||
        kind != PATH_FILE)
        return;
    fsdpck_status st = file_read_whole(&of->probe.dir, META_PARAMS_FILE, META_PARAMS_NBYTES_MAX,
                                       &text, &nbytes, &unread);
    if (st == FSDPCK_OK)
        st = meta_params_read(text, nbytes, p, &unread);
    free(text);
    if (st == FSDPCK_OK)
        return;
    *p = (meta_params){.scaled_rope = JSON_END};
    log_warn(&c->ctx->log, unread.finding, "copy it again: Meta publishes it with the weights",
             "%s beside the weights cannot be read, and is not compared with config.json: %s",
             META_PARAMS_FILE, unread.message);
}

static void take(fsdpck_checkpoint *c, const char *key, uint64_t number, bool may_differ)
{
    if (number > 0)
        map_take_argument(c->map, &(map_argument){.key = key,
                                                  .key_nbytes = strlen(key),
                                                  .value = number,
                                                  .may_differ = may_differ,
                                                  .file = META_PARAMS_FILE});
}

static fsdpck_status compare_size(const char *key, uint64_t stated, const char *param,
                                  uint64_t number, fsdpck_error *err)
{
    if (stated == 0 || number == 0 || stated == number)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MAP_ARGUMENTS,
                     ("config.json and " META_PARAMS_FILE " differ in '%s'", key),
                     (expected, "%" PRIu64 ", '%s' of " META_PARAMS_FILE, number, param),
                     (found, "%" PRIu64 " in config.json", stated),
                     (next, "give the config.json of this model with --config; if " META_PARAMS_FILE
                            " is of another model, copy that of this model beside the weights"));
}

/* Without n_kv_heads, Llama 1 has as many as heads; the tensors show whether that is so. */
static fsdpck_status apply_params(fsdpck_checkpoint *c, const meta_params *p, fsdpck_error *err)
{
    const uint64_t rows = meta_params_head_dim(p);
    if (!meta_params_are_of_model(p))
        return FSDPCK_OK;
    if (rows > 0)
        map_take_head_dim(c->map, rows,
                          p->head_dim > 0 ? "'head_dim' of " META_PARAMS_FILE
                                          : "'dim' / 'n_heads' of " META_PARAMS_FILE);
    take(c, "num_attention_heads", p->heads, false);
    take(c, "num_key_value_heads", p->kv_heads > 0 ? p->kv_heads : p->heads, p->kv_heads == 0);
    RETURN_IF(apply(c, META_PARAMS_FILE, err));
    const map_config_sizes sizes = map_sizes(c->map);
    fsdpck_status st = compare_size("hidden_size", sizes.hidden_size, "dim", p->dim, err);
    if (st == FSDPCK_OK)
        st = compare_size("num_hidden_layers", sizes.num_hidden_layers, "n_layers", p->layers, err);
    if (st != FSDPCK_OK)
        error_path(err, c->base->path);
    return st;
}

/* --- settings --- */

/* Of the config.json that the output gets. One that is no JSON has been refused before. */
static fsdpck_status check_settings(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                    const meta_params *p, fsdpck_error *err)
{
    model_config config = {0};
    fsdpck_status st = FSDPCK_OK;
    if (o->map_config != NULL)
        st = model_config_read_file(o->map_config, &config, err);
    else if (o->like != NULL && o->like->probe.is_folder)
        st = model_config_read(&o->like->probe.dir, &config, err);
    if (st == FSDPCK_OK)
        st = arguments_check(c->base, p, &config, err);
    model_config_release(&config);
    return st;
}

fsdpck_status recorded_numbers_apply(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                     fsdpck_error *unread, fsdpck_error *err)
{
    meta_params params;
    if (training_arguments_take(c->base, c->map, unread) == FSDPCK_OK)
        RETURN_IF(apply(c, "the arguments of the training", err));
    read_params(c, &params);
    RETURN_IF(apply_params(c, &params, err));
    return check_settings(c, o, &params, err);
}
