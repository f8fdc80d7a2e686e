/* Totals of fsdpck inspect, and the likely next commands. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "given_options.h"
#include "inspect_print.h"
#include "next_command.h"

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

static bool is_absent(const char *path)
{
    return access(path, F_OK) != 0;
}

/* The next command, to which text is added; the last one if there are too many. */
static text_buf *add_command(inspect_totals *s, const char *words)
{
    text_buf *const next =
        &s->next[s->next_count < INSPECT_NEXT ? s->next_count++ : INSPECT_NEXT - 1];
    text_release(next);
    text_puts(next, words);
    return next;
}

static void add_path(text_buf *to, const char *path)
{
    text_puts(to, " ");
    given_path_add(to, path);
}

/* "fsdpck consolidate SRC": a target follows. */
static text_buf *add_consolidate(inspect_totals *s, const command_options *given, const char *more)
{
    text_buf *const next = add_command(s, "fsdpck consolidate");
    given_options_add(next, options_reading, given);
    given_options_add(next, options_keying, given);
    text_puts(next, more);
    add_path(next, s->info.path);
    return next;
}

/* The config.json of PEFT, or what torchtitan writes, in the folder of the weights. */
static bool has_adapter_config(const char *path)
{
    static const char *const names[] = {"adapter_config.json", "lora_train_meta.json"};
    bool found = false;
    for (size_t i = 0; i < 2 && !found; i++) {
        text_buf text = {0};
        const char *slash = strrchr(path, '/');
        text_printf(&text, "%s/%s", path, names[i]);
        found = !text.failed && !is_absent(text.text);
        text_release(&text);
        text_printf(&text, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - path), path, names[i]);
        found = found || (!text.failed && !is_absent(text.text));
        text_release(&text);
    }
    return found;
}

/* An adapter without its base model is merged, one inside a state is written. */
static void suggest_adapter(inspect_totals *s, fsdpck_checkpoint *ckpt,
                            const command_options *given)
{
    char name[40];
    fsdpck_adapter a = FSDPCK_INIT(fsdpck_adapter), second = FSDPCK_INIT(fsdpck_adapter);
    if (!fsdpck_get_adapter(ckpt, 0, &a))
        return;
    if (a.name[0] == '\0') {
        while (s->next_count > 1)
            text_release(&s->next[--s->next_count]);
        text_buf *const next = add_command(s, "fsdpck consolidate BASE ");
        text_printf(next, "%s --merge-adapter", next_command_name(name, sizeof name, "merged", ""));
        add_path(next, s->info.path);
        text_puts(next, "  # BASE: the folder of the base model");
        return;
    }
    text_buf *const next = add_consolidate(s, given, " --part adapter");
    if (fsdpck_get_adapter(ckpt, 1, &second)) {
        text_puts(next, " --adapter");
        add_path(next, a.name);
    }
    text_printf(next, " %s", next_command_name(name, sizeof name, "adapter", ""));
    if (!has_adapter_config(s->info.path))
        text_puts(next, " --lora-alpha X  # X: lora_alpha of the training");
}

static void suggest(inspect_totals *s, fsdpck_checkpoint *ckpt, const command_options *given)
{
    char model[40], all[40];
    const fsdpck_info *const info = &s->info;
    const bool has_more = info->part_tensors[FSDPCK_PART_OPTIMIZER] > 0 || info->objects > 0;
    const bool has_model = info->part_tensors[FSDPCK_PART_MODEL] > 0;
    const bool is_pt = info->format_id == FSDPCK_FORMAT_PT;
    const char *const repair =
        info->boxes_suspect && !given->repair_strided ? " --repair-strided" : "";
    next_command_name(model, sizeof model, "model",
             info->format_id == FSDPCK_FORMAT_SAFETENSORS ? ".pt" : ".safetensors");
    given_verify_add(add_command(s, ""), given, repair, info->path);
    if (info->flat_parameters > 0) {
        text_printf(add_consolidate(s, given, " --model FILE"),
                    " %s  # FILE describes the model: fsdpck-model(5)", model);
        return;
    }
    /* The files do not show whether FSDP1 or FSDP2 wrote them. */
    if (info->order_suspect) {
        text_printf(add_consolidate(s, given, " --assume fsdp2-tp-2.3"), " %s  # if FSDP2 wrote it",
                    model);
        text_printf(add_consolidate(s, given, ""), " %s  # if FSDP1 wrote it", model);
        return;
    }
    if (has_model)
        text_printf(add_consolidate(s, given, repair), " %s", model);
    if (!is_pt && (has_more || !has_model))
        text_printf(add_consolidate(s, given, repair), " %s",
                    next_command_name(all, sizeof all, "everything", ".pt"));
    if (is_pt && !has_model) {
        text_buf *const next = add_command(s, "fsdpck inspect --tree");
        given_options_add(next, options_reading, given);
        add_path(next, info->path);
    }
    suggest_adapter(s, ckpt, given);
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
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    for (size_t i = 0; fsdpck_get_state_file(ckpt, i, &f); i++) {
        if (f.kind != FSDPCK_STATE_OPTIMIZER || s->has_state_beside)
            continue;
        s->has_state_beside = true;
        add_path(add_command(s, "fsdpck inspect"), f.path);
    }
}

bool inspect_collect(fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                     const command_options *given, inspect_totals *s)
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
        suggest(s, ckpt, given);
        suggest_state(s, ckpt);
    }
    return true;
}

void inspect_totals_release(inspect_totals *s)
{
    free(s->rank_nbytes);
    s->rank_nbytes = NULL;
    for (size_t i = 0; i < INSPECT_NEXT; i++)
        text_release(&s->next[i]);
}
