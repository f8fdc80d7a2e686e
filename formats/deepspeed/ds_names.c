/* ds_names.c: the files of a DeepSpeed folder, by their names. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

/* Decimal digits without a sign; false if there are none or too many. */
static bool take_number(const char **at, uint64_t *number)
{
    const size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 9)
        return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++)
        *number = *number * 10 + (uint64_t)((*at)[i] - '0');
    *at += digits;
    return true;
}

static bool take_word(const char **at, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool ends_in(const char *name, const char *end)
{
    return text_ends_with(name, strlen(name), end);
}

ds_kind ds_name_parse(const char *name, ds_file *f)
{
    const char *at = name;
    *f = (ds_file){.name = name};
    if (!ends_in(name, "_model_states.pt") && !ends_in(name, "-model_states.pt") &&
        !ends_in(name, "_optim_states.pt"))
        return DS_NONE;
    if (strncmp(name, "layer_", 6) == 0 || strncmp(name, "expp_rank_", 10) == 0)
        return f->kind = DS_FOREIGN;
    f->has_bf16 = take_word(&at, "bf16_");
    const bool is_zero = take_word(&at, "zero_pp_rank_");
    if ((is_zero && (!take_number(&at, &f->rank) || !take_word(&at, "_"))) ||
        (!is_zero && f->has_bf16) || !take_word(&at, "mp_rank_") ||
        !take_number(&at, &f->model_rank))
        return DS_NONE;
    if (strcmp(at, "_model_states.pt") == 0 && !f->has_bf16)
        f->kind = is_zero ? DS_MODEL_3 : DS_MODEL;
    else if (strcmp(at, "_optim_states.pt") == 0 && is_zero)
        f->kind = DS_OPTIM;
    return f->kind;
}

static int by_kind(const void *a, const void *b)
{
    const ds_file *x = a, *y = b;
    ORDER_BY(x->kind, y->kind);
    ORDER_BY(x->model_rank, y->model_rank);
    ORDER_BY(x->rank, y->rank);
    return strcmp(x->name, y->name);
}

static fsdpck_status refuse(const open_request *req, const char *name, const char *what,
                            const char *next, fsdpck_error *err)
{
    const fsdpck_status st = FAIL_WITH(
        err, UNSUPPORTED, SRC_FOREIGN,
        ("folder of DeepSpeed with %s, which is not supported", what), (next, "%s", next));
    error_path_in(err, req->path, name);
    return st;
}

static fsdpck_status check_mixed(const open_request *req, const vec *files, fsdpck_error *err)
{
    for (size_t i = 1; i < files->count; i++) {
        const ds_file *a = VEC_AT(files, const ds_file, i - 1);
        const ds_file *b = VEC_AT(files, const ds_file, i);
        const bool same = a->kind == b->kind && a->rank == b->rank;
        const bool forms = (a->kind == b->kind && a->has_bf16 != b->has_bf16) ||
                           (a->kind == DS_MODEL && b->kind == DS_MODEL_3);
        if (!same && !forms)
            continue;
        const fsdpck_status st =
            FAIL_WITH(err, BADINPUT, RANK_MIXED,
                      ("%s", same ? "folder contains two files of one rank"
                                  : "folder contains files of two saves: their names have "
                                    "different forms"),
                      (found, "'%s' and '%s'", a->name, b->name),
                      (next, "move the files of the other save to another folder"));
        error_path(err, req->path);
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status ds_list_files(const open_request *req, vec *files, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    for (size_t i = 0; i < in->entry_count; i++) {
        ds_file f;
        const ds_kind kind = ds_name_parse(in->entries[i], &f);
        if (kind == DS_FOREIGN)
            return refuse(req, f.name,
                          strncmp(f.name, "expp_", 5) == 0 || strstr(f.name, "_expert_") != NULL
                              ? "experts (MoE)"
                              : "pipeline stages",
                          "convert it with DeepSpeed's ds_to_universal.py, or save the state dict "
                          "with torch.distributed.checkpoint",
                          err);
        if (kind != DS_NONE && f.model_rank > 0)
            return refuse(req, f.name, "several model-parallel ranks",
                          "merge the files of all ranks with the program that wrote them", err);
        if (kind != DS_NONE)
            RETURN_IF(vec_add(files, &f, err));
    }
    if (files->count > 1)
        qsort(files->items, files->count, sizeof(ds_file), by_kind);
    return check_mixed(req, files, err);
}
