/* Opening by several ranks, of which each may see only the files of its own host. */
#include <stdlib.h>
#include <string.h>

#include "exec/group_view.h"
#include "transform.h"

enum { SEES_FILE, SEES_FOLDER, SEES_NOTHING, SEES };

static fsdpck_status refuse_file(const char *path, fsdpck_error *err)
{
    error_set(err, FSDPCK_IO, "", "not every host has this file");
    error_path(err, path);
    error_next(err, "put it where all see it; of a folder each host may have its own files");
    return FSDPCK_IO;
}

/* A folder that is not here is one all the same where others have it. */
static fsdpck_status stand_for_folder(const char *path, probe_input *in, fsdpck_error *err)
{
    size_t nbytes = strlen(path);
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    memset(in, 0, sizeof *in);
    in->dir = FOLDER_CLOSED;
    in->path = strndup(path, nbytes);
    in->is_folder = true;
    in->dir.path = strndup(path, nbytes);
    return in->path != NULL && in->dir.path != NULL ? FSDPCK_OK : error_set_nomem(err, nbytes);
}

/* The names of all hosts. */
static fsdpck_status list_again(probe_input *in, fsdpck_error *err)
{
    free(in->entries);
    in->entries = NULL;
    in->entry_count = 0;
    return folder_list(&in->dir, ".", &in->entries, &in->entry_count, err);
}

fsdpck_status transform_probe(fsdpck_checkpoint *c, const char *path, fsdpck_error *err)
{
    group *g = c->ctx->group;
    path_kind kind = PATH_ABSENT;
    if (g == NULL)
        return probe_gather(path, &c->probe, err);
    fsdpck_status st = path[0] == '\0' ? FSDPCK_OK : path_probe(NULL, path, &kind, NULL, err);
    const bool absent = st == FSDPCK_OK && kind == PATH_ABSENT && path[0] != '\0';
    if (st == FSDPCK_OK && !absent)
        st = probe_gather(path, &c->probe, err);
    RETURN_IF(group_settle(g, st, true, err));
    uint64_t sees[SEES] = {0};
    sees[absent ? SEES_NOTHING : c->probe.is_folder ? SEES_FOLDER : SEES_FILE] = 1;
    RETURN_IF(group_sum(g, sees, SEES, err));
    if (sees[SEES_FILE] == group_size(g))
        return FSDPCK_OK;
    if (sees[SEES_FILE] > 0)
        return refuse_file(path, err);
    RETURN_IF(group_view_new(g, path, &c->probe.dir, &c->view_of_ranks, err));
    if (c->view_of_ranks == NULL)
        return FSDPCK_OK;
    st = absent ? stand_for_folder(path, &c->probe, err) : FSDPCK_OK;
    c->probe.dir.remote = group_view_remote(c->view_of_ranks);
    if (st == FSDPCK_OK)
        st = list_again(&c->probe, err);
    return group_agree(g, st, err);
}
