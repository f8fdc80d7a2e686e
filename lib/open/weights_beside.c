#include "open/weights_beside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"
#include "base/text.h"
#include "io/unfinished_file.h"
#include "open/numbered_files.h"
#include "open/open_quietly.h"
#include "open/state_files.h"
#include "open/weights_names.h"

/* Files and folders that are opened beside one checkpoint. */
enum { OPENED_MAX = 32, NAME_NBYTES_MAX = 256 };

static bool is_safetensors(const char *name)
{
    return strstr(name, ".safetensors") != NULL;
}

bool weights_beside_is_read(const catalogue *read, const char *entry)
{
    if (catalogue_has_file(read, entry))
        return true;
    for (size_t i = 0; is_safetensors(entry) && i < catalogue_file_count(read); i++)
        if (is_safetensors(catalogue_name(read, catalogue_file(read, (uint32_t)i)->path)))
            return true;
    return false;
}

/* ---- the message ---- */

/* "compare them: fsdpck diff DIR DIR/FIRST" with the paths, if they fit. */
static void put_comparison(char *next, size_t capacity, const char *above, const char *first)
{
    char one[1024], two[1024];
    char *path = folder_path_join(above, first);
    const bool fits = path != NULL && shell_word(one, sizeof one, above)[0] != '\0' &&
                      shell_word(two, sizeof two, path)[0] != '\0';
    snprintf(next, capacity, "compare them: fsdpck diff %s %s", fits ? one : "DIR",
             fits ? two : "DIR/NAME");
    free(path);
}

static void put_next(char *next, size_t capacity, const char *above, const char *first)
{
    if (format_file_count(first) > 0 && is_safetensors(first))
        snprintf(next, capacity,
                 "move the files that are not read into a folder of their own, then compare: "
                 "fsdpck diff DIR FOLDER");
    else if (checkpoint_is_rank_name(first))
        snprintf(next, capacity, "to read the rank files instead, give --source-format %s",
                 format_reader_of_pattern->name);
    else
        put_comparison(next, capacity, above, first);
}

void weights_beside_report(const fsdpck_checkpoint *c, const catalogue *read, const char *first,
                           uint64_t count)
{
    char next[2100], more[40] = "", others[40] = "";
    const size_t files = catalogue_file_count(read);
    put_next(next, sizeof next, c->probe.path, first);
    if (files > 1)
        snprintf(more, sizeof more, " and %zu more", files - 1);
    if (count > 1)
        snprintf(others, sizeof others, " and %" PRIu64 " more", count - 1);
    log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_BESIDE, next,
             "reading '%s'%s; ignoring '%s'%s beside it",
             catalogue_name(read, catalogue_file(read, 0)->path), more, first, others);
}

/* ---- weights of the same model, under any name ---- */

typedef struct beside_search {
    fsdpck_checkpoint *c;
    checkpoint_open_fn open;
    map_inputs own; /* names of the model's tensors */
    bool has_own;
    unsigned opened;
    char first[256];
    uint64_t count;
} beside_search;

/* At least half of the tensors have a namesake. */
static bool has_own_names(const beside_search *s, const map_inputs *other)
{
    size_t same = 0;
    for (size_t i = 0; i < other->inputs.count; i++) {
        const map_input *in = VEC_AT(&other->inputs, const map_input, i);
        same += strtab_find(&s->own.names, in->name, in->nbytes) != STRTAB_NONE;
    }
    return same > 0 && same >= s->own.inputs.count - same;
}

/* Takes `path`, which may be NULL. *what: why it cannot be opened, else OK. */
static void look_into(beside_search *s, char *path, const char *entry, fsdpck_error *what)
{
    fsdpck_checkpoint *other = NULL;
    map_inputs names = {0};
    if (!s->has_own)
        s->has_own = map_inputs_list(s->c, &s->own, NULL) == FSDPCK_OK;
    const bool is_open = path != NULL && s->has_own && s->own.inputs.count > 0 &&
                         s->opened++ < OPENED_MAX &&
                         open_quietly(s->open, s->c->ctx, path, &other, what) == FSDPCK_OK;
    if (is_open && map_inputs_list(other, &names, NULL) == FSDPCK_OK && has_own_names(s, &names) &&
        s->count++ == 0)
        snprintf(s->first, sizeof s->first, "%s", entry);
    if (is_open)
        map_inputs_release(&names);
    fsdpck_close(other);
    free(path);
}

/* *what: why it cannot be opened, else OK. Variants of one component, such as fp16, are no damage. */
static void open_component(beside_search *s, const char *path, fsdpck_error *what)
{
    fsdpck_checkpoint *other = NULL;
    if (s->opened++ >= OPENED_MAX)
        return;
    const fsdpck_status st = open_quietly(s->open, s->c->ctx, path, &other, what);
    const finding_kind *kind = finding_get(what->finding);
    fsdpck_close(other);
    if (st != FSDPCK_OK && kind != NULL && kind->class == FINDING_AMBIGUITY)
        fsdpck_error_init(what);
}

bool weights_beside_has_name(const char *name)
{
    static const char *const suffixes[] = {".pt",          ".pth",     ".bin",   ".ckpt",
                                           ".safetensors", ".pth.tar", ".pt.tar"};
    bool has_suffix = false, known;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        has_suffix = has_suffix || text_ends_with(name, strlen(name), suffixes[i]);
    return has_suffix && name[0] != '.' && !format_is_rank_file(name, &known) &&
           !trainer_state_has_name(name) && !numbered_file_is_model(name) &&
           !text_begins(name, "adapter_");
}

static bool may_be_weights(const fsdpck_checkpoint *c, const catalogue *read, const char *entry)
{
    path_kind kind;
    return weights_beside_has_name(entry) && !checkpoint_is_weights_name(entry) &&
           !weights_beside_is_read(read, entry) &&
           path_probe(&c->probe.dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

/* Of torch or accelerate, which other_weights.c names. */
static bool is_known_folder(const nested_folder *f)
{
    return f->of_consolidation || text_begins(text_file_name(f->path), "pytorch_model_fsdp_");
}

/* Damage for which latest skips the step: no property that an option settles, or that fsdpck does not support. */
static bool is_folder_damage(const fsdpck_error *why)
{
    const finding_kind *kind = finding_get(why->finding);
    return why->status == FSDPCK_BADINPUT && kind != NULL &&
           why->finding != FSDPCK_FINDING_KEY_NONE &&
           why->finding != FSDPCK_FINDING_NO_CHECKPOINT && kind->class != FINDING_DOUBT &&
           kind->class != FINDING_MODEL && kind->class != FINDING_REQUEST;
}

static void warn_cut_folder(const fsdpck_checkpoint *c, const char *name, const fsdpck_error *why)
{
    const char *below = checkpoint_path_below(why->path, c->probe.path);
    const bool is_inside = below != NULL && strcmp(below, name) != 0;
    if (is_folder_damage(why))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_CUT,
                 "copy the folder again from where it was saved, or remove it",
                 "'%s' beside the weights cannot be read: %s%s%s%s [%s]", name,
                 is_inside ? "'" : "", is_inside ? below : "", is_inside ? "': " : "", why->message,
                 fsdpck_finding_name(why->finding));
}

/* The components of sentence-transformers and diffusers are not other weights of the same model, but may be damaged;
 * so may folders that are reported by their names. */
static void look_into_folders(beside_search *s)
{
    nested_folders nested;
    const bool are_components = probe_has_entry(&s->c->probe, "modules.json") ||
                                probe_has_entry(&s->c->probe, "model_index.json") ||
                                checkpoint_is_adapter_folder(s->c); /* others, of the same names */
    nested_folders_init(&nested);
    if (nested_folders_add(&nested, s->c, NULL) == FSDPCK_OK)
        for (size_t i = 0; i < nested.list.count; i++) {
            const nested_folder *f = VEC_AT(&nested.list, const nested_folder, i);
            fsdpck_error what = FSDPCK_ERROR_INIT;
            const bool is_model = f->has_reader && !f->is_state && !f->of_trainer;
            if (is_model && (are_components || is_known_folder(f)))
                open_component(s, f->path, &what);
            else if (is_model)
                look_into(s, strdup(f->path), text_file_name(f->path), &what);
            warn_cut_folder(s->c, text_file_name(f->path), &what);
        }
    nested_folders_release(&nested);
}

void weights_beside_warn(fsdpck_checkpoint *c, checkpoint_open_fn open)
{
    while (c->base != NULL && c->average == NULL)
        c = c->base;
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    beside_search s = {.c = c, .open = open};
    if (c->base != NULL || !c->probe.is_folder || c->remote_files != NULL ||
        c->ctx->group != NULL || catalogue_file_count(read) == 0)
        return;
    /* PEFT keeps others beside an adapter, of the same names. */
    const size_t entries = checkpoint_is_adapter_folder(c) ? 0 : c->probe.entry_count;
    for (size_t i = 0; i < entries; i++)
        if (may_be_weights(c, read, c->probe.entries[i]))
            look_into(&s, folder_path_join(c->probe.path, c->probe.entries[i]), c->probe.entries[i],
                      NULL);
    look_into_folders(&s);
    if (s.count > 0)
        weights_beside_report(c, read, s.first, s.count);
    if (s.has_own)
        map_inputs_release(&s.own);
}

/* ---- empty or cut files ---- */

/* As file systems leave them after a crash. */
static bool begins_with_zeros(const probe_input *in)
{
    size_t n = 0;
    while (n < in->head_nbytes && in->head[n] == 0)
        n++;
    return n > 0 && n == in->head_nbytes;
}

/* Of a file that is in no format, only zeros tell that it is damaged: another program may have written it. */
static bool is_damage(const fsdpck_error *why)
{
    const finding_kind *kind = finding_get(why->finding);
    return why->status == FSDPCK_BADINPUT && why->finding != FSDPCK_FINDING_PT_CONTAINER &&
           (why->finding == FSDPCK_FINDING_FILE_SHORT || why->finding == FSDPCK_FINDING_ZIP_NOEND ||
            (kind != NULL && kind->class == FINDING_STRUCTURE));
}

static bool is_hdf5_cut(const char *path, fsdpck_error *what)
{
    file f = FILE_CLOSED;
    const bool cut =
        file_open_read(&f, NULL, path, 0, NULL) == FSDPCK_OK && format_is_hdf5_cut(&f, what);
    file_abandon(&f);
    return cut;
}

/* *why: a constant, or the message of `what`. */
static bool is_cut(checkpoint_open_fn open, fsdpck_context *ctx, const char *path, unsigned *opened,
                   fsdpck_error *what, const char **why)
{
    fsdpck_checkpoint *c = NULL;
    probe_input in;
    *why = what->message;
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return false;
    const bool is_file = !in.is_folder, is_empty = is_file && in.nbytes == 0;
    const bool is_zero = is_file && !is_empty && begins_with_zeros(&in);
    probe_release(&in);
    if (is_empty || is_zero) {
        *why = is_empty ? "file is empty" : "file begins with zeros";
        return true;
    }
    if (is_file && checkpoint_is_foreign_name(text_file_name(path)))
        return is_hdf5_cut(path, what);
    if (!is_file || ctx->group != NULL || (*opened)++ >= OPENED_MAX)
        return false;
    const fsdpck_status st = open_quietly(open, ctx, path, &c, what);
    fsdpck_close(c);
    /* A pointer of git-lfs was not fetched, as its user may want. */
    return st != FSDPCK_OK && is_damage(what) && !unfinished_is_pointer(NULL, path);
}

static fsdpck_status fail_cut(const fsdpck_checkpoint *c, const char *entry, const char *why,
                              fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, WEIGHTS_CUT, ("'%s' beside the weights cannot be read: %s", entry, why),
        (path, c->probe.path), (next, "copy the file again, or remove it: a loader may choose it"));
}

/* The first file that the set of `entry` lacks. The others of a set are searched with its first one only. */
static bool find_lost(const probe_input *in, const char *entry, char *name, size_t capacity)
{
    if (!format_numbered_name(entry, 0, name, capacity))
        return false;
    const uint64_t count = format_file_count(entry), first = probe_has_entry(in, name) ? 0 : 1;
    for (uint64_t k = first; k < first + count; k++) {
        if (format_numbered_name(entry, k, name, capacity) && !probe_has_entry(in, name))
            return true;
        if (k == first && strcmp(entry, name) != 0)
            return false;
    }
    return false;
}

/* Whether a file is of a set with an index of its own, which none of the files that are read is of: a variant of them. */
static bool is_of_variant(const fsdpck_checkpoint *c, const catalogue *read, const char *entry)
{
    char index[NAME_NBYTES_MAX], other[NAME_NBYTES_MAX];
    bool is = format_index_name(entry, index, sizeof index) && probe_has_entry(&c->probe, index);
    for (size_t i = 0; is && i < catalogue_file_count(read); i++)
        is = !format_index_name(catalogue_name(read, catalogue_file(read, i)->path), other,
                                sizeof other) ||
             strcmp(index, other) != 0;
    return is;
}

static fsdpck_status check_sets(const fsdpck_checkpoint *c, const catalogue *read,
                                fsdpck_error *err)
{
    char name[NAME_NBYTES_MAX];
    for (size_t i = 0; i < c->probe.entry_count; i++) {
        const char *entry = c->probe.entries[i];
        if (((checkpoint_is_weights_name(entry) && !weights_beside_is_read(read, entry)) ||
             is_of_variant(c, read, entry)) &&
            format_index_name(entry, name, sizeof name) &&
            find_lost(&c->probe, entry, name, sizeof name))
            return FAIL_WITH(err, BADINPUT, WEIGHTS_CUT,
                             ("'%s' beside the weights is missing, but '%s' of the same set is "
                              "there",
                              name, entry),
                             (path, c->probe.path),
                             (next, "copy the file from where it was saved, or remove the others: "
                                    "a loader may choose this set"));
    }
    return FSDPCK_OK;
}

fsdpck_status weights_beside_check(const fsdpck_checkpoint *c, const catalogue *read,
                                   checkpoint_open_fn open, strtab *cut, fsdpck_error *err)
{
    unsigned opened = 0;
    fsdpck_status st = FSDPCK_OK;
    uint32_t id;
    if (!c->probe.is_folder || c->remote_files != NULL || catalogue_file_count(read) == 0)
        return FSDPCK_OK;
    for (size_t i = 0; i < c->probe.entry_count && (st == FSDPCK_OK || cut != NULL); i++) {
        const char *entry = c->probe.entries[i];
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const char *why;
        if (entry[0] == '.' || catalogue_has_file(read, entry) || numbered_file_is_model(entry) ||
            !(checkpoint_is_weights_name(entry) || checkpoint_is_foreign_name(entry) ||
              text_ends_with(entry, strlen(entry), ".safetensors")))
            continue;
        char *path = folder_path_join(c->probe.path, entry);
        if (path != NULL && is_cut(open, c->ctx, path, &opened, &what, &why)) {
            if (st == FSDPCK_OK)
                st = fail_cut(c, entry, why, err);
            if (cut != NULL && strtab_intern(cut, entry, strlen(entry), &id, NULL) != FSDPCK_OK)
                cut = NULL; /* the others are not needed then */
        }
        free(path);
    }
    return st == FSDPCK_OK ? check_sets(c, read, err) : st;
}
