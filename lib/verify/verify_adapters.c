/* Adapters of LoRA in the model part: pairs, ranks, shapes, and lora_B that is all zero. */
#include <inttypes.h>
#include <string.h>

#include "lora/lora_check.h"
#include "lora/lora_likeness.h"
#include "lora/lora_zero.h"
#include "open/adapter_check.h"
#include "open/adapter_fit.h"
#include "verify/verify_internal.h"

/* ctx: the fsdpck_verify. */
static fsdpck_status report_as(void *ctx, finding_severity severity, const fsdpck_error *fault,
                               fsdpck_error *err)
{
    fsdpck_verify *v = ctx;
    (void)err;
    findings_report_as(&v->found, severity, fault);
    return FSDPCK_OK;
}

static fsdpck_status report(void *ctx, const fsdpck_error *fault, fsdpck_error *err)
{
    fsdpck_verify *v = ctx;
    fsdpck_error what = *fault;
    (void)err;
    error_path(&what, v->src->path);
    findings_report(&v->found, &what);
    return FSDPCK_OK;
}

static fsdpck_status report_zeros(fsdpck_verify *v, const lora_set *set, fsdpck_error *err)
{
    const fsdpck_checkpoint *c = v->src;
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const uint32_t b = lora_cat_tensor(set, lora_module_at(set, i)->b);
        fsdpck_error what = FSDPCK_ERROR_INIT;
        bool zero = false;
        if (b == CAT_NONE)
            continue;
        const fsdpck_status st = lora_is_zero(&c->src, &c->cat, b, &zero, &what);
        /* Unreadable chunks have their own findings. */
        if (st == FSDPCK_LIMIT || st == FSDPCK_CANCELLED) {
            if (err != NULL)
                *err = what;
            return st;
        }
        if (st != FSDPCK_OK || !zero)
            continue;
        FAIL_WITH(
            &what, BADINPUT, LORA_ZERO,
            ("lora_B of module '%s' is all zeros", lora_text(set, lora_module_at(set, i)->path)),
            (path, c->path), (tensor, catalogue_name(&c->cat, catalogue_tensor(&c->cat, b)->name)),
            (next, "compare with an earlier checkpoint, and check that the module was trained"));
        findings_report(&v->found, &what);
    }
    return FSDPCK_OK;
}

/* Files of other hosts are read only while all ranks serve them. */
static fsdpck_status find_zeros(fsdpck_verify *v, fsdpck_error *err)
{
    lora_set set;
    if (v->level < CHECK_CHECKSUM || v->src->remote_files != NULL || verify_is_partial(v) ||
        !adapters_are_likely(&v->src->cat))
        return FSDPCK_OK;
    fsdpck_status st = checkpoint_find_adapters(v->src, &set, err);
    if (st == FSDPCK_OK)
        st = report_zeros(v, &set, err);
    lora_set_release(&set);
    return st;
}

static void report_missing(fsdpck_verify *v, const fsdpck_checkpoint *base,
                           const lora_base_counts *counts)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const bool renamed = lora_base_may_fit(counts);
    lora_likeness near;
    if (counts->missing == 0)
        return;
    lora_likeness_of_base(&near, counts->first_missing, &base->cat);
    FAIL_WITH(&what, BADINPUT, LORA_SHAPE,
              ("the folder of --like has no weight for %" PRIu64 " of %" PRIu64
               " modules that the adapter changes",
               counts->missing, counts->missing + counts->compared),
              (path, v->src->path), (expected, "'%s.weight'", counts->first_missing),
              (found, "none in '%s', but modules such as '%s'%s", base->path, near.best,
               renamed ? "; it may have other names for experts, or a tied output projection" : ""),
              (next, LORA_BASE_ADVICE));
    findings_report_as(&v->found, renamed ? FINDING_WARNING : FINDING_ERROR, &what);
}

/* Modules that the adapter lost. *what: what would stop a merge. */
static fsdpck_status check_fit(fsdpck_verify *v, fsdpck_checkpoint *base, adapter_fit *fit,
                               fsdpck_error *what, fsdpck_error *err)
{
    const fsdpck_status st = adapter_fits(base, fit, what);
    if (st == FSDPCK_OK && fit->lost > 0) {
        fsdpck_error lost = FSDPCK_ERROR_INIT;
        FAIL_WITH(&lost, BADINPUT, LORA_PAIR,
                  ("the adapter has neither lora_A nor lora_B for %" PRIu64
                   " weight%s of the base model that its config names",
                   fit->lost, text_plural(fit->lost)),
                  (path, v->src->path), (tensor, fit->first.text),
                  (next, "check that the adapter is complete, and give a --like folder whose "
                         "config.json has num_hidden_layers"));
        findings_report_as(&v->found, FINDING_WARNING, &lost);
    }
    if (st == FSDPCK_OK && fit->lost_biases > 0) {
        fsdpck_error lost = FSDPCK_ERROR_INIT;
        FAIL_WITH(&lost, BADINPUT, LORA_PAIR,
                  ("the adapter lacks %" PRIu64
                   " bias%s of the base model that its config names as trained",
                   fit->lost_biases, fit->lost_biases == 1 ? "" : "es"),
                  (path, v->src->path), (tensor, fit->first_bias.text),
                  (next, "check that the adapter is complete"));
        findings_report_as(&v->found, FINDING_WARNING, &lost);
    }
    if (st != FSDPCK_LIMIT && st != FSDPCK_CANCELLED && st != FSDPCK_IO)
        return FSDPCK_OK;
    if (err != NULL)
        *err = *what;
    return st;
}

/* Each module against its weight. fits: the merge finds a weight for each, perhaps under another name, as of experts.
 * *has_named: a module has no weight there, and that is reported. */
static fsdpck_status check_base(fsdpck_verify *v, const lora_set *set, const lora_config *config,
                                const fsdpck_checkpoint *base, const strtab *tied, bool fits,
                                bool *has_named, fsdpck_error *err)
{
    *has_named = false;
    for (uint32_t i = 0; i < lora_adapter_count(set); i++) {
        lora_base_counts counts;
        RETURN_IF(lora_check_base(set, &v->src->cat, i, config, &base->cat, tied, &counts, report,
                                  v, err));
        if (!fits)
            report_missing(v, base, &counts);
        *has_named = *has_named || (!fits && counts.missing > 0);
    }
    return lora_check_replaced(set, &v->src->cat, NULL, &base->cat, report, v, err);
}

/* config: NULL if the adapter has none. */
static fsdpck_status check_like(fsdpck_verify *v, const lora_set *set, const lora_config *config,
                                fsdpck_checkpoint *base, fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    adapter_fit fit;
    bool has_named = false;
    adapter_fit_init(&fit, v->src);
    fsdpck_status st = config == NULL ? FSDPCK_OK : check_fit(v, base, &fit, &what, err);
    if (st == FSDPCK_OK)
        st = check_base(v, set, config, base, &fit.tied, config != NULL && what.status == FSDPCK_OK,
                        &has_named, err);
    adapter_fit_release(&fit);
    /* The checks above find all modules that do not fit, the merge the first one. */
    const bool is_new = what.finding == FSDPCK_FINDING_LORA_PAIR ||
                        (!has_named && v->found.counts[FINDING_ERROR] == 0);
    if (st == FSDPCK_OK && what.status == FSDPCK_BADINPUT && is_new)
        report(v, &what, NULL);
    if (st == FSDPCK_OK && config != NULL)
        st = adapter_check_saved(
            set, config, base,
            &(adapter_faults){.found = report_as, .ctx = v, .path = v->src->path}, err);
    return st;
}

fsdpck_status verify_adapter_like(fsdpck_verify *v, fsdpck_checkpoint *base, fsdpck_error *err)
{
    lora_set set;
    lora_config config = {0};
    adapter_source from = {0};
    bool has_config = false;
    fsdpck_status st = checkpoint_find_adapters(v->src, &set, err);
    /* verify_adapters has reported a config that cannot be read. */
    if (st == FSDPCK_OK && adapter_source_find(v->src, NULL, false, NULL, &from, NULL) == FSDPCK_OK)
        has_config =
            from.text != NULL &&
            lora_config_read(from.text, from.nbytes, &v->src->metadata, &config, NULL) == FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = lora_set_name_parameters(&set, &v->src->cat, has_config ? &config : NULL, err);
    if (st == FSDPCK_OK)
        st = check_like(v, &set, has_config ? &config : NULL, base, err);
    lora_config_release(&config);
    adapter_source_release(&from);
    lora_set_release(&set);
    return st;
}

fsdpck_status verify_adapters(fsdpck_verify *v, fsdpck_error *err)
{
    static const fsdpck_finding_id ids[] = {FSDPCK_FINDING_LORA_PAIR, FSDPCK_FINDING_LORA_RANK,
                                            FSDPCK_FINDING_LORA_SHAPE, FSDPCK_FINDING_LORA_ZERO};
    const adapter_faults to = {.found = report_as, .ctx = v, .path = v->src->path};
    fsdpck_status st = adapter_check(v->src, v->options.like == NULL, &to, err);
    if (st == FSDPCK_OK)
        st = find_zeros(v, err);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        findings_merge_tensors(&v->found, ids[i]);
    return st;
}
