/* run_sidecars.c: which small files a run copies beside the weights. */
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

fsdpck_status run_find_sidecars(run *r, fsdpck_error *err)
{
    if (r->src->extract != NULL) {
        sidecars_init(&r->side, false);
        return sidecars_add_text(&r->side, "adapter_config.json", &r->src->lora_config, err);
    }
    if (r->like.base != NULL)
        return FSDPCK_OK;
    RETURN_IF(sidecars_find(&r->side, r->src, choose_sidecars_policy(r), err));
    if (r->src->dequantized > 0)
        RETURN_IF(sidecars_unquantize(&r->side, err));
    return r->writer->of_adapter ? add_adapter_config(r, err) : FSDPCK_OK;
}
