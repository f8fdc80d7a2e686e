#include "open/adapter_check.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"

static fsdpck_status report_as(const adapter_faults *to, finding_severity severity,
                               const fsdpck_error *fault, fsdpck_error *err)
{
    fsdpck_error what = *fault;
    error_path(&what, to->path);
    return to->found(to->ctx, severity, &what, err);
}

/* Adapters of other methods are read and written as any tensors. */
static fsdpck_status report(void *ctx, const fsdpck_error *fault, fsdpck_error *err)
{
    const finding_kind *kind = finding_get(fault->finding);
    const bool is_other = fault->finding == FSDPCK_FINDING_LORA_KIND;
    const adapter_faults *to = ctx;
    return report_as(to,
                     is_other       ? FINDING_NOTE
                     : kind == NULL ? FINDING_ERROR
                                    : kind->severity,
                     fault, err);
}

static fsdpck_status check_each(const fsdpck_checkpoint *c, lora_set *set,
                                const lora_config *config, const adapter_faults *to,
                                fsdpck_error *err)
{
    adapter_faults to_each = *to;
    RETURN_IF(lora_set_name_parameters(set, &c->cat, config, err));
    for (uint32_t i = 0; i < lora_adapter_count(set); i++)
        RETURN_IF(lora_check(set, &c->cat, i, config, report, &to_each, err));
    return FSDPCK_OK;
}

/* A name of target_modules without a module: lost, or one that the model does not have. */
static fsdpck_status check_targets(const adapter_faults *to, const lora_set *set,
                                   const lora_config *config, fsdpck_error *err)
{
    uint64_t count;
    const char *first = lora_unmatched_target(set, config, &count);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (first == NULL)
        return FSDPCK_OK;
    FAIL_WITH(&what, BADINPUT, LORA_PAIR,
              ("target_modules has %" PRIu64 " name%s for which the adapter has no tensor", count,
               text_plural(count)),
              (expected, "a module '...%s'", first), (found, "none"),
              (next, "compare with the base model: fsdpck verify ADAPTER --like BASE"));
    return report_as(to, FINDING_WARNING, &what, err);
}

/* Also where the factors are those of the embedding: the output projection has no adapter after loading. */
static fsdpck_status check_dropped(const adapter_faults *to, const lora_set *set,
                                   const lora_config *config, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        fsdpck_error what = FSDPCK_ERROR_INIT;
        bool dropped;
        RETURN_IF(lora_is_dropped(set, m, config, &dropped, err));
        if (!dropped)
            continue;
        FAIL_WITH(&what, BADINPUT, LORA_CONFIG,
                  ("the adapter has factors for '%s', which target_modules of its config does not "
                   "name: PEFT loads the adapter without them",
                   lora_text(set, m->path)),
                  (tensor, lora_text(set, m->path)),
                  (next, "add this name to target_modules of adapter_config.json"));
        RETURN_IF(report_as(to, FINDING_WARNING, &what, err));
    }
    return FSDPCK_OK;
}

/* A base model need not have them: "classifier". */
fsdpck_status adapter_check_saved(const lora_set *set, const lora_config *config,
                                  const fsdpck_checkpoint *base, const adapter_faults *to,
                                  fsdpck_error *err)
{
    size_t nbytes;
    const char *lacks, *name = lora_unsaved_name(set, config, base == NULL ? NULL : &base->cat);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (name != NULL) {
        FAIL_WITH(&what, BADINPUT, LORA_PAIR,
                  ("modules_to_save has a name for which the adapter has no tensor"),
                  (expected, "a module '...%s'", name), (found, "none"),
                  (next, "check that the adapter is complete, and that its model has this module"));
        RETURN_IF(report_as(to, FINDING_WARNING, &what, err));
    }
    name = lora_half_head(set, config, &nbytes, &lacks);
    if (name == NULL)
        return FSDPCK_OK;
    FAIL_WITH(&what, BADINPUT, LORA_PAIR,
              ("module '%.*s' of modules_to_save has no weight of its layer '%s'", (int)nbytes,
               name, lacks),
              (tensor, name),
              (next, "save the adapter again: a loader gives this layer random values"));
    return report_as(to, FINDING_WARNING, &what, err);
}

static fsdpck_status check_names(const lora_set *set, const lora_config *config, bool alone,
                                 const adapter_faults *to, fsdpck_error *err)
{
    if (alone) {
        RETURN_IF(check_targets(to, set, config, err));
        RETURN_IF(adapter_check_saved(set, config, NULL, to, err));
    }
    return check_dropped(to, set, config, err);
}

/* With the config beside the weights, which is that of the only adapter. */
static fsdpck_status check_set(fsdpck_checkpoint *c, lora_set *set, bool alone,
                               const adapter_faults *to, fsdpck_error *err)
{
    adapter_source from;
    adapter_faults of_config = *to;
    lora_config config = {0};
    fsdpck_error what = FSDPCK_ERROR_INIT;
    bool has_config = false;
    fsdpck_status st = adapter_source_find(c, NULL, false, NULL, &from, &what);
    if (st == FSDPCK_OK && from.text != NULL && lora_adapter_count(set) == 1) {
        st = lora_config_read(from.text, from.nbytes, &c->metadata, &config, &what);
        has_config = st == FSDPCK_OK;
    }
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED) {
        of_config.path = from.path;
        st = report(&of_config, &what, err);
    } else if (st != FSDPCK_OK && err != NULL) {
        *err = what;
    }
    if (st == FSDPCK_OK)
        st = check_each(c, set, has_config ? &config : NULL, to, err);
    if (st == FSDPCK_OK && has_config)
        st = check_names(set, &config, alone, to, err);
    lora_config_release(&config);
    adapter_source_release(&from);
    return st;
}

fsdpck_status adapter_check(fsdpck_checkpoint *c, bool alone, const adapter_faults *to,
                            fsdpck_error *err)
{
    lora_set set;
    if (!adapters_are_likely(&c->cat))
        return FSDPCK_OK;
    fsdpck_status st = checkpoint_find_adapters(c, &set, err);
    if (st == FSDPCK_OK && (lora_adapter_count(&set) > 0 || set.has_prefix))
        st = check_set(c, &set, alone, to, err);
    lora_set_release(&set);
    return st;
}

/* ---- the first error ---- */

static fsdpck_status fail_with(void *ctx, finding_severity severity, const fsdpck_error *fault,
                               fsdpck_error *err)
{
    (void)ctx;
    if (fault->status != FSDPCK_BADINPUT || severity != FINDING_ERROR)
        return FSDPCK_OK;
    if (err != NULL)
        *err = *fault;
    return fault->status;
}

fsdpck_status adapter_check_errors(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const adapter_faults to = {.found = fail_with, .path = c->path};
    return adapter_check(c, false, &to, err);
}

/* ---- warnings ---- */

#define KINDS_MAX 8u

typedef struct fault_kinds {
    fsdpck_error first[KINDS_MAX];
    uint64_t counts[KINDS_MAX];
    size_t count;
} fault_kinds;

static fsdpck_status count_fault(void *ctx, finding_severity severity, const fsdpck_error *fault,
                                 fsdpck_error *err)
{
    fault_kinds *kinds = ctx;
    size_t i = 0;
    (void)err;
    if (severity < FINDING_WARNING)
        return FSDPCK_OK;
    while (i < kinds->count && kinds->first[i].finding != fault->finding)
        i++;
    if (i == KINDS_MAX)
        return FSDPCK_OK;
    if (i == kinds->count)
        kinds->first[kinds->count++] = *fault;
    kinds->counts[i]++;
    return FSDPCK_OK;
}

static void warn_kinds(const fsdpck_checkpoint *c, const fault_kinds *kinds)
{
    for (size_t i = 0; i < kinds->count; i++) {
        const fsdpck_error *what = &kinds->first[i];
        const bool has_both = what->expected[0] != '\0' && what->found[0] != '\0';
        char others[60] = "";
        if (kinds->counts[i] > 1)
            snprintf(others, sizeof others, "; %" PRIu64 " further finding%s", kinds->counts[i] - 1,
                     text_plural(kinds->counts[i] - 1));
        log_warn(&c->ctx->log, what->finding, what->next, "'%s': %s%s%s%s%s%s%s", what->path,
                 what->message, has_both ? " (expected " : "", has_both ? what->expected : "",
                 has_both ? ", found " : "", has_both ? what->found : "", has_both ? ")" : "",
                 others);
    }
}

static fsdpck_status warn_one(fsdpck_checkpoint *c, fsdpck_error *err)
{
    fault_kinds kinds = {.count = 0};
    const adapter_faults to = {.found = count_fault, .ctx = &kinds, .path = c->path};
    RETURN_IF(checkpoint_load_inner(c, err));
    RETURN_IF(adapter_check(c, true, &to, err));
    warn_kinds(c, &kinds);
    return FSDPCK_OK;
}

static fsdpck_status warn_extracted(fsdpck_checkpoint *c, fsdpck_error *err)
{
    fault_kinds kinds = {.count = 0};
    const adapter_faults to = {.found = count_fault, .ctx = &kinds, .path = c->path};
    lora_set set;
    lora_config config = {0};
    fsdpck_status st = checkpoint_find_adapters(c, &set, err);
    if (st == FSDPCK_OK)
        st = lora_config_read(c->lora_config.text, c->lora_config.nbytes, &c->metadata, &config,
                              err);
    if (st == FSDPCK_OK)
        st = check_names(&set, &config, true, &to, err);
    warn_kinds(c, &kinds);
    lora_config_release(&config);
    lora_set_release(&set);
    return st;
}

/* No average. */
static fsdpck_status warn_input(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (; c->base != NULL; c = c->base)
        if (c->merger != NULL || c->extract != NULL)
            return c->merger != NULL ? FSDPCK_OK : warn_extracted(c, err);
    return warn_one(c, err);
}

fsdpck_status adapter_warn(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const fsdpck_checkpoint *of = c;
    while (of->base != NULL && of->average == NULL)
        of = of->base;
    if (of->average == NULL)
        return warn_input(c, err);
    for (size_t i = 0; i < of->input_count; i++)
        RETURN_IF(warn_input(of->inputs[i], err));
    return FSDPCK_OK;
}
