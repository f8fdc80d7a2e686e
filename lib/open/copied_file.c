#include "open/copied_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/open_quietly.h"
#include "open/step_numbers.h"
#include "state/step_files.h"

enum { FIRST_BYTES = 1 << 12, STEPS_MAX = 256, FILES_MAX = 256 };

/* The folder of a step in the path of a file. */
typedef struct step_folder {
    const char *begin, *end; /* its name */
    step_name step;
} step_folder;

static void read_step(const char *name, step_name *s)
{
    step_name_read(name, weights_stem_nbytes(name), s);
}

/* The last one. */
static bool find_folder(const char *path, step_folder *f)
{
    const char *end = text_file_name(path);
    while (end > path) {
        f->end = --end;
        while (end > path && end[-1] != '/')
            end--;
        f->begin = end;
        char *name = strndup(f->begin, (size_t)(f->end - f->begin));
        if (name == NULL)
            return false;
        read_step(name, &f->step);
        free(name);
        if (step_name_has_word(&f->step))
            return true;
    }
    return false;
}

static bool is_same_file(const file *f, const char *path)
{
    path_kind kind;
    uint64_t nbytes;
    file other;
    if (path_probe(NULL, path, &kind, &nbytes, NULL) != FSDPCK_OK || kind != PATH_FILE ||
        nbytes != f->nbytes || file_open_read(&other, NULL, path, 0, NULL) != FSDPCK_OK)
        return false;
    const bool is_same = file_has_same_bytes(f, &other);
    file_abandon(&other);
    return is_same;
}

/* run: the folder with the steps. */
static char *find_beside(const folder *run, const char *run_path, const file *f,
                         const step_folder *own)
{
    char **entries = NULL, *found = NULL;
    size_t count = 0, compared = 0;
    if (folder_list(run, "", &entries, &count, NULL) != FSDPCK_OK)
        return NULL;
    for (size_t i = 0; found == NULL && i < count && compared < STEPS_MAX; i++) {
        step_name s;
        read_step(entries[i], &s);
        if (!step_name_same_kind(&s, &own->step) || s.step == own->step.step)
            continue;
        compared++;
        char *step = folder_path_join(run_path, entries[i]);
        found = step == NULL ? NULL : folder_path_join(step, own->end + 1);
        free(step);
        if (found != NULL && !is_same_file(f, found)) {
            free(found);
            found = NULL;
        }
    }
    free(entries);
    return found;
}

static char *find_original(const char *path)
{
    step_folder own;
    folder run;
    file f;
    char *found = NULL;
    if (!find_folder(path, &own) || file_open_read(&f, NULL, path, 0, NULL) != FSDPCK_OK)
        return NULL;
    char *run_path = own.begin == path ? strdup(".") : strndup(path, (size_t)(own.begin - path));
    if (run_path != NULL && f.nbytes > 0 && folder_open(&run, run_path, NULL) == FSDPCK_OK) {
        found = find_beside(&run, run_path, &f, &own);
        folder_close(&run);
    }
    free(run_path);
    file_abandon(&f);
    return found;
}

/* ---- steps and shards ---- */

typedef struct copied_files {
    fsdpck_checkpoint *c;
    size_t compared;
    uint8_t *is_known; /* by file */
    char **originals;  /* by file; NULL: no copy */
} copied_files;

static const char *file_name(const fsdpck_checkpoint *c, uint32_t number)
{
    return catalogue_name(&c->cat, catalogue_file(&c->cat, number)->path);
}

static const char *original_of(copied_files *f, uint32_t number)
{
    if (!f->is_known[number] && f->compared < FILES_MAX) {
        char *path = folder_path_join(f->c->path, file_name(f->c, number));
        f->originals[number] = path == NULL ? NULL : find_original(path);
        f->is_known[number] = 1;
        f->compared++;
        free(path);
    }
    return f->originals[number];
}

/* The checkpoint that contains the original of the file; NULL: it cannot be opened. */
static fsdpck_checkpoint *open_other(const copied_files *f, uint32_t number)
{
    fsdpck_checkpoint *other = NULL;
    const char *original = f->originals[number];
    const size_t all = strlen(original), name = strlen(file_name(f->c, number));
    char *path = all > name + 1 ? strndup(original, all - name - 1) : NULL;
    if (path == NULL || open_quietly(checkpoint_open, f->c->ctx, path, &other, NULL) != FSDPCK_OK)
        other = NULL;
    free(path);
    return other;
}

/* The first bytes of a chunk, as many as fit; 0: unknown. */
static size_t read_chunk(const fsdpck_checkpoint *c, uint64_t chunk, char bytes[FIRST_BYTES])
{
    place where = {0};
    if (catalogue_chunk(&c->cat, chunk)->place == LOCATION_EMPTY ||
        c->src.locate(c->src.ctx, chunk, &where, NULL) != FSDPCK_OK || where.stream)
        return 0;
    const uint64_t left = where.record_offset_bytes + where.record_nbytes - where.offset_bytes;
    const size_t n = left < FIRST_BYTES ? (size_t)left : FIRST_BYTES;
    return c->src.read_at(c->src.ctx, where.file, where.offset_bytes, bytes, n, NULL) == FSDPCK_OK
               ? n
               : 0;
}

/* Whether the same number of steps gave another state there, or other steps gave the same state. */
static bool contradicts(const fsdpck_checkpoint *c, const fsdpck_checkpoint *other, uint64_t step,
                        uint64_t state, uint32_t chunk)
{
    char own[FIRST_BYTES], others[FIRST_BYTES];
    const uint64_t tensors[] = {step, state};
    uint32_t found[2];
    for (size_t i = 0; i < 2; i++) {
        const uint32_t name = catalogue_tensor(&c->cat, tensors[i])->name;
        found[i] = catalogue_find(&other->cat, catalogue_name(&c->cat, name),
                                  catalogue_name_nbytes(&c->cat, name));
        if (found[i] == CAT_NONE)
            return false;
    }
    const cat_tensor *a = catalogue_tensor(&c->cat, state),
                     *b = catalogue_tensor(&other->cat, found[1]);
    const int64_t of_own = step_number_of(c, step), of_other = step_number_of(other, found[0]);
    if (a->nchunks != b->nchunks || of_own < 0 || of_other < 0)
        return false;
    const size_t n = read_chunk(c, a->first_chunk + chunk, own);
    if (n == 0 || read_chunk(other, b->first_chunk + chunk, others) != n)
        return false;
    return (of_own == of_other) != (memcmp(own, others, n) == 0);
}

/* step, state: tensors of a parameter. */
static bool is_of_two_saves(copied_files *f, uint64_t step, uint64_t state, uint32_t chunk,
                            fsdpck_error *what)
{
    const catalogue *cat = &f->c->cat;
    const uint32_t a = catalogue_chunk(cat, catalogue_tensor(cat, step)->first_chunk)->file,
                   b = catalogue_chunk(cat, catalogue_tensor(cat, state)->first_chunk + chunk)
                           ->file;
    if (a == b || a >= catalogue_file_count(cat) || b >= catalogue_file_count(cat) ||
        (original_of(f, a) == NULL) == (original_of(f, b) == NULL))
        return false;
    const uint32_t copy = f->originals[a] != NULL ? a : b;
    fsdpck_checkpoint *other = open_other(f, copy);
    const bool is = other != NULL && contradicts(f->c, other, step, state, chunk);
    fsdpck_close(other);
    if (!is)
        return false;
    FAIL_WITH(what, BADINPUT, NUM_STEP,
              ("file is a copy of that of another step, and other files are not"),
              (expected, "steps and state of each parameter of one save"),
              (found, "the same bytes as '%s'", f->originals[copy]),
              (next, "take all files from one save"));
    error_path_in(what, f->c->path, file_name(f->c, copy));
    return true;
}

/* The first parameters have shards in all files. */
static bool search_files(copied_files *f, fsdpck_error *what)
{
    enum { PARAMETERS_MAX = 256 };
    const catalogue *cat = &f->c->cat;
    size_t count = 0;
    for (uint64_t i = 0; i < catalogue_tensor_count(cat) && count < PARAMETERS_MAX; i++) {
        uint32_t state;
        if (!step_files_is_step(cat, i) || catalogue_tensor(cat, i)->nchunks != 1 ||
            (state = step_files_state(cat, i, 0)) == CAT_NONE)
            continue;
        count++;
        for (uint32_t k = 0; k < catalogue_tensor(cat, state)->nchunks; k++)
            if (is_of_two_saves(f, i, state, k, what))
                return true;
    }
    return false;
}

bool copied_file_is_mixed(fsdpck_checkpoint *c, fsdpck_error *what)
{
    const uint64_t files = catalogue_file_count(&c->cat);
    copied_files f = {.c = c,
                      .is_known = calloc(files + 1, 1),
                      .originals = calloc(files + 1, sizeof *f.originals)};
    const bool is = f.is_known != NULL && f.originals != NULL && search_files(&f, what);
    for (uint64_t i = 0; f.originals != NULL && i < files; i++)
        free(f.originals[i]);
    free(f.originals);
    free(f.is_known);
    return is;
}
