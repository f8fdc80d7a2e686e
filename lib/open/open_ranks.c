/* Opens a checkpoint by several ranks. Each may have only the files of its own host. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "group/remote_folder.h"
#include "io/file_set.h"
#include "open/checkpoint.h"

enum { SEES_FILE, SEES_FOLDER, SEES_NOTHING, SEES };

static fsdpck_status fail_own_file(const char *path, fsdpck_error *err)
{
    return FAIL_WITH(err, IO, GROUP_FILE, ("file is missing on some hosts"), (path, path),
                     (sys_errno, ENOENT));
}

static fsdpck_status sample_file(const char *path, uint64_t nbytes, uint64_t *sample,
                                 fsdpck_error *err)
{
    file_set files = {0};
    uint32_t index;
    fsdpck_status st = file_set_init(&files, NULL, 0, 0, err);
    if (st == FSDPCK_OK)
        st = file_set_add(&files, path, &index, err);
    if (st == FSDPCK_OK)
        st = file_set_sample(&files, index, nbytes, sample, err);
    file_set_release(&files);
    return st;
}

/* One shared file, or an equal copy on each host. */
static fsdpck_status check_one_file(group *g, const char *path, fsdpck_error *err)
{
    uint64_t nbytes = 0, identity = 0, sample = 0;
    path_kind kind;
    bool same;
    fsdpck_status st = path_identify(NULL, path, &kind, &nbytes, &identity, NULL, err);
    RETURN_IF(group_is_same(g, st, GROUP_GOES_ON, identity, &same, err));
    if (same)
        return FSDPCK_OK;
    st = sample_file(path, nbytes, &sample, err);
    st = group_check_same(g, st, GROUP_GOES_ON, sample ^ nbytes, "bytes of this file", err);
    if (st == FSDPCK_BADINPUT)
        error_path(err, path);
    return st;
}

/* A folder that is missing on this host still counts if other hosts have it. */
static fsdpck_status assume_folder(const char *path, probe_input *in, fsdpck_error *err)
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
static fsdpck_status list_all_hosts(probe_input *in, fsdpck_error *err)
{
    free(in->entries);
    in->entries = NULL;
    in->entry_count = 0;
    return probe_list_entries(in, err);
}

/* The folder of this host lists names that are not in the union. */
static fsdpck_status hide_folder(probe_input *in, const char *path, fsdpck_error *err)
{
    probe_release(in);
    return assume_folder(path, in, err);
}

fsdpck_status open_probe_ranks(fsdpck_checkpoint *c, fsdpck_status st, const char *path,
                               const fsdpck_open_options *o, fsdpck_error *err)
{
    const unsigned flags = (o->no_follow ? REMOTE_FOLDER_NO_FOLLOW : 0u) |
                           (o->source_local ? REMOTE_FOLDER_BY_HOST : 0u);
    group *g = c->ctx->group;
    path_kind kind = PATH_ABSENT;
    if (g == NULL)
        return st != FSDPCK_OK ? st : probe_gather(path, &c->probe, err);
    if (st == FSDPCK_OK && path[0] != '\0')
        st = path_probe(NULL, path, &kind, NULL, err);
    const bool absent = st == FSDPCK_OK && kind == PATH_ABSENT && path[0] != '\0';
    if (st == FSDPCK_OK && !absent)
        st = probe_gather(path, &c->probe, err);
    uint64_t sees[SEES] = {0};
    sees[absent ? SEES_NOTHING : c->probe.is_folder ? SEES_FOLDER : SEES_FILE] = 1;
    RETURN_IF(group_sum(g, st, GROUP_GOES_ON, sees, SEES, err));
    if (sees[SEES_FILE] == group_size(g))
        return check_one_file(g, path, err);
    if (sees[SEES_FILE] > 0)
        return fail_own_file(path, err);
    RETURN_IF(remote_folder_new(g, path, &c->probe.dir, flags, &c->remote_files, err));
    if (c->remote_files == NULL)
        return FSDPCK_OK;
    st = absent            ? assume_folder(path, &c->probe, err)
         : o->source_local ? hide_folder(&c->probe, path, err)
                           : FSDPCK_OK;
    c->probe.dir.remote = remote_folder_get_remote(c->remote_files);
    if (st == FSDPCK_OK)
        st = list_all_hosts(&c->probe, err);
    return group_agree(g, st, err);
}

/* ---- folders below ---- */

/* Paths of one rank, as they are below `root`, each with its NUL. An empty one: the search was limited. */
static fsdpck_status encode_paths(const search_result *own, const char *root, text_buf *text,
                                  fsdpck_error *err)
{
    const size_t skip = strlen(root);
    for (size_t i = 0; i < own->count; i++) {
        const char *inside = own->paths[i] + skip;
        text_append(text, inside, strlen(inside) + 1);
    }
    if (own->is_limited)
        text_append(text, "", 1);
    return text_check(text, err);
}

typedef struct union_work {
    const char *root;
    search_result *found;
} union_work;

static fsdpck_status merge_paths(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const union_work *w = ctx;
    const size_t skip = strlen(w->root);
    (void)rank;
    for (uint64_t at = 0; at < nbytes;) {
        const char *inside = (const char *)bytes + at;
        size_t i = 0;
        at += strlen(inside) + 1;
        if (inside[0] == '\0') {
            w->found->is_limited = true;
            continue;
        }
        while (i < w->found->count && strcmp(w->found->paths[i] + skip, inside) != 0)
            i++;
        if (i < w->found->count)
            continue;
        if (i == SEARCH_RESULTS_MAX) {
            w->found->more++;
            continue;
        }
        char *path = malloc(skip + strlen(inside) + 1);
        if (path == NULL)
            return error_set_nomem(err, skip + strlen(inside) + 1);
        memcpy(path, w->root, skip);
        memcpy(path + skip, inside, strlen(inside) + 1);
        w->found->paths[w->found->count++] = path;
    }
    return FSDPCK_OK;
}

fsdpck_status open_search_ranks(fsdpck_checkpoint *c, search_result *found, fsdpck_error *err)
{
    search_result own = {0};
    text_buf text = {.limit_bytes = (uint64_t)1 << 20};
    union_work w = {c->probe.path, found};
    path_kind kind = PATH_ABSENT;
    *found = (search_result){0};
    fsdpck_status st = path_probe(NULL, c->probe.path, &kind, NULL, err);
    if (st == FSDPCK_OK && kind == PATH_FOLDER)
        st = search_folders(c->probe.path, &own, err);
    if (st == FSDPCK_OK)
        st = encode_paths(&own, c->probe.path, &text, err);
    st = group_all_gather(c->ctx->group, st, GROUP_STOPS, text.text, text.nbytes, merge_paths, &w,
                          err);
    if (st != FSDPCK_OK)
        search_result_release(found);
    search_omit_state(found); /* of one rank, beside the weights of another */
    search_result_release(&own);
    text_release(&text);
    return st;
}

/* ---- choice of the reader ---- */

/* With the name of a host before them: files that .metadata names, and a rank has its number for. */
static bool looks_like_dcp(const probe_input *in)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = strchr(in->entries[i], ':');
        if (name != NULL && (strcmp(name, ":.metadata") == 0 || strncmp(name, ":__", 3) == 0))
            return true;
    }
    return false;
}

/* Not yet identified as a checkpoint: it may be in a folder below. */
static bool has_rank_files(const probe_input *in)
{
    static const char *const suffixes[] = {".pt", ".pth", ".bin", ".ckpt"};
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *dot = strrchr(in->entries[i], '.');
        if (dot != NULL && TEXT_IS_IN(dot, strlen(dot), suffixes))
            return true;
    }
    return false;
}

static fsdpck_status check_source_local(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    if (c->format != NULL && c->format->by_content)
        return FSDPCK_OK;
    const bool is_dcp = looks_like_dcp(&c->probe);
    if (c->format == NULL && !is_dcp && !has_rank_files(&c->probe))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, GROUP_LOCAL,
        ("--source-local does not apply to this folder: %s",
         is_dcp ? "its metadata names the files" : "its files are identified by their names"),
        (path, c->probe.path), (expected, "safetensors files, which describe their own contents"),
        (next, is_dcp
                   ? "omit it: the files of all hosts are combined by name"
                   : "omit it, and number the files over all hosts: model_world_size_8_rank_3.pt; "
                     "for other names give --source-rank-pattern"));
}

fsdpck_status open_agree_format(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                fsdpck_error *err)
{
    uint64_t number = 0;
    if (c->remote_files == NULL)
        return FSDPCK_OK;
    while (c->format != NULL && format_readers[number] != c->format)
        number++;
    number = c->format == NULL ? 0 : number + 1;
    RETURN_IF(group_check_same(c->ctx->group, FSDPCK_OK, GROUP_GOES_ON, number, "formats", err));
    return o->source_local ? check_source_local(c, err) : FSDPCK_OK;
}
