/* ds_check.c: whether the files of all ranks are there, and belong to one save. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/deepspeed/ds_internal.h"

/* --- the set of files --- */

static bool has_file(const ds_state *s, ds_kind kind, uint64_t rank)
{
    for (size_t i = 0; i < s->files.count; i++) {
        const ds_file *f = VEC_AT(&s->files, const ds_file, i);
        if (f->kind == kind && f->rank == rank)
            return true;
    }
    return false;
}

static void put_name(const ds_state *s, ds_kind kind, uint64_t rank, text_buf *name)
{
    bool has_bf16 = false;
    for (size_t i = 0; i < s->files.count; i++)
        has_bf16 = has_bf16 || VEC_AT(&s->files, const ds_file, i)->has_bf16;
    if (kind == DS_MODEL)
        text_puts(name, "mp_rank_00_model_states.pt");
    else
        text_printf(name, "%szero_pp_rank_%" PRIu64 "_mp_rank_00_%s_states.pt",
                    kind == DS_OPTIM && has_bf16 ? "bf16_" : "", rank,
                    kind == DS_OPTIM ? "optim" : "model");
}

static fsdpck_status fail_missing(const ds_state *s, const text_buf *names, uint64_t count,
                                  fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, FILE_MISSING,
                     ("files of %" PRIu64 " ranks are required; missing: %s%s", s->world,
                      names->text == NULL ? "" : names->text, count > 3 ? ", ..." : ""),
                     (path, s->req->path), (expected, "files of ranks 0 to %" PRIu64, s->world - 1),
                     (found, "%" PRIu64 " missing file%s", count, count == 1 ? "" : "s"),
                     (next, "copy the missing files from where the checkpoint was written"));
}

/* Of ZeRO 3 each rank also has a file of model states. */
static fsdpck_status check_present(const ds_state *s, fsdpck_error *err)
{
    text_buf names = {.limit_bytes = 4096};
    uint64_t missing = 0;
    for (unsigned k = 0; k < (s->is_universal ? 1 : 2); k++) {
        const ds_kind kind = k == 1 ? DS_OPTIM : s->stage == 3 ? DS_MODEL_3 : DS_MODEL;
        for (uint64_t rank = 0; rank < (kind == DS_MODEL ? 1 : s->world); rank++) {
            if (has_file(s, kind, rank))
                continue;
            if (++missing <= 3) {
                text_puts(&names, missing > 1 ? ", " : "");
                put_name(s, kind, rank, &names);
            }
        }
    }
    const fsdpck_status st = missing == 0 ? FSDPCK_OK : fail_missing(s, &names, missing, err);
    text_release(&names);
    return st;
}

static fsdpck_status check_none_extra(const ds_state *s, fsdpck_error *err)
{
    for (size_t i = 0; i < s->files.count; i++) {
        const ds_file *f = VEC_AT(&s->files, const ds_file, i);
        const bool other = f->kind == (s->stage == 3 ? DS_MODEL : DS_MODEL_3) ||
                           (s->is_universal && f->kind == DS_OPTIM);
        if (!other && f->rank < s->world)
            continue;
        const fsdpck_status st =
            FAIL_WITH(err, BADINPUT, RANK_MIXED,
                      ("file does not belong to the other files: it is of another save"),
                      (expected, "files of ZeRO %u and %" PRIu64 " ranks", s->stage, s->world),
                      (next, "move it to another folder"));
        error_path_in(err, s->req->path, f->name);
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status ds_check_files(ds_state *s, fsdpck_error *err)
{
    if (s->world == 0)
        return FAIL_WITH(err, BADINPUT, FILE_MISSING,
                         ("folder contains model states of DeepSpeed, but no optimizer files "
                          "('*_optim_states.pt'), which contain the weights"),
                         (path, s->req->path),
                         (next, "copy the missing files, or give the path of the model states to "
                                "read only that file"));
    if (s->req->expect_ranks > 0 && s->req->expect_ranks != s->world) {
        const fsdpck_status st =
            FAIL_WITH(err, BADINPUT, RANKS_STATED,
                      ("files are of another number of ranks than stated"), (path, s->req->path),
                      (expected, "%" PRIu64 " rank%s (--source-ranks)", s->req->expect_ranks,
                       text_plural(s->req->expect_ranks)),
                      (found, "%" PRIu64 " rank%s", s->world, text_plural(s->world)),
                      (next, "correct --source-ranks"));
        return st;
    }
    RETURN_IF(check_none_extra(s, err));
    return check_present(s, err);
}

/* --- one save --- */

static fsdpck_status compare_step(const ds_state *s, const ds_scalar *a, const ds_scalar *b,
                                  bool *differ, fsdpck_error *err)
{
    bool equal = true;
    *differ = (a->piece == CAT_NONE) != (b->piece == CAT_NONE);
    if (*differ)
        return FSDPCK_OK;
    if (a->piece == CAT_NONE) {
        RETURN_IF(value_equal(&s->cat->pool, a->content, &s->cat->pool, b->content, &equal, err));
        *differ = !equal;
        return FSDPCK_OK;
    }
    *differ =
        ds_pieces_compare(s->reader, VEC_AT(&s->reader->pieces, const torch_shard, a->piece),
                          VEC_AT(&s->reader->pieces, const torch_shard, b->piece)) == DS_DIFFERENT;
    return FSDPCK_OK;
}

static int by_place(const void *a, const void *b)
{
    const ds_scalar *x = a, *y = b;
    ORDER_BY(x->group, y->group);
    ORDER_BY(x->slot, y->slot);
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

fsdpck_status ds_check_scalars(ds_state *s, fsdpck_error *err)
{
    ds_scalar *all = s->scalars.items;
    size_t kept = 0;
    if (s->scalars.count > 1)
        qsort(all, s->scalars.count, sizeof *all, by_place);
    for (size_t i = 0, first = 0; !s->is_universal && i < s->scalars.count; i++) {
        bool differ = false;
        if (all[i].group != all[first].group || all[i].slot != all[first].slot)
            first = i;
        RETURN_IF(compare_step(s, &all[first], &all[i], &differ, err));
        const char *slot = strtab_text(&s->slots, all[i].slot);
        if (differ && strcmp(slot, "step") == 0)
            return FAIL_WITH(
                err, BADINPUT, RANK_MIXED,
                ("optimizers of two ranks are at different steps: files are from two "
                 "saves"),
                (path, s->req->path),
                (found, "ranks %" PRIu32 " and %" PRIu32, all[first].rank, all[i].rank),
                (next, "take all files from one save"));
        if (differ)
            ds_note_differing(s, slot, strlen(slot));
    }
    for (size_t i = 0; i < s->scalars.count; i++)
        if (all[i].rank == 0)
            all[kept++] = all[i];
    s->scalars.count = kept;
    return FSDPCK_OK;
}
