#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/step_folder.h"
#include "formats/pt/pt.h"
#include "formats/pt/ranks_kinds.h"

/* --- probe --- */

static bool begins_as_torch_save(const probe_input *in, const char *name)
{
    uint8_t head[TORCH_LEGACY_HEAD_NBYTES] = {0};
    file f = FILE_CLOSED;

    if (file_open_read(&f, &in->dir, name, 0, NULL) != FSDPCK_OK)
        return false;
    const bool read =
        f.nbytes >= sizeof head && file_read_at(&f, 0, head, sizeof head, NULL) == FSDPCK_OK;
    file_abandon(&f);
    return read && (load_le32(head) == 0x04034b50u || torch_is_legacy(head, sizeof head));
}

bool ranks_are_foreign(const probe_input *in)
{
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++) {
        if (strncmp(in->entries[i], "mp_rank_", 8) == 0)
            return true;
    }
    return false;
}

static bool probe(const probe_input *in, const char **near_miss)
{
    const char *sample = NULL;

    if (!in->is_folder)
        return false;
    if (ranks_are_foreign(in))
        *near_miss = "a folder of Megatron's model-parallel ranks, which is not supported";
    /* Accepted, so that the error names its kind. */
    if (ranks_is_torch_checkpointing(in))
        return true;
    if (ranks_experimental_pattern(in) != NULL)
        return true;
    if (!ranks_names_any(in->entries, in->entry_count, &sample))
        return false;
    /* A trainer's names suffice: a file that is empty or damaged is then named. */
    if (ranks_name_is_known(sample))
        return true;
    for (size_t i = 0; i < in->entry_count; i++)
        if (ranks_name_is_generic(in->entries[i]) && begins_as_torch_save(in, in->entries[i]))
            return true;
    return false;
}

/* --- open --- */

static fsdpck_status add_files(torch_folder *r, ranks_list *list, catalogue *cat, fsdpck_error *err)
{
    for (size_t i = 0; i < list->files.count; i++) {
        ranks_file *f = VEC_AT(&list->files, ranks_file, i);
        RETURN_IF(torch_folder_add(r, cat, f->name, f->rank, &f->index, err));
    }
    return FSDPCK_OK;
}

static void state_init(ranks_state *s, const open_request *req, torch_folder *r,
                       const ranks_list *list, catalogue *cat)
{
    budget *owner = req->metadata;
    *s = (ranks_state){
        .req = req, .reader = r, .list = list, .cat = cat, .partial = {.limit_bytes = 240}};
    strtab_init(&s->names, owner);
    strtab_init(&s->inner_names, owner);
    value_pool_init(&s->pool, owner);
    ranks_frame_init(&s->frame, owner);
    s->tensors = VEC_OF(ranks_tensor, owner);
    s->objects = VEC_OF(ranks_object, owner);
    s->variants = VEC_OF(ranks_variant, owner);
    s->occurrences = VEC_OF(ranks_occurrence, owner);
    s->leaves = VEC_OF(uint32_t, owner);
    s->members = VEC_OF(uint8_t, owner);
    s->own_ranks = VEC_OF(uint32_t, owner);
    s->name_sums = VEC_OF(uint64_t, owner);
    s->plain_sums = VEC_OF(uint64_t, owner);
    s->contents = VEC_OF(ranks_content, owner);
    s->conflicts = VEC_OF(ranks_conflict, owner);
}

static void state_release(ranks_state *s)
{
    strtab_release(&s->names);
    strtab_release(&s->inner_names);
    value_pool_release(&s->pool);
    VEC_RELEASE_ALL(&s->tensors, &s->objects, &s->variants, &s->occurrences, &s->leaves,
                    &s->members, &s->own_ranks, &s->name_sums, &s->plain_sums, &s->contents,
                    &s->conflicts);
    ranks_frame_release(&s->frame);
    text_release(&s->partial);
}

/* With request->found, reports all unreadable files; with request->damage, does without them. */
static fsdpck_status parse_files(ranks_state *s, fsdpck_error *err)
{
    const vec *files = &s->list->files;
    fsdpck_status failed = FSDPCK_OK;

    for (size_t i = 0; i < files->count; i++) {
        fsdpck_error what;
        fsdpck_error_init(&what);
        const fsdpck_status st = ranks_parse_file(s, VEC_AT(files, const ranks_file, i), &what);
        if (st == FSDPCK_OK || (s->file_unread && open_request_tolerate(s->req, st, &what)))
            continue;
        const bool told = s->file_unread && open_request_report(s->req, st, &what);
        if ((failed == FSDPCK_OK || !told) && err != NULL)
            *err = what;
        if (!told)
            return st;
        failed = st;
    }
    return failed;
}

static fsdpck_status read_all(ranks_state *s, fsdpck_error *err)
{
    const vec *files = &s->list->files;
    bool stated = s->req->expect_ranks > 0;

    uint32_t *own = vec_push_n(&s->own_ranks, files->count, err);
    if (own == NULL)
        return FSDPCK_LIMIT;
    memset(own, 0xFF, files->count * sizeof *own); /* CAT_NONE */
    RETURN_IF(ranks_meta_begin(s, err));
    for (size_t i = 0; i < s->list->families.count; i++)
        stated = stated || VEC_AT(&s->list->families, const ranks_family, i)->world > 0;
    if (stated || s->meta.world > 0) /* otherwise the files must contain it */
        RETURN_IF(ranks_check_complete(s, err));
    RETURN_IF(parse_files(s, err));
    RETURN_IF(ranks_meta_check(s, err));
    if (!stated)
        RETURN_IF(ranks_check_complete(s, err));
    const bool is_whole = !open_request_is_damaged(s->req);
    if (is_whole)
        RETURN_IF(ranks_warn_kinds(s, err));
    if (is_whole)
        RETURN_IF(ranks_warn_partial(s, err));
    RETURN_IF(ranks_mark_stages(s, err));
    RETURN_IF(ranks_part_stages(s, err));
    RETURN_IF(ranks_join_params(s, err));
    if (is_whole)
        RETURN_IF(ranks_warn_lacking(s, err));
    RETURN_IF(ranks_merge(s, err));
    return catalogue_seal(s->cat, err);
}

static void describe(const ranks_state *s, cat_origin *o)
{
    const open_request *req = s->req;
    uint64_t ranks = 0;

    if (s->any_dtensor)
        format_note(
            req->found, req->found_ctx, FSDPCK_FINDING_RANK_BOUND, req->path, NULL,
            "rank files contain pickled DTensors, which other versions of torch may not load");
    snprintf(o->format, sizeof o->format, "pt-ranks");
    o->types_keys = true;
    ranks_describe_families(s, o);
    snprintf(o->torch_version, sizeof o->torch_version, "%s",
             s->form[0] != '\0' ? s->form : s->archive_form);
    if (sscanf(s->form, "2.%2u", &o->dtensor_minor) != 1 || o->dtensor_minor < 5)
        o->dtensor_minor = 0;
    for (size_t i = 0; i < s->list->families.count; i++)
        if (VEC_AT(&s->list->families, const ranks_family, i)->world > ranks)
            ranks = VEC_AT(&s->list->families, const ranks_family, i)->world;
    for (size_t i = 0; i < s->list->files.count; i++)
        if (VEC_AT(&s->list->files, const ranks_file, i)->rank >= ranks)
            ranks = VEC_AT(&s->list->files, const ranks_file, i)->rank + UINT64_C(1);
    o->world_size = (int64_t)ranks;
    o->step = step_of_folder(req->path);
    o->order_suspect = s->tp_order_suspect && !req->assume_tp_first;
    if (s->flat_count > 0)
        snprintf(o->note, sizeof o->note,
                 "%" PRIu64 " tensor%s of the optimizer %s of flat parameters (FSDP1), and "
                 "cannot be restored without the model",
                 s->flat_count, s->flat_count == 1 ? "" : "s",
                 s->flat_count == 1 ? "is stored as per-rank shards" : "are per-rank shards");
    else if (s->equal_count > 0)
        snprintf(o->note, sizeof o->note,
                 "%" PRIu64 " tensor%s of the optimizer may be per-rank shards of flat parameters "
                 "(FSDP1): one dim, equal on all ranks",
                 s->equal_count, s->equal_count == 1 ? "" : "s");
    else if (s->tp_order_suspect)
        snprintf(o->note, sizeof o->note, "%s",
                 req->assume_tp_first
                     ? "two Shards of one dim are read with tensor parallelism first (FSDP2 of "
                       "torch 2.3 and 2.4)"
                     : "two Shards of one dim: if FSDP2 with TP of torch 2.3 or 2.4 wrote this, "
                       "rows are in the wrong order without --assume fsdp2-tp-2.3");
}

static void report(ranks_state *s)
{
    const logger *log = &s->req->log;
    cat_origin *o = &s->cat->origin;

    const open_names *known = s->req->names;
    const bool states_units = known != NULL && known->states_units(s->cat);
    const bool any_flat = s->flat_count > 0 || s->equal_count > 0;
    const bool says_itself = any_flat && states_units;
    if (any_flat && !says_itself)
        log_warn(log, FSDPCK_FINDING_RANK_FLAT,
                 s->flat_count > 0
                     ? "describe the flat parameters with --model FILE: fsdpck-model(5)"
                     : "describe the flat parameters with --model FILE: fsdpck-model(5); if all "
                       "ranks saved the whole optimizer, give --per-rank first",
                 "%s", o->note);
    else if (!says_itself && o->note[0] != '\0' && !o->order_suspect)
        log_write(log, LOG_NOTE, "%s", o->note);
    if (o->order_suspect)
        log_warn(log, FSDPCK_FINDING_TP_ORDER,
                 "give --assume fsdp2-tp-2.3 if FSDP2 with tensor parallelism wrote the "
                 "checkpoint; files of FSDP1 with tensor parallelism have the same form and are "
                 "correct",
                 "rows may be in the wrong order: two placements shard one dim, and torch 2.3 and "
                 "2.4 record FSDP2 with tensor parallelism in this form too");
    if (s->partial_count > 0)
        log_write(log, LOG_NOTE, "plain tensors that only some ranks hold: %" PRIu64 "%s%s%s",
                  s->partial_count, s->partial.nbytes > 0 ? ": " : "",
                  s->partial.nbytes > 0 ? s->partial.text : "", s->partial.failed ? ", ..." : "");
    ranks_report_differing(s, states_units);
    o->ranks_unknown = ranks_is_count_unknown(s) && !states_units;
    if (o->ranks_unknown)
        log_warn(log, FSDPCK_FINDING_RANKS_UNKNOWN,
                 "give --source-ranks N, where N is the number of ranks that saved the checkpoint",
                 "%" PRId64 " rank%s found; these files cannot show whether a last rank is missing",
                 o->world_size, o->world_size == 1 ? "" : "s");
    if (s->beside_count > 0)
        log_write(log, LOG_NOTE,
                  "1-dim tensors left out, possibly shards of flat parameters: %" PRIu64,
                  s->beside_count);
    if (s->dropped_count > 0)
        log_write(log, LOG_NOTE, "tensors left out, because they differ between ranks: %" PRIu64,
                  s->dropped_count);
}

static fsdpck_status refuse_torch_checkpointing(fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                     ("checkpoint is in the format of torch_checkpointing, which is not supported"),
                     (found, "its 'metadata.pkl'"),
                     (next,
                      "save it with torch.distributed.checkpoint, or read its torch.save files of "
                      "DTensors one item at a time: --source-rank-pattern 'model_{r}.pt'"));
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    ranks_list list = {.families = VEC_OF(ranks_family, req->metadata),
                       .files = VEC_OF(ranks_file, req->metadata),
                       .owner = req->metadata};
    torch_folder *r = NULL;
    ranks_state s;

    if (!req->probe->is_folder)
        return FAIL(err, USAGE, NONE, "pt-ranks reads a folder; this is a file");
    if (req->rank_pattern == NULL && ranks_is_torch_checkpointing(req->probe))
        return refuse_torch_checkpointing(err);
    const char *pattern =
        req->rank_pattern != NULL ? req->rank_pattern : ranks_experimental_pattern(req->probe);
    fsdpck_status st =
        ranks_list_make(&list, req->probe->entries, req->probe->entry_count, pattern, err);
    if (st == FSDPCK_OK)
        st = torch_folder_open(req, &r, err);
    if (st == FSDPCK_OK)
        st = add_files(r, &list, cat, err);
    if (st == FSDPCK_OK) {
        ranks_warn_beside(req, &list);
        state_init(&s, req, r, &list, cat);
        st = read_all(&s, err);
        if (st == FSDPCK_OK) {
            describe(&s, &cat->origin);
            ranks_describe_folder(req, &cat->origin);
            torch_folder_finish(r, req, cat);
            report(&s);
        }
        state_release(&s);
    }
    ranks_list_release(&list);
    if (st == FSDPCK_OK)
        *self = r;
    else
        torch_folder_close(r);
    return st;
}

/* --- the source --- */

static fsdpck_status refused(const torch_shard *q, fsdpck_error *err)
{
    if (q->flags & RANKS_SHARD_STAGES)
        return FAIL_WITH(
            err, BADINPUT, RANK_DISAGREE,
            ("optimizer state has one number for different parameters of several ranks (pipeline "
             "stages)"),
            (next, "save the optimizer with get_optimizer_state_dict, which names parameters; or "
                   "read only the model with --part model, in commands that have this option"));
    if (q->flags & RANKS_SHARD_EQUAL)
        return FAIL_WITH(
            err, UNSUPPORTED, RANK_FLAT,
            ("1-dim optimizer state is equal on all ranks: it may be shards of flat parameters "
             "(FSDP1), or copies"),
            (next, "describe the flat parameters with --model FILE: fsdpck-model(5); if all ranks "
                   "saved the whole optimizer, give --per-rank first"));
    if (q->flags & RANKS_SHARD_FLAT)
        return FAIL_WITH(
            err, UNSUPPORTED, RANK_FLAT,
            ("optimizer state is stored as each rank's shard of a flat parameter (FSDP1)"),
            (next, "describe the flat parameters with --model FILE: fsdpck-model(5); or read only "
                   "the model with --part model, in commands that have this option"));
    return FAIL(err, BADINPUT, RANK_DIFFER,
                "a plain tensor has different shapes or dtypes on different ranks");
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const torch_folder *r = ctx;
    const cat_chunk *k = catalogue_chunk(r->cat, chunk);
    const torch_shard *q = VEC_AT(&r->pieces, const torch_shard, k->aux);

    if (q->flags & (RANKS_SHARD_FLAT | RANKS_SHARD_SHAPES | RANKS_SHARD_STAGES))
        return refused(q, err);
    return torch_folder_locate(r, q, where, err);
}

static void fill_source(void *self, catalogue *cat, source *src)
{
    torch_folder_source(self, cat, src);
    src->locate = locate;
}

/* A trainer's settings, kept or rewritten. Another file of that name is not of the checkpoint. */
static bool owns(const probe_input *in, const cat_origin *origin, const char *path, uint64_t nbytes)
{
    (void)in;
    (void)nbytes;
    const ranks_trainer *trainer = ranks_trainer_find(origin->trainer);
    return trainer != NULL && trainer->settings_name != NULL &&
           strcmp(path, trainer->settings_name) == 0 && ranks_settings_count(origin->settings) > 0;
}

const format_reader pt_ranks_reader = {
    .name = "pt-ranks",
    .description =
        "a folder of torch.save files, one per rank: DTensors, ShardedTensors, plain tensors",
    .probe = probe,
    .open = open_folder,
    .source = fill_source,
    .check_records = torch_folder_check_records,
    .close = torch_folder_close,
    .owns = owns,
    .id = FSDPCK_FORMAT_PT_RANKS,
    .writer = &pt_ranks_writer,
};
