/* run_sidecars.c: which small files a run copies beside the weights. */
#include <inttypes.h>

#include "run/model_modules.h"
#include "run/run.h"

static sidecars_policy choose_sidecars_policy(const run *r)
{
    if (!r->sharded)
        return r->writer->of_model || r->writer->of_adapter ? SIDECARS_FLAT : SIDECARS_NAMED;
    return r->src->format->writer == r->writer ? SIDECARS_KEPT : SIDECARS_NAMED;
}

/* PEFT loads no adapter without its config, which not every reader finds beside the weights. */
static fsdpck_status add_adapter_config(run *r, fsdpck_error *err)
{
    adapter_source from;
    if (sidecars_has(&r->side, "adapter_config.json"))
        return FSDPCK_OK;
    fsdpck_status st = adapter_source_find(r->src, NULL, false, NULL, &from, err);
    if (st == FSDPCK_OK && from.text != NULL) {
        const text_buf text = {.text = from.text, .nbytes = from.nbytes};
        st = sidecars_add_text(&r->side, "adapter_config.json", &text, err);
    }
    adapter_source_release(&from);
    return st;
}

const char *run_weights_stem(const run *r)
{
    static const char stem[] = "diffusion_pytorch_model";
    bool found, of_diffusers;
    if (!r->writer->of_model)
        return NULL;
    sidecars_get_library(&r->side, &found, &of_diffusers);
    if (found || catalogue_file_count(&r->src->cat) == 0)
        return of_diffusers ? stem : NULL;
    const uint32_t path = catalogue_file(&r->src->cat, 0)->path;
    return text_begins(catalogue_name(&r->src->cat, path), stem) ? stem : NULL;
}

fsdpck_status run_find_sidecars(run *r, fsdpck_error *err)
{
    if (r->src->extract != NULL) {
        sidecars_init(&r->side, false);
        return sidecars_add_text(&r->side, "adapter_config.json", &r->src->lora_config, err);
    }
    if (r->like.base != NULL)
        return FSDPCK_OK;
    RETURN_IF(sidecars_find(&r->side, r->src, choose_sidecars_policy(r), err));
    return r->writer->of_adapter ? add_adapter_config(r, err) : FSDPCK_OK;
}

/* torch's name for most elements of the output; NULL for one that models are not loaded in. */
static const char *usual_dtype(const catalogue *c)
{
    uint64_t nelems[DTYPE_COUNT] = {0};
    dtype usual = DTYPE_COUNT;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const dtype d = (dtype)catalogue_tensor(c, i)->dtype;
        if (dtype_get(d)->kind != DTYPE_IS_FLOAT)
            continue;
        nelems[d] += catalogue_tensor_nelems(c, i);
        usual = usual == DTYPE_COUNT || nelems[d] > nelems[usual] ? d : usual;
    }
    return usual != DTYPE_COUNT && like_output_is_castable(usual) ? dtype_get(usual)->name : NULL;
}

fsdpck_status run_edit_config(run *r, fsdpck_error *err)
{
    const bool unquantize = r->src->unquantized;
    const bool recast = r->opt.select.dtype_count > 0;
    if (r->like.base != NULL || r->src->extract != NULL || (!unquantize && !recast))
        return FSDPCK_OK;
    return sidecars_edit_config(&r->side, recast ? usual_dtype(&r->to.cat) : NULL, unquantize, err);
}

fsdpck_status run_warn_modules(run *r, fsdpck_error *err)
{
    text_buf list = {0};
    uint64_t lost = 0;
    if (!r->writer->of_model || !r->side.flat || !sidecars_has(&r->side, "config.json") ||
        r->side.dir.fd < 0)
        return FSDPCK_OK;
    const fsdpck_status st = model_modules_lost(&r->side.dir, &list, &lost, err);
    if (st == FSDPCK_OK && lost > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_MODULE_LOST, "",
                 "output lacks %" PRIu64 " Python file%s of the model, which the folder of "
                 "config.json lacks too: %s",
                 lost, text_plural(lost), list.text);
    text_release(&list);
    return st;
}
