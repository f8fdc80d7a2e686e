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

/* Whether both folders have the file, and it differs. */
static bool differs(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b, const char *name)
{
    const probe_input *x = &owner_of(a)->probe, *y = &owner_of(b)->probe;
    file f = FILE_CLOSED, g = FILE_CLOSED;
    const bool is = x->is_folder && y->is_folder &&
                    model_file_open(&x->dir, name, CACHE_LINKS, &f, NULL) == FSDPCK_OK &&
                    model_file_open(&y->dir, name, CACHE_LINKS, &g, NULL) == FSDPCK_OK &&
                    !file_has_same_bytes(&f, &g);
    file_abandon(&f);
    file_abandon(&g);
    return is;
}

/* The first of `names` that differs from that of input `shape`, whose files are copied. */
static void warn_of_files(fsdpck_checkpoint *const *inputs, size_t count, size_t shape,
                          const char *const *names, size_t name_count)
{
    for (size_t k = 0; k < name_count; k++)
        for (size_t i = 0; i < count; i++) {
            if (!differs(inputs[i], inputs[shape], names[k]))
                continue;
            log_warn(&inputs[shape]->ctx->log, FSDPCK_FINDING_AVERAGE_CONFIG, "",
                     "%s of '%s' differs from that of '%s'", names[k], owner_of(inputs[i])->path,
                     owner_of(inputs[shape])->path);
            return;
        }
}

void average_warn_inputs(fsdpck_checkpoint *const *inputs, size_t count, size_t shape)
{
    static const char *const configs[] = {"config.json"};
    /* Rows of the embeddings mean tokens. */
    static const char *const vocabularies[] = {
        "tokenizer.json", "tokenizer.model",        "vocab.json", "vocab.txt", "merges.txt",
        "spiece.model",   "sentencepiece.bpe.model"};
    warn_of_files(inputs, count, shape, configs, sizeof configs / sizeof *configs);
    warn_of_files(inputs, count, shape, vocabularies, sizeof vocabularies / sizeof *vocabularies);
    const uint64_t adapters = adapters_count_tensors(&inputs[shape]->cat);
    if (count > 1 && adapters > 0)
        average_warn_base(inputs, count, shape);
    if (count > 1 && adapters > 0)
        log_warn(&inputs[shape]->ctx->log, FSDPCK_FINDING_AVERAGE_LORA, "",
                 "%" PRIu64 " tensors of LoRA are averaged one by one: the product of the averages "
                 "of lora_A and lora_B is not the average of their products",
                 adapters);
}
