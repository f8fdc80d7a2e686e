#include "verify/resume_state.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"

/* Limits of folders and of their depth below a step. */
#define FOLDERS_MAX 1024u
#define DEPTH_MAX   16u

typedef struct name_row {
    const char *glob;
    resume_kind kind;
} name_row;

/* Files and folders as trainers name them: transformers, accelerate, verl, DeepSpeed, Megatron-LM, Lightning, slime. The
 * first that matches decides. */
static const name_row file_rows[] = {
    {"optimizer*.pt", RESUME_OPTIMIZER},
    {"optimizer*.bin", RESUME_OPTIMIZER},
    {"optimizer*.pth", RESUME_OPTIMIZER},
    {"optim.pt", RESUME_OPTIMIZER},
    {"optim_world_size_*.pt", RESUME_OPTIMIZER},
    {"*optim_states.pt", RESUME_OPTIMIZER},
    {"distrib_optim.pt", RESUME_OPTIMIZER},
    {"scheduler*.pt", RESUME_SCHEDULER},
    {"scheduler*.bin", RESUME_SCHEDULER},
    {"lr_scheduler.pt", RESUME_SCHEDULER},
    {"rng_state*.pth", RESUME_RNG},
    {"random_states_*.pkl", RESUME_RNG},
    {"sampler*.bin", RESUME_DATA},
    {"dl_state_dict*.bin", RESUME_DATA},
    {"dataloader*.pt", RESUME_DATA},
    {"data.pt", RESUME_DATA},
    {"trainer_state.json", RESUME_PROGRESS},
    {"extra_state_world_size_*.pt", RESUME_PROGRESS},
    {"meta.pt", RESUME_PROGRESS},
    {"rng.pt", RESUME_RNG},
};

/* Outer keys, and folders. '#' stands for nothing, or an underscore and a number. */
static const name_row key_rows[] = {
    {"optim#", RESUME_OPTIMIZER},
    {"optimizer#", RESUME_OPTIMIZER},
    {"optimizers", RESUME_OPTIMIZER},
    {"optim_state", RESUME_OPTIMIZER},
    {"optimizer_state", RESUME_OPTIMIZER},
    {"lr_scheduler#", RESUME_SCHEDULER},
    {"lr_schedulers", RESUME_SCHEDULER},
    {"scheduler#", RESUME_SCHEDULER},
    {"schedulers", RESUME_SCHEDULER},
    {"opt_param_scheduler", RESUME_SCHEDULER},
    {"rng#", RESUME_RNG},
    {"rng_state#", RESUME_RNG},
    {"rng_states", RESUME_RNG},
    {"random_state#", RESUME_RNG},
    {"random_states", RESUME_RNG},
    {"dataloader#", RESUME_DATA},
    {"dataloaders", RESUME_DATA},
    {"train_dataloader", RESUME_DATA},
    {"data_loader", RESUME_DATA},
    {"loader", RESUME_DATA},
    {"train", RESUME_PROGRESS},
    {"train_state", RESUME_PROGRESS},
    {"trainer_state", RESUME_PROGRESS},
    {"extra_state", RESUME_PROGRESS},
};

void resume_state_init(resume_state *s, const char *path)
{
    *s = (resume_state){.path = path, .step = -1};
    for (unsigned k = 0; k < RESUME_KINDS; k++)
        strtab_init(&s->places[k], NULL);
    strtab_init(&s->read, NULL);
    strtab_init(&s->omitted, NULL);
    s->read_kinds = VEC_OF(uint8_t, NULL);
}

void resume_state_release(resume_state *s)
{
    for (unsigned k = 0; k < RESUME_KINDS; k++)
        strtab_release(&s->places[k]);
    strtab_release(&s->read);
    strtab_release(&s->omitted);
    vec_release(&s->read_kinds);
}

/* ---- names ---- */

static size_t span(const char *text, size_t nbytes, const char *of)
{
    size_t n = 0;
    while (n < nbytes && text[n] != '\0' && strchr(of, text[n]) != NULL)
        n++;
    return n;
}

static bool is_key(const char *text, size_t nbytes, const char *row)
{
    const size_t n = strlen(row), stem = n - (row[n - 1] == '#');
    if (nbytes < stem || memcmp(text, row, stem) != 0)
        return false;
    if (nbytes == stem)
        return true;
    if (stem == n || text[stem] != '_' || nbytes == stem + 1)
        return false;
    return stem + 1 + span(text + stem + 1, nbytes - stem - 1, "0123456789") == nbytes;
}

static bool kind_of_key(const char *text, size_t nbytes, resume_kind *kind)
{
    for (size_t i = 0; i < sizeof key_rows / sizeof *key_rows; i++)
        if (is_key(text, nbytes, key_rows[i].glob)) {
            *kind = key_rows[i].kind;
            return true;
        }
    return false;
}

static bool kind_of_file(const char *name, resume_kind *kind)
{
    for (size_t i = 0; i < sizeof file_rows / sizeof *file_rows; i++)
        if (fnmatch(file_rows[i].glob, name, 0) == 0) {
            *kind = file_rows[i].kind;
            return true;
        }
    return false;
}

bool resume_state_is_name(const char *path)
{
    resume_kind kind;
    for (const char *at = path; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        if (at[n] == '\0')
            return kind_of_file(at, &kind);
        if (kind_of_key(at, n, &kind))
            return true;
        at += n + 1;
    }
    return false;
}

/* The number in the name of the step, which its parts may repeat. */
static size_t step_digits(const resume_state *s, const char **digits)
{
    const char *name = text_file_name(s->path);
    step_name number;
    step_name_read(name, weights_stem_nbytes(name), &number);
    size_t begin = number.begin;
    const size_t end = number.end;
    while (begin + 1 < end && name[begin] == '0')
        begin++;
    *digits = name + begin;
    return end - begin;
}

/* "global_step8" of step 8 is "global_step#", "rng_state_3.pth" is "rng_state_#.pth", and
 * "optimizer_1" remains. */
static void append_place(const resume_state *s, const char *path, size_t nbytes, text_buf *out)
{
    static const char *const of_ranks[] = {"rank", "rng_state", "random_states"};
    const char *step;
    const size_t step_nbytes = step_digits(s, &step);
    bool all = false;
    char name[256];
    snprintf(name, sizeof name, "%.*s", nbytes < sizeof name ? (int)nbytes : 0, path);
    for (size_t i = 0; i < sizeof of_ranks / sizeof *of_ranks; i++)
        all = all || strstr(name, of_ranks[i]) != NULL;
    for (size_t i = 0; i < nbytes;) {
        const size_t n = span(path + i, nbytes - i, "0123456789");
        const size_t zeros = n > 0 ? span(path + i, n - 1, "0") : 0;
        const bool is_step = step_nbytes > 0 && n - zeros == step_nbytes &&
                             memcmp(path + i + zeros, step, step_nbytes) == 0;
        if (n > 0 && (all || is_step))
            text_puts(out, "#");
        else
            text_append(out, path + i, n > 0 ? n : 1);
        i += n > 0 ? n : 1;
    }
}

static fsdpck_status add_place(resume_state *s, resume_kind kind, const char *path, size_t nbytes,
                               fsdpck_error *err)
{
    text_buf name = {0};
    uint32_t id;
    append_place(s, path, nbytes, &name);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&s->places[kind], name.nbytes > 0 ? name.text : "", name.nbytes, &id,
                           err);
    text_release(&name);
    return st;
}

/* ---- checkpoints ---- */

/* Below the step; "" for the step itself. */
static const char *path_below(const resume_state *s, const char *path)
{
    const size_t n = strlen(s->path);
    if (strncmp(path, s->path, n) != 0)
        return "";
    path += n;
    return path + strspn(path, "/");
}

/* The kind of a tensor or object of this part, by its outer key. */
static bool kind_of_name(unsigned part, const char *name, resume_kind *kind)
{
    const size_t first = strcspn(name, ".");
    const char *second = name + first + (name[first] == '.');
    *kind = part == PART_MODEL ? RESUME_MODEL : RESUME_OPTIMIZER;
    return part != PART_OTHER || kind_of_key(name, first, kind) ||
           kind_of_key(second, strcspn(second, "."), kind);
}

static void note_kind(bool *has, unsigned part, const char *name)
{
    resume_kind kind;
    if (kind_of_name(part, name, &kind))
        has[kind] = true;
}

static fsdpck_status add_read_path(resume_state *s, const char *path, size_t nbytes, uint8_t kinds,
                                   fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&s->read, path, nbytes, &id, err));
    if (id == s->read_kinds.count)
        return vec_add(&s->read_kinds, &kinds, err);
    *VEC_AT(&s->read_kinds, uint8_t, id) |= kinds;
    return FSDPCK_OK;
}

/* The file, and the folders that lead to it. */
static fsdpck_status add_read(resume_state *s, const char *path, uint8_t kinds, fsdpck_error *err)
{
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/'))
        RETURN_IF(add_read_path(s, path, (size_t)(at - path), kinds, err));
    return add_read_path(s, path, strlen(path), kinds, err);
}

static fsdpck_status add_read_files(resume_state *s, const catalogue *files, const char *below,
                                    uint8_t kinds, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_file_count(files); i++) {
        const char *name = catalogue_name(files, catalogue_file(files, (uint32_t)i)->path);
        char *path = below[0] == '\0' ? strdup(name) : folder_path_join(below, name);
        if (path == NULL)
            return error_set_nomem(err, strlen(name));
        const fsdpck_status st = add_read(s, path, kinds, err);
        free(path);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

static bool is_read(const resume_state *s, const char *path, size_t nbytes, resume_kind kind)
{
    const uint32_t id = strtab_find(&s->read, path, nbytes);
    return id != STRTAB_NONE && (*VEC_AT(&s->read_kinds, const uint8_t, id) >> kind & 1) != 0;
}

fsdpck_status resume_state_add_checkpoint(resume_state *s, const fsdpck_checkpoint *c,
                                          fsdpck_error *err)
{
    const char *below = path_below(s, c->path);
    bool has[RESUME_KINDS] = {false};
    resume_kind of_name; /* "optimizer_1000.pt" is no model, whatever its outer keys are */
    uint8_t kinds = 0;
    uint64_t empty, weights;
    for (size_t i = 0; i < c->parts.tensor_count; i++)
        note_kind(has, c->parts.tensor_part[i],
                  catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name));
    for (size_t i = 0; i < c->parts.object_count; i++)
        if (c->parts.object_part[i] != PART_MODEL)
            note_kind(has, c->parts.object_part[i],
                      catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name));
    if (below[0] == '\0' && kind_of_file(text_file_name(c->path), &of_name)) {
        has[of_name] = has[of_name] || has[RESUME_MODEL];
        has[RESUME_MODEL] = false;
    }
    if (checkpoint_has_placeholders(c, &empty, &weights))
        has[RESUME_MODEL] = false;
    for (unsigned k = 0; k < RESUME_KINDS; k++)
        if (has[k]) {
            kinds |= (uint8_t)(1u << k);
            RETURN_IF(add_place(s, (resume_kind)k, below, strlen(below), err));
        }
    return add_read_files(s, c->adapter == NULL ? &c->cat : &c->read, below, kinds, err);
}

/* ---- files ---- */

fsdpck_status resume_state_omit(resume_state *s, const char *path, fsdpck_error *err)
{
    const char *below = path_below(s, path);
    uint32_t id;
    return strtab_intern(&s->omitted, below, strlen(below), &id, err);
}

typedef struct files_walk {
    resume_state *s;
    folder dir;
    strtab folders; /* below the step, in the order of the search; "": the step */
} files_walk;

/* A folder that is read as this kind; or as a model without an optimizer, under any name. */
static bool is_known(const resume_state *s, const char *path, size_t nbytes, resume_kind kind)
{
    return is_read(s, path, nbytes, kind) ||
           (kind == RESUME_OPTIMIZER && is_read(s, path, nbytes, RESUME_MODEL));
}

/* A folder that is named as a kind of state is its place, with any file in it, unless a checkpoint of
 * this kind was read from it. */
static bool kind_of_path(const resume_state *s, const char *path, resume_kind *kind, size_t *nbytes)
{
    for (const char *at = path; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        *nbytes = (size_t)(at - path) + n;
        if (at[n] == '\0')
            return kind_of_file(at, kind) && !is_read(s, path, *nbytes, *kind) &&
                   strtab_find(&s->omitted, path, *nbytes) == STRTAB_NONE;
        if (kind_of_key(at, n, kind) && !is_known(s, path, *nbytes, *kind))
            return true;
        at += n + 1;
    }
    return false;
}

static fsdpck_status add_file(files_walk *w, const char *path, fsdpck_error *err)
{
    path_kind is;
    resume_kind kind;
    size_t nbytes;
    uint32_t id;
    RETURN_IF(path_probe(&w->dir, path, &is, NULL, err));
    if (is == PATH_FOLDER)
        return strtab_count(&w->folders) >= FOLDERS_MAX || text_path_depth(path) > DEPTH_MAX
                   ? FSDPCK_OK
                   : strtab_intern(&w->folders, path, strlen(path), &id, err);
    if (is != PATH_FILE || !kind_of_path(w->s, path, &kind, &nbytes))
        return FSDPCK_OK;
    return add_place(w->s, kind, path, nbytes, err);
}

static fsdpck_status list_folder(files_walk *w, const char *sub, fsdpck_error *err)
{
    char **entries = NULL;
    size_t count = 0;
    fsdpck_status st = folder_list(&w->dir, sub[0] == '\0' ? NULL : sub, &entries, &count, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        char *path = sub[0] == '\0' ? strdup(entries[i]) : folder_path_join(sub, entries[i]);
        st = path == NULL ? error_set_nomem(err, strlen(entries[i])) : add_file(w, path, err);
        free(path);
    }
    free(entries);
    return st;
}

/* An unreadable folder of another name, such as one of logs, does not describe the step. */
static bool may_be_omitted(const char *sub, fsdpck_status st)
{
    resume_kind kind;
    const char *name = text_file_name(sub);
    return st == FSDPCK_IO && sub[0] != '\0' && !kind_of_key(name, strlen(name), &kind);
}

fsdpck_status resume_state_add_files(resume_state *s, fsdpck_error *err)
{
    files_walk w = {.s = s, .dir = FOLDER_CLOSED};
    path_kind kind;
    uint32_t id;
    RETURN_IF(path_probe(NULL, s->path, &kind, NULL, err));
    if (kind != PATH_FOLDER)
        return FSDPCK_OK;
    RETURN_IF(folder_open(&w.dir, s->path, err));
    strtab_init(&w.folders, NULL);
    fsdpck_status st = strtab_intern(&w.folders, "", 0, &id, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&w.folders); i++) {
        char *sub = strdup(strtab_text(&w.folders, i)); /* adding to the table moves its texts */
        st = sub == NULL ? error_set_nomem(err, 1) : list_folder(&w, sub, err);
        if (sub != NULL && may_be_omitted(sub, st))
            st = FSDPCK_OK;
        free(sub);
    }
    strtab_release(&w.folders);
    folder_close(&w.dir);
    return st;
}

fsdpck_status resume_state_merge(resume_state *s, const resume_state *part, fsdpck_error *err)
{
    for (unsigned k = 0; k < RESUME_KINDS; k++)
        for (uint32_t i = 0; i < strtab_count(&part->places[k]); i++) {
            uint32_t id;
            RETURN_IF(strtab_intern(&s->places[k], strtab_text(&part->places[k], i),
                                    strtab_nbytes(&part->places[k], i), &id, err));
        }
    return FSDPCK_OK;
}

/* ---- comparison ---- */

bool resume_state_has(const resume_state *s, resume_kind kind)
{
    return strtab_count(&s->places[kind]) > 0;
}

/* By their number: another place of the same kind is no loss. */
static bool lacks_kind(const resume_state *s, const resume_state *other, resume_kind kind)
{
    const size_t here = strtab_count(&s->places[kind]), there = strtab_count(&other->places[kind]);
    return kind == RESUME_MODEL ? here == 0 && there > 0 : here < there;
}

bool resume_state_lacks(const resume_state *s, const resume_state *other)
{
    for (unsigned k = 0; k < RESUME_KINDS; k++)
        if (lacks_kind(s, other, (resume_kind)k))
            return true;
    return false;
}

static const char *first_only_in(const strtab *a, const strtab *other)
{
    for (uint32_t i = 0; i < strtab_count(other); i++)
        if (strtab_find(a, strtab_text(other, i), strtab_nbytes(other, i)) == STRTAB_NONE)
            return strtab_text(other, i);
    return "";
}

void resume_state_print(const resume_state *s, const resume_state *other, text_buf *out)
{
    static const char *const words[RESUME_KINDS] = {"model",        "optimizer",  "scheduler",
                                                    "random state", "dataloader", "progress"};
    bool any = false;
    for (unsigned k = 0; k < RESUME_KINDS; k++) {
        if (!lacks_kind(s, other, (resume_kind)k))
            continue;
        const char *where = first_only_in(&s->places[k], &other->places[k]);
        char text[128];
        text_printf(out, "%s%s", any ? ", " : "", words[k]);
        if (where[0] != '\0')
            text_printf(out, " ('%s')", escape_text(text, sizeof text, where, strlen(where)));
        any = true;
    }
}
