#include "open/step_numbers.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "open/state_files.h"

static const char *const step_keys[] = {
    "global_step",       "step",      "train_state.step",        "train_state.global_step",
    "state.global_step", "iteration", "extra_state.global_step", "trainer.global_step",
    "global_steps"};

const char *step_key_at(size_t index)
{
    return index < sizeof step_keys / sizeof *step_keys ? step_keys[index] : NULL;
}

/* The element that a chunk has of a tensor with only one; -1: none, or no number of steps. */
static int64_t number_at(const fsdpck_checkpoint *c, uint64_t tensor, uint64_t chunk)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    const dtype_info *d = dtype_get((dtype)t->dtype);
    uint8_t bytes[8];
    place where = {0};
    if (catalogue_tensor_nelems(&c->cat, tensor) != 1 || t->nchunks == 0 ||
        catalogue_chunk(&c->cat, chunk)->place == LOCATION_EMPTY || d->itemsize_bytes > 8 ||
        c->src.locate(c->src.ctx, chunk, &where, NULL) != FSDPCK_OK || where.stream || where.swap ||
        where.neg || where.add != 0 ||
        c->src.read_at(c->src.ctx, where.file, where.offset_bytes, bytes, d->itemsize_bytes,
                       NULL) != FSDPCK_OK)
        return -1;
    float f;
    int32_t i;
    int64_t l;
    switch (t->dtype) {
    case DTYPE_FLOAT32:
        memcpy(&f, bytes, sizeof f);
        return f >= 0 && f < 1e15f && f == (float)(int64_t)f ? (int64_t)f : -1;
    case DTYPE_INT32:
        memcpy(&i, bytes, sizeof i);
        return i;
    case DTYPE_INT64:
        memcpy(&l, bytes, sizeof l);
        return l;
    default:
        return -1;
    }
}

int64_t step_number_of(const fsdpck_checkpoint *c, uint64_t tensor)
{
    return number_at(c, tensor, catalogue_tensor(&c->cat, tensor)->first_chunk);
}

bool step_is_key(const char *name, size_t nbytes)
{
    return TEXT_IS_IN(name, nbytes, step_keys);
}

bool step_is_of_optimizer(const fsdpck_checkpoint *c, uint64_t tensor)
{
    const uint32_t name = catalogue_tensor(&c->cat, tensor)->name;
    return c->parts.tensor_part[tensor] == FSDPCK_PART_OPTIMIZER &&
           text_ends_with(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name),
                          ".step");
}

/* Whether ranks have different numbers. */
static bool warn_differs(const fsdpck_checkpoint *c, uint64_t tensor)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    const int64_t first = step_number_of(c, tensor);
    for (uint32_t k = 1; first >= 0 && k < t->nchunks; k++) {
        const int64_t step = number_at(c, tensor, t->first_chunk + k);
        if (step < 0 || step == first)
            continue;
        const cat_chunk *one = catalogue_chunk(&c->cat, t->first_chunk),
                        *other = catalogue_chunk(&c->cat, t->first_chunk + k);
        log_warn(&c->ctx->log, FSDPCK_FINDING_RANK_MIXED,
                 "use an earlier checkpoint: a newer save may have been interrupted",
                 "'%s' is %" PRId64 " in '%s' and %" PRId64
                 " in '%s': the files may be of two saves",
                 catalogue_name(&c->cat, t->name), first,
                 catalogue_name(&c->cat, catalogue_file(&c->cat, one->file)->path), step,
                 catalogue_name(&c->cat, catalogue_file(&c->cat, other->file)->path));
        return true;
    }
    return false;
}

void step_numbers_warn_mixed(const fsdpck_checkpoint *c)
{
    bool has_optimizer = false, is_mixed = false;
    while (c->base != NULL)
        c = c->base;
    for (uint64_t i = 0; c->cat.origin.by_rank && !is_mixed && i < c->parts.tensor_count; i++) {
        const uint32_t name = catalogue_tensor(&c->cat, i)->name;
        const bool of_optimizer = !has_optimizer && step_is_of_optimizer(c, i);
        if (of_optimizer ||
            step_is_key(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name)))
            is_mixed = warn_differs(c, i);
        has_optimizer = has_optimizer || of_optimizer;
    }
}

/* ---- objects ---- */

int64_t step_object_number(fsdpck_checkpoint *c, uint32_t object)
{
    int64_t number = -1;
    if (!catalogue_object(&c->cat, object)->loaded &&
        checkpoint_load_object(c, object, NULL) != FSDPCK_OK)
        return -1;
    const value content = catalogue_object(&c->cat, object)->content;
    return value_kind_of(content) == VALUE_INT && value_as_i64(&c->cat.pool, content, &number)
               ? number
               : -1;
}

static uint32_t find_object(const fsdpck_checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (strcmp(catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name), name) == 0)
            return i;
    return CAT_NONE;
}

int64_t checkpoint_scheduler_step(fsdpck_checkpoint *c)
{
    const uint32_t object = find_object(c, "last_epoch");
    const bool counts_evaluations = find_object(c, "num_bad_epochs") != CAT_NONE;
    return object == CAT_NONE || counts_evaluations ? -1 : step_object_number(c, object);
}

int64_t checkpoint_number(fsdpck_checkpoint *c, const char *key)
{
    const uint32_t object = find_object(c, key);
    const uint32_t tensor = catalogue_find(&c->cat, key, strlen(key));
    return object != CAT_NONE   ? step_object_number(c, object)
           : tensor != CAT_NONE ? step_number_of(c, tensor)
                                : -1;
}
