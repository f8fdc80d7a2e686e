#include "verify/vocabulary_check.h"

#include <inttypes.h>

#include "base/text.h"

static uint64_t rows_of(const model_facts *f)
{
    return f->numbers[MODEL_VOCAB_SIZE];
}

/* The embedding alone: other rows, the same columns. */
static bool has_other_rows(const model_facts *ours, const model_facts *theirs)
{
    return ours->embedding != CAT_NONE && theirs->embedding != CAT_NONE &&
           rows_of(ours) != rows_of(theirs) &&
           ours->numbers[MODEL_HIDDEN_SIZE] == theirs->numbers[MODEL_HIDDEN_SIZE];
}

static bool has_head_of_other_rows(const model_facts *ours)
{
    return ours->head != CAT_NONE && (catalogue_tensor(ours->cat, ours->head)->ndim == 0 ||
                                      catalogue_shape(ours->cat, ours->head)[0] != rows_of(ours));
}

static bool states_rows(const model_facts *ours)
{
    return ours->config->text != NULL && ours->config->numbers[MODEL_VOCAB_SIZE] == rows_of(ours);
}

bool vocabulary_is_resized(const model_facts *ours, const model_facts *theirs)
{
    return has_other_rows(ours, theirs) && !has_head_of_other_rows(ours) && states_rows(ours);
}

bool vocabulary_explains(const model_facts *ours, const model_facts *theirs, uint32_t i, uint32_t k)
{
    const uint64_t *a = catalogue_shape(ours->cat, i), *b = catalogue_shape(theirs->cat, k);
    const unsigned ndim = catalogue_tensor(ours->cat, i)->ndim;
    return ndim > 0 && ndim == catalogue_tensor(theirs->cat, k)->ndim && a[0] == rows_of(ours) &&
           b[0] == rows_of(theirs) && shape_equal(a + 1, ndim - 1, b + 1, ndim - 1);
}

void vocabulary_put_advice(const model_facts *ours, const model_facts *theirs, text_buf *next)
{
    if (!has_other_rows(ours, theirs) || vocabulary_is_resized(ours, theirs))
        text_puts(next, "check that the folder of --like belongs to this model, and export again");
    else if (has_head_of_other_rows(ours))
        text_printf(next,
                    "for a resized vocabulary, export an output projection of %" PRIu64
                    " rows, as the embedding has; else check that the folder of --like belongs to "
                    "this model, and export again",
                    rows_of(ours));
    else
        text_printf(next,
                    "for a resized vocabulary, write \"vocab_size\": %" PRIu64
                    " into config.json; else check that the folder of --like belongs to this "
                    "model, and export again",
                    rows_of(ours));
}
