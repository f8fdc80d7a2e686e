/* dequantized_checkpoint.c: a checkpoint whose quantized weights are read as bfloat16. */
#include "open/checkpoint.h"
#include "open/model_config.h"

/* Of torch and transformers, for models that state no other. */
#define BLOCK 128u

static quant_blocks blocks_of(const model_config *config)
{
    if (config->block[0] == 0)
        return (quant_blocks){.size = {BLOCK, BLOCK}};
    return (quant_blocks){.size = {config->block[0], config->block[1]}, .is_stated = true};
}

static fsdpck_status read_block(const fsdpck_checkpoint *c, quant_blocks *block, fsdpck_error *err)
{
    model_config config = {0};
    *block = blocks_of(&config);
    while (c->base != NULL)
        c = c->base;
    if (!c->probe.is_folder)
        return FSDPCK_OK;
    fsdpck_status st = model_config_read(&c->probe.dir, &config, err);
    if (st == FSDPCK_OK && config.bad_block)
        st = FAIL_WITH(err, BADINPUT, QUANT_SCALE, ("weight_block_size of config.json is invalid"),
                       (path_in, c->path, "config.json"),
                       (expected, "[ROWS, COLUMNS], two positive numbers"));
    if (st == FSDPCK_OK)
        *block = blocks_of(&config);
    model_config_release(&config);
    return st;
}

static fsdpck_status keep_ties(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; i < c->base->ties.count; i++) {
        const tied_pair *t = VEC_AT(&c->base->ties, const tied_pair, i);
        const tied_pair made = {dequantizer_same(c->dequantizer, t->first),
                                dequantizer_same(c->dequantizer, t->alias)};
        if (made.first != CAT_NONE && made.alias != CAT_NONE)
            RETURN_IF(vec_add(&c->ties, &made, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status apply(fsdpck_checkpoint *c, const map_inputs *l, fsdpck_error *err)
{
    quant_blocks block;
    RETURN_IF(read_block(c->base, &block, err));
    const fsdpck_status st = dequantizer_new(&c->base->cat, &c->base->src, block, l->inputs.items,
                                             l->inputs.count, &c->cat, &c->dequantizer, err);
    if (st != FSDPCK_OK) {
        error_path(err, c->path);
        return st;
    }
    c->src = *dequantizer_source(c->dequantizer);
    c->dequantized = dequantizer_count(c->dequantizer);
    RETURN_IF(derived_checkpoint_skip_others(c, err));
    RETURN_IF(keep_ties(c, err));
    RETURN_IF(checkpoint_parts_all_model(&c->cat, &c->parts, err));
    /* No mesh is inferred: the parts of a weight are no shards. */
    c->sharded_otherwise = c->base->sharded_otherwise;
    return FSDPCK_OK;
}

fsdpck_status checkpoint_dequantize(fsdpck_checkpoint *base, fsdpck_checkpoint **out,
                                    fsdpck_error *err)
{
    *out = NULL;
    RETURN_IF(checkpoint_load_inner(base, err));
    base->unquantized = true;
    map_inputs l;
    fsdpck_status st = map_inputs_list(base, &l, err);
    if (st == FSDPCK_OK && dequantizer_applies(&base->cat, l.inputs.items, l.inputs.count)) {
        st = derived_checkpoint_new(base, out, err);
        if (st == FSDPCK_OK)
            st = apply(*out, &l, err);
    }
    map_inputs_release(&l);
    return st;
}

/* Without stated blocks, scales may be of another kind: one for each tensor. What --dequantize does not convert has
 * no rule. */
fsdpck_status checkpoint_warn_scales(fsdpck_checkpoint *c, const model_config *config,
                                     fsdpck_error *err)
{
    const quant_blocks block = blocks_of(config);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    map_inputs l;
    if (config->bad_block || !block.is_stated)
        return FSDPCK_OK;
    fsdpck_status st = map_inputs_list(c, &l, err);
    if (st == FSDPCK_OK && dequantizer_check(&c->cat, &c->src, block, l.inputs.items,
                                             l.inputs.count, &what) == FSDPCK_BADINPUT)
        log_warn(&c->ctx->log, what.finding, what.next, "'%s': %s", c->path, what.message);
    map_inputs_release(&l);
    return st;
}
