/* ranks_trainer_files.c: the files of known trainers, and similar folders of other programs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "formats/pt/ranks_internal.h"

/* verl 0.2 to 0.9 (FSDPCheckpointManager), accelerate 1.0 to 1.14 (use_dcp=False), Meta's Llama. */
const ranks_trainer_family ranks_trainer_families[] = {
    {"verl", "model", "model_world_size_{W}_rank_{r}.pt", true},
    {"verl", "optim", "optim_world_size_{W}_rank_{r}.pt", true},
    {"verl", "extra_state", "extra_state_world_size_{W}_rank_{r}.pt", true},
    {"accelerate", "model", "pytorch_model_fsdp_{i}_rank{r}.bin", true},
    {"accelerate", "model", "pytorch_model_fsdp_rank{r}.bin", false},
    {"accelerate", "optimizer", "optimizer_{i}_rank{r}.bin", true},
    {"accelerate", "optimizer", "optimizer_rank{r}.bin", false},
    {RANKS_META, "model", "consolidated.{r}.pth", false},
};
_Static_assert(sizeof ranks_trainer_families / sizeof ranks_trainer_families[0] ==
                   RANKS_TRAINER_FAMILIES,
               "RANKS_TRAINER_FAMILIES counts the rows");

static const ranks_trainer trainers[] = {
    {"verl", "fsdp_config.json", "huggingface"},
};

const ranks_trainer *ranks_trainer_find(const char *name)
{
    for (size_t i = 0; i < sizeof trainers / sizeof trainers[0]; i++)
        if (strcmp(trainers[i].name, name) == 0)
            return &trainers[i];
    return NULL;
}

/* --- kinds of files --- */

static bool begins_with_family(const catalogue *cat, value path)
{
    static const char *const keys[] = {"model", "optim", "optimizer", "extra_state"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (value_count(&cat->pool, path) > 1 &&
            value_is_str(&cat->pool, value_item(&cat->pool, path, 0), keys[k]))
            return true;
    return false;
}

/* Whether one kind of file holds a whole state, {"model": ..., "optim": ...}: it is not from that
 * trainer, whose model files hold only the model. */
static bool holds_families(const ranks_state *s)
{
    const catalogue *cat = s->cat;
    bool found = false;
    for (size_t i = 0; !found && i < catalogue_tensor_count(cat); i++)
        found = begins_with_family(cat, catalogue_tensor(cat, i)->path);
    for (size_t i = 0; !found && i < catalogue_object_count(cat); i++)
        found = begins_with_family(cat, catalogue_object(cat, i)->path);
    return found && s->list->families.count == 1;
}

/* Files of Meta's ranks are only read: their names determine how ranks share a tensor. */
static void note_families(const ranks_state *s, cat_origin *o)
{
    const vec *families = &s->list->families;
    const ranks_family *first = VEC_AT(families, const ranks_family, 0);
    if (families->count > CAT_RANK_FAMILIES_MAX || s->meta.world > 0)
        return;
    for (size_t i = 0; i < families->count; i++) {
        const ranks_family *f = VEC_AT(families, const ranks_family, i);
        cat_rank_family *made = &o->rank_families[i];
        if (!ranks_family_pattern(f, s->req->rank_pattern, made->pattern, sizeof made->pattern))
            return;
        snprintf(made->key, sizeof made->key, "%s", f->key);
    }
    o->rank_family_count = (unsigned)families->count;
    if (families->count == 1 && first->trainer[0] == '\0')
        memcpy(o->rank_pattern, o->rank_families[0].pattern, sizeof o->rank_pattern);
}

void ranks_describe_families(const ranks_state *s, cat_origin *o)
{
    const ranks_family *first = VEC_AT(&s->list->families, const ranks_family, 0);
    if (!holds_families(s))
        snprintf(o->trainer, sizeof o->trainer, "%s", first->trainer);
    note_families(s, o);
}

/* --- verl's settings --- */

static bool is_world_size(const json_token *t)
{
    static const char key[] = "world_size";
    return t->kind == JSON_KEY && t->nbytes == strlen(key) && memcmp(t->text, key, t->nbytes) == 0;
}

static fsdpck_status copy_object(json_reader *r, json_writer *w, uint64_t world_size,
                                 fsdpck_error *err)
{
    json_token t;
    unsigned depth = 1;
    bool stated = false;

    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    json_begin_object(w);
    while (depth > 0) {
        RETURN_IF(json_next(r, &t, err));
        if (depth == 1 && is_world_size(&t)) {
            RETURN_IF(json_next(r, &t, err));
            RETURN_IF(json_skip(r, &t, err));
            if (!stated)
                json_member_u64(w, "world_size", world_size);
            stated = true;
            continue;
        }
        if (t.kind == JSON_OBJECT || t.kind == JSON_ARRAY)
            depth++;
        else if (t.kind == JSON_OBJECT_END || t.kind == JSON_ARRAY_END)
            depth--;
        if (depth == 0 && !stated)
            json_member_u64(w, "world_size", world_size);
        json_put_token(w, &t);
    }
    return json_expect(r, JSON_END, &t, err);
}

fsdpck_status ranks_settings_put(const char *text, uint64_t world_size, text_buf *out,
                                 fsdpck_error *err)
{
    /* FSDPConfig of verl 0.9. */
    static const char newest[] = "{\"FSDP_version\": 2}";
    json_reader r;
    json_writer w;

    if (text[0] == '\0')
        text = newest;
    json_reader_init(&r, text, strlen(text), FSDPCK_FINDING_NONE);
    json_writer_init(&w, out, 4); /* as its json.dump(..., indent=4) */
    const fsdpck_status st = copy_object(&r, &w, world_size, err);
    json_reader_release(&r);
    return st == FSDPCK_OK ? text_check(out, err) : st;
}

uint64_t ranks_settings_count(const char *text)
{
    json_reader r;
    json_token t;
    uint64_t ranks = 0;
    json_reader_init(&r, text, strlen(text), FSDPCK_FINDING_NONE);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, NULL);
    while (st == FSDPCK_OK && (st = json_next(&r, &t, NULL)) == FSDPCK_OK && t.kind == JSON_KEY) {
        const bool is_ranks = is_world_size(&t);
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK && is_ranks && t.is_u64)
            ranks = t.u64;
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
    return ranks;
}

static void warn_settings_ranks(const open_request *req, const char *name, const cat_origin *o)
{
    const uint64_t ranks = ranks_settings_count(o->settings);
    if (ranks > 0 && o->world_size > 0 && ranks != (uint64_t)o->world_size)
        log_warn(&req->log, FSDPCK_FINDING_RANK_MIXED, "use a copy of the whole folder",
                 "'%s' records %" PRIu64 " rank%s, but the files are of %" PRId64
                 " rank%s: one of them is of another save",
                 name, ranks, text_plural(ranks), o->world_size,
                 text_plural((uint64_t)o->world_size));
}

static void read_settings(const open_request *req, const char *name, cat_origin *o)
{
    char *text = NULL;
    size_t nbytes = 0;
    text_buf made = {0};
    fsdpck_error err;

    fsdpck_error_init(&err);
    if (!probe_has_entry(req->probe, name))
        return;
    fsdpck_status st =
        file_read_whole(&req->probe->dir, name, sizeof o->settings - 1, &text, &nbytes, &err);
    if (st == FSDPCK_OK && strlen(text) != nbytes)
        st = FAIL(&err, BADINPUT, NONE, "it holds a zero byte");
    if (st == FSDPCK_OK)
        st = ranks_settings_put(text, 1, &made, &err);
    if (st == FSDPCK_OK)
        memcpy(o->settings, text, nbytes + 1);
    if (st == FSDPCK_OK)
        warn_settings_ranks(req, name, o);
    else
        log_warn(&req->log, FSDPCK_FINDING_SIDE_UNREAD, "",
                 "cannot keep '%s', so a new one is written: %s", name, err.message);
    text_release(&made);
    free(text);
}

void ranks_describe_folder(const open_request *req, cat_origin *o)
{
    const ranks_trainer *trainer = ranks_trainer_find(o->trainer);
    path_kind kind;

    if (trainer == NULL)
        return;
    if (trainer->settings_name != NULL)
        read_settings(req, trainer->settings_name, o);
    const char *const side = trainer->side_folder;
    if (side != NULL && probe_has_entry(req->probe, side) &&
        path_probe(&req->probe->dir, side, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER)
        snprintf(o->side_folder, sizeof o->side_folder, "%s", side);
}

/* --- torch_checkpointing (2026) --- */

enum { METADATA_HEAD_NBYTES = 4096 };

/* Its metadata.pkl is the pickle of {"metadata": {ITEM: {"nested_path_to_metadata": ...}}, ...}, of
 * version 1.0 {"metadata": {PATH: [{"sharding_metadata": ...}]}, ...}; the items are beside it, by
 * default as ITEM_RANK.pt. */
bool ranks_is_torch_checkpointing(const probe_input *in)
{
    uint8_t head[METADATA_HEAD_NBYTES];
    file f = FILE_CLOSED;

    if (!in->is_folder || !probe_has_entry(in, "metadata.pkl") ||
        file_open_read(&f, &in->dir, "metadata.pkl", 0, NULL) != FSDPCK_OK)
        return false;
    const size_t n = f.nbytes < sizeof head ? (size_t)f.nbytes : sizeof head;
    const bool is_read = file_read_at(&f, 0, head, n, NULL) == FSDPCK_OK;
    file_abandon(&f);
    return is_read && n > 2 && head[0] == 0x80 && ranks_bytes_hold(head, n, "metadata") &&
           (ranks_bytes_hold(head, n, "nested_path_to_metadata") ||
            ranks_bytes_hold(head, n, "sharding_metadata") ||
            ranks_bytes_hold(head, n, "rank_to_layout_info"));
}
