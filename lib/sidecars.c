#include "sidecars.h"

#include <stdlib.h>
#include <string.h>

#define SIDECAR_NBYTES_MAX ((uint64_t)64 << 20)

/* Folders that a trainer keeps beside its rank files (verl). */
static const char *const folders[] = {"huggingface"};

static fsdpck_status add_file(run *r, const char *path, fsdpck_error *err)
{
    const folder *dir = &r->src->probe.dir;
    path_kind kind;
    uint64_t nbytes;
    RETURN_IF(path_probe(dir, path, &kind, &nbytes, err));
    if (kind != PATH_FILE)
        return FSDPCK_OK;
    if (nbytes > SIDECAR_NBYTES_MAX) {
        log_write(&r->ctx->log, LOG_WARNING, "not copied, too large: '%s'", path);
        return FSDPCK_OK;
    }
    char *text = NULL;
    size_t got = 0;
    uint32_t index;
    RETURN_IF(file_read_whole(dir, path, SIDECAR_NBYTES_MAX, &text, &got, err));
    fsdpck_status st =
        catalogue_add_file(&r->to.cat, path, strlen(path), got, CAT_NONE, &index, err);
    if (st == FSDPCK_OK && got > 0)
        st = target_add_literal(&r->to, index, 0, text, got, err);
    free(text);
    return st;
}

static fsdpck_status add_folder(run *r, const char *name, fsdpck_error *err)
{
    path_kind kind;
    RETURN_IF(path_probe(&r->src->probe.dir, name, &kind, NULL, err));
    if (kind != PATH_FOLDER)
        return FSDPCK_OK;
    char **names = NULL;
    size_t count = 0;
    RETURN_IF(folder_list(&r->src->probe.dir, name, &names, &count, err));
    text_buf path = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        path.nbytes = 0;
        text_printf(&path, "%s/%s", name, names[i]);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = add_file(r, path.text, err);
    }
    text_release(&path);
    free(names);
    return st;
}

fsdpck_status sidecars_add(run *r, fsdpck_error *err)
{
    const bool same_kind = r->sharded && r->writer->every_rank && r->to.cat.origin.trainer[0] != '\0';
    for (size_t i = 0; same_kind && i < sizeof folders / sizeof folders[0]; i++)
        RETURN_IF(add_folder(r, folders[i], err));
    return FSDPCK_OK;
}
