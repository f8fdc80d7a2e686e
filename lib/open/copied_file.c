#include "open/copied_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/checkpoint.h"

enum { BLOCK_BYTES = 1 << 16, STEPS_MAX = 256 };

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

static bool has_same_bytes(const file *a, const file *b)
{
    char *one = malloc(BLOCK_BYTES), *other = malloc(BLOCK_BYTES);
    bool is_same = a->nbytes == b->nbytes && one != NULL && other != NULL;
    for (uint64_t at = 0; is_same && at < a->nbytes; at += BLOCK_BYTES) {
        const uint64_t left = a->nbytes - at, n = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        is_same = file_read_at(a, at, one, n, NULL) == FSDPCK_OK &&
                  file_read_at(b, at, other, n, NULL) == FSDPCK_OK && memcmp(one, other, n) == 0;
    }
    free(one);
    free(other);
    return is_same;
}

static bool is_same_file(const file *f, const char *path)
{
    path_kind kind;
    uint64_t nbytes;
    file other;
    if (path_probe(NULL, path, &kind, &nbytes, NULL) != FSDPCK_OK || kind != PATH_FILE ||
        nbytes != f->nbytes || file_open_read(&other, NULL, path, 0, NULL) != FSDPCK_OK)
        return false;
    const bool is_same = has_same_bytes(f, &other);
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

char *copied_file_find(const char *path)
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
