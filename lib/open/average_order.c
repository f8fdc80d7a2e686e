/* average_order.c: the training steps of the inputs of an average, and warnings about the inputs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "open/average_checks.h"
#include "open/model_config.h"

/* --- training steps --- */

/* Steps that an error lists. */
#define STEPS_SHOWN 8u

fsdpck_status average_steps_find(fsdpck_checkpoint *const *inputs, size_t count, int64_t **steps,
                                 fsdpck_error *err)
{
    *steps = calloc(count, sizeof **steps);
    if (*steps == NULL)
        return error_set_nomem(err, count * sizeof **steps);
    for (size_t i = 0; i < count; i++) {
        fsdpck_step step = FSDPCK_INIT(fsdpck_step);
        (*steps)[i] = fsdpck_get_step(inputs[i], 0, &step) ? step.step : -1;
    }
    return FSDPCK_OK;
}

static fsdpck_status fail_order(fsdpck_checkpoint *const *inputs, size_t count,
                                const int64_t *steps, size_t wrong, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = 4096};
    for (size_t i = 0; i < count && i < STEPS_SHOWN; i++)
        text_printf(&text, "%s%" PRIi64, i == 0 ? "" : ", ", steps[i]);
    text_printf(&text, "%s", count > STEPS_SHOWN ? ", ..." : "");
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, USAGE, NONE,
                       ("a schedule takes the oldest input first, but step %" PRIi64
                        " follows step %" PRIi64,
                        steps[wrong], steps[wrong - 1]),
                       (path, inputs[wrong]->path), (found, "steps %s", text.text),
                       (next, "list the inputs oldest first, for example with $(ls -dv step-*), or "
                              "give their factors with --weights"));
    text_release(&text);
    return st;
}

fsdpck_status average_steps_check(fsdpck_checkpoint *const *inputs, size_t count,
                                  const int64_t *steps, fsdpck_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] < 0)
            return FSDPCK_OK;
    for (size_t i = 1; i < count; i++)
        if (steps[i] < steps[i - 1])
            return fail_order(inputs, count, steps, i, err);
    return FSDPCK_OK;
}

/* --- warnings --- */

static const fsdpck_checkpoint *owner_of(const fsdpck_checkpoint *c)
{
    while (c->base != NULL)
        c = c->base;
    return c;
}

/* Without a readable one, the text is NULL. */
static model_config config_of(const fsdpck_checkpoint *c)
{
    const probe_input *in = &owner_of(c)->probe;
    model_config config = {0};
    if (in->is_folder && model_config_read(&in->dir, &config, NULL) != FSDPCK_OK) {
        model_config_release(&config);
        config = (model_config){0};
    }
    return config;
}

static void warn_of_configs(fsdpck_checkpoint *const *inputs, size_t count, size_t shape)
{
    model_config copied = config_of(inputs[shape]);
    bool same = true;
    for (size_t i = 0; copied.text != NULL && same && i < count; i++) {
        model_config other = config_of(inputs[i]);
        same = other.text == NULL || (other.nbytes == copied.nbytes &&
                                      memcmp(other.text, copied.text, copied.nbytes) == 0);
        model_config_release(&other);
        if (!same)
            log_warn(&inputs[shape]->ctx->log, FSDPCK_FINDING_AVERAGE_CONFIG, "",
                     "config.json of '%s' differs from that of '%s'", owner_of(inputs[i])->path,
                     owner_of(inputs[shape])->path);
    }
    model_config_release(&copied);
}

void average_warn_inputs(fsdpck_checkpoint *const *inputs, size_t count, size_t shape)
{
    warn_of_configs(inputs, count, shape);
    const uint64_t adapters = adapters_count_tensors(&inputs[shape]->cat);
    if (count > 1 && adapters > 0)
        average_warn_base(inputs, count, shape);
    if (count > 1 && adapters > 0)
        log_warn(&inputs[shape]->ctx->log, FSDPCK_FINDING_AVERAGE_LORA, "",
                 "%" PRIu64 " tensors of LoRA are averaged one by one: the product of the averages "
                 "of lora_A and lora_B is not the average of their products",
                 adapters);
}
