#include "sidecars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_NBYTES ((size_t)1 << 20)

/* Whether a name is one that weights, or an index of them, have. */
static bool is_weights(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".pt",     ".pth",       ".bin",
                                           ".ckpt",        ".distcp", ".index.json"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t k = strlen(suffixes[i]);
        if (n > k && strcmp(name + n - k, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* Size of a regular file that is no link; false for anything else. */
static bool is_plain_file(const folder *dir, const char *name, uint64_t *nbytes)
{
    file f = FILE_CLOSED;
    if (file_open_read(&f, dir, name, FILE_NO_FOLLOW, NULL) != FSDPCK_OK)
        return false;
    *nbytes = f.nbytes;
    file_abandon(&f);
    return true;
}

static fsdpck_status add_name(sidecars *s, const char *folder_name, const char *name,
                              fsdpck_error *err)
{
    sidecar *file_of = vec_push(&s->files, err);
    if (file_of == NULL)
        return FSDPCK_LIMIT;
    *file_of = (sidecar){0};
    const size_t nbytes = strlen(folder_name) + strlen(name) + 2;
    file_of->path = malloc(nbytes);
    if (file_of->path == NULL)
        return error_set_nomem(err, nbytes);
    snprintf(file_of->path, nbytes, "%s/%s", folder_name, name);
    return FSDPCK_OK;
}

static const char *name_of(const sidecar *f)
{
    return strrchr(f->path, '/') + 1;
}

static void choose(sidecars *s)
{
    uint64_t all = 0;
    for (size_t i = 0; i < s->files.count; i++) {
        sidecar *f = VEC_AT(&s->files, sidecar, i);
        if (name_of(f)[0] == '.' || is_weights(name_of(f)) || i >= SIDECARS_MOST ||
            !is_plain_file(&s->dir, name_of(f), &f->nbytes))
            continue;
        f->copied = f->nbytes <= SIDECAR_NBYTES_MOST && f->nbytes <= SIDECARS_NBYTES_MOST - all;
        all += f->copied ? f->nbytes : 0;
    }
}

fsdpck_status sidecars_find(sidecars *s, const fsdpck_checkpoint *src, bool copied,
                            fsdpck_error *err)
{
    const char *folder_name = src->cat.origin.side_folder;
    *s = (sidecars){.dir = FOLDER_CLOSED, .files = VEC_OF(sidecar, NULL)};
    if (folder_name[0] == '\0' || !src->probe.is_folder)
        return FSDPCK_OK;
    fsdpck_error local;
    fsdpck_error_init(&local);
    if (folder_open_inside(&s->dir, &src->probe.dir, folder_name, &local) != FSDPCK_OK) {
        log_write(&src->ctx->log, LOG_WARNING, "'%s' is not copied: %s", folder_name,
                  local.message);
        return FSDPCK_OK;
    }
    char **names;
    size_t count;
    RETURN_IF(folder_list(&s->dir, NULL, &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = add_name(s, folder_name, names[i], err);
    free(names);
    if (st == FSDPCK_OK && copied)
        choose(s);
    return st;
}

bool sidecars_has(const sidecars *s, const char *path)
{
    for (size_t i = 0; i < s->files.count; i++) {
        const sidecar *f = VEC_AT(&s->files, const sidecar, i);
        if (f->copied && strcmp(f->path, path) == 0)
            return true;
    }
    return false;
}

fsdpck_status sidecars_add(sidecars *s, output *out, fsdpck_error *err)
{
    for (size_t i = 0; i < s->files.count; i++) {
        sidecar *f = VEC_AT(&s->files, sidecar, i);
        if (f->copied)
            RETURN_IF(output_add(out, f->path, f->nbytes, false, &f->index, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status changed(const char *path, uint64_t expected, uint64_t found, fsdpck_error *err)
{
    const fsdpck_status st =
        error_set(err, FSDPCK_CHANGED, "", "file changed while the checkpoint was read");
    error_path(err, path);
    error_expected(err, "%" PRIu64 " bytes", expected);
    error_found(err, "%" PRIu64 " bytes", found);
    return st;
}

static fsdpck_status copy_file(const sidecars *s, const sidecar *f, output *out, uint8_t *buffer,
                               fsdpck_error *err)
{
    file in = FILE_CLOSED;
    RETURN_IF(file_open_read(&in, &s->dir, name_of(f), FILE_NO_FOLLOW, err));
    fsdpck_status st = FSDPCK_OK;
    if (in.nbytes != f->nbytes)
        st = changed(in.path, f->nbytes, in.nbytes, err);
    for (uint64_t at = 0; st == FSDPCK_OK && at < f->nbytes; at += COPY_NBYTES) {
        const uint64_t n = f->nbytes - at < COPY_NBYTES ? f->nbytes - at : COPY_NBYTES;
        st = file_read_at(&in, at, buffer, n, err);
        if (st == FSDPCK_OK)
            st = output_write_at(out, f->index, at, buffer, n, err);
    }
    if (st == FSDPCK_OK)
        st = file_check_unchanged(&in, err);
    file_abandon(&in);
    return st;
}

fsdpck_status sidecars_copy(const sidecars *s, output *out, const cancel_token *cancel,
                            fsdpck_error *err)
{
    uint8_t *buffer = malloc(COPY_NBYTES);
    if (buffer == NULL)
        return error_set_nomem(err, COPY_NBYTES);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < s->files.count; i++) {
        const sidecar *f = VEC_AT(&s->files, const sidecar, i);
        if (!f->copied)
            continue;
        st = cancel_check(cancel, err);
        if (st == FSDPCK_OK)
            st = copy_file(s, f, out, buffer, err);
    }
    free(buffer);
    return st;
}

void sidecars_release(sidecars *s)
{
    for (size_t i = 0; i < s->files.count; i++)
        free(VEC_AT(&s->files, sidecar, i)->path);
    vec_release(&s->files);
    folder_close(&s->dir);
}
