/* Totals of fsdpck inspect, and the likely next commands. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"
#include "inspect_print.h"

/* Longer paths are too long for a system call. */
#define WORD_CAPACITY SHELL_WORD_CAPACITY(4096)

static void add_dtype(inspect_totals *s, const fsdpck_tensor *t)
{
    size_t i = 0;
    while (i < s->dtype_count && strcmp(s->dtypes[i].dtype, t->dtype) != 0)
        i++;
    if (i == s->dtype_count) {
        if (i == INSPECT_DTYPES)
            return;
        s->dtypes[s->dtype_count++].dtype = t->dtype;
    }
    s->dtypes[i].tensors++;
    s->dtypes[i].nbytes += t->nbytes;
}

static void add_largest(inspect_totals *s, uint64_t *sizes, uint64_t index, uint64_t nbytes)
{
    size_t at = s->largest_count;
    while (at > 0 && sizes[at - 1] < nbytes)
        at--;
    if (at == INSPECT_TOP)
        return;
    if (s->largest_count < INSPECT_TOP)
        s->largest_count++;
    for (size_t k = s->largest_count - 1; k > at; k--) {
        s->largest[k] = s->largest[k - 1];
        sizes[k] = sizes[k - 1];
    }
    s->largest[at] = index;
    sizes[at] = nbytes;
}

static void add_ranks(const fsdpck_checkpoint *ckpt, inspect_totals *s, const fsdpck_tensor *t)
{
    fsdpck_chunk chunk = FSDPCK_INIT(fsdpck_chunk);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        fsdpck_get_chunk(ckpt, k, &chunk);
        if (chunk.rank < 0 || (uint64_t)chunk.rank >= s->rank_count)
            continue;
        uint64_t nbytes = t->itemsize_nbytes;
        for (unsigned d = 0; d < t->ndim; d++)
            nbytes *= chunk.sizes[d];
        s->rank_nbytes[chunk.rank] += nbytes;
    }
}

/* An adapter without its base model is merged, one inside a state is written. */
static void suggest_adapter(inspect_totals *s, fsdpck_checkpoint *ckpt, const char *path)
{
    fsdpck_adapter a = FSDPCK_INIT(fsdpck_adapter);
    size_t n = 0;
    if (!fsdpck_get_adapter(ckpt, 0, &a))
        return;
    while (a.name[0] != '\0' && n < INSPECT_NEXT - 1 && s->next[n][0] != '\0')
        n++;
    if (a.name[0] != '\0') {
        snprintf(s->next[n], sizeof s->next[0],
                 "fsdpck consolidate %s adapter --part adapter --lora-alpha X", path);
        return;
    }
    for (size_t i = 1; i < INSPECT_NEXT; i++)
        s->next[i][0] = '\0';
    snprintf(s->next[0], sizeof s->next[0], "fsdpck consolidate BASE merged --merge-adapter %s",
             path);
}

static void suggest(inspect_totals *s, fsdpck_checkpoint *ckpt)
{
    char path[WORD_CAPACITY], model[WORD_CAPACITY], repair[WORD_CAPACITY + 12];
    shell_word(path, sizeof path, s->info.path);
    const bool has_more = s->info.part_tensors[FSDPCK_PART_OPTIMIZER] > 0 || s->info.objects > 0;
    const bool is_target = s->info.format_id == FSDPCK_FORMAT_SAFETENSORS;
    const char *const dst = is_target ? "model.pt" : "model.safetensors";
    model[0] = repair[0] = '\0';
    if (s->info.model_path[0] != '\0')
        snprintf(repair, sizeof repair, " --model %s",
                 shell_word(model, sizeof model, s->info.model_path));
    else if (s->info.boxes_suspect)
        snprintf(repair, sizeof repair, " --repair-strided");
    size_t n = 0;
    if (s->info.flat_parameters > 0) {
        snprintf(s->next[n++], sizeof s->next[0],
                 "fsdpck consolidate --model FILE %s %s  # FILE describes the model: "
                 "fsdpck-model(5)",
                 path, dst);
        return;
    }
    /* The files do not show whether FSDP1 or FSDP2 wrote them. */
    if (s->info.order_suspect) {
        snprintf(s->next[n++], sizeof s->next[0],
                 "fsdpck consolidate --assume fsdp2-tp-2.3 %s %s  # if FSDP2 wrote it", path, dst);
        snprintf(s->next[n++], sizeof s->next[0], "fsdpck consolidate %s %s  # if FSDP1 wrote it",
                 path, dst);
        return;
    }
    const bool has_model = s->info.part_tensors[FSDPCK_PART_MODEL] > 0;
    if (has_model)
        snprintf(s->next[n++], sizeof s->next[0], "fsdpck consolidate%s %s %s", repair, path, dst);
    if (has_more || !has_model)
        snprintf(s->next[n++], sizeof s->next[0], "fsdpck consolidate%s %s everything.pt", repair,
                 path);
    suggest_adapter(s, ckpt, path);
}

const char *inspect_state_words(fsdpck_state_kind kind)
{
    switch (kind) {
    case FSDPCK_STATE_OPTIMIZER:
        return "optimizer state";
    case FSDPCK_STATE_SCHEDULER:
        return "state of a learning rate scheduler";
    case FSDPCK_STATE_RNG:
        return "states of random number generators";
    case FSDPCK_STATE_SCALER:
        return "state of a gradient scaler";
    case FSDPCK_STATE_PROGRESS:
        return "progress of the trainer";
    case FSDPCK_STATE_ARGUMENTS:
        return "arguments of the trainer";
    case FSDPCK_STATE_OTHER:
        return "other state";
    default:
        return "not read";
    }
}

/* The file with the optimizer's state is a checkpoint of its own. */
static void suggest_state(inspect_totals *s, fsdpck_checkpoint *ckpt)
{
    char path[WORD_CAPACITY];
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    size_t n = 0;
    while (n < INSPECT_NEXT && s->next[n][0] != '\0')
        n++;
    for (size_t i = 0; fsdpck_get_state_file(ckpt, i, &f); i++) {
        if (f.kind != FSDPCK_STATE_OPTIMIZER || s->has_state_beside)
            continue;
        s->has_state_beside = true;
        shell_word(path, sizeof path, f.path);
        if (n < INSPECT_NEXT)
            snprintf(s->next[n], sizeof s->next[0], "fsdpck inspect %s", path);
    }
}

bool inspect_collect(fsdpck_checkpoint *ckpt, const fsdpck_error *damage, inspect_totals *s)
{
    uint64_t sizes[INSPECT_TOP];
    memset(s, 0, sizeof *s);
    s->info.struct_nbytes = sizeof s->info;
    fsdpck_get_info(ckpt, &s->info);
    s->rank_count = s->info.world_size > 0 ? (size_t)s->info.world_size : 0;
    s->rank_nbytes = calloc(s->rank_count + 1, sizeof *s->rank_nbytes);
    if (s->rank_nbytes == NULL)
        return false;
    for (uint64_t i = 0; i < s->info.tensors; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(ckpt, i, &t);
        add_dtype(s, &t);
        add_largest(s, sizes, i, t.nbytes);
        if (s->rank_count > 0)
            add_ranks(ckpt, s, &t);
    }
    if (damage == NULL) {
        suggest(s, ckpt);
        suggest_state(s, ckpt);
    }
    return true;
}

void inspect_totals_release(inspect_totals *s)
{
    free(s->rank_nbytes);
    s->rank_nbytes = NULL;
}
