#include "formats/dcp/dcp_megatron.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "formats/common/step_folder.h"

enum { CONFIG_NBYTES_MAX = 65536, ARRAYS_TRIED = 64 };

#define TORCH_DIST "torch_dist"

static bool is_folder(const probe_input *in, const char *name)
{
    path_kind kind;
    return path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_003": tensor, pipeline and expert rank. */
static bool is_rank_folder(const char *name)
{
    static const char prefix[] = "mp_rank_";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *at = name + sizeof prefix - 1;
    for (;;) {
        const size_t digits = strspn(at, "0123456789");
        at += digits;
        if (digits == 0 || *at == '\0')
            return digits > 0;
        if (*at++ != '_')
            return false;
    }
}

static size_t count_rank_folders(const probe_input *in)
{
    size_t count = 0;
    for (size_t i = 0; i < in->entry_count; i++)
        count += is_rank_folder(in->entries[i]) && is_folder(in, in->entries[i]);
    return count;
}

/* The value of sharded_backend in metadata.json; "" if there is none. */
static void read_backend(const probe_input *in, char *backend, size_t capacity)
{
    char *text = NULL;
    size_t nbytes;
    json_reader r;
    json_token t;
    backend[0] = '\0';
    if (!probe_has_entry(in, DCP_MEGATRON_CONFIG) ||
        file_read_whole(&in->dir, DCP_MEGATRON_CONFIG, CONFIG_NBYTES_MAX, &text, &nbytes, NULL) !=
            FSDPCK_OK)
        return;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, NULL);
    while (st == FSDPCK_OK && (st = json_next(&r, &t, NULL)) == FSDPCK_OK && t.kind == JSON_KEY) {
        const bool is_backend = json_is(&t, "sharded_backend");
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK && is_backend && t.kind == JSON_STRING)
            escape_text(backend, capacity, t.text, t.nbytes);
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
    free(text);
}

/* A folder for each tensor. */
static bool has_zarr(const probe_input *in)
{
    size_t tried = 0;
    for (size_t i = 0; i < in->entry_count && tried < ARRAYS_TRIED; i++) {
        char name[512];
        path_kind kind;
        const int n = snprintf(name, sizeof name, "%s/.zarray", in->entries[i]);
        if (n < 0 || (size_t)n >= sizeof name || !is_folder(in, in->entries[i]))
            continue;
        tried++;
        if (path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE)
            return true;
    }
    return false;
}

/* A file common.pt of another origin has another kind of folder. */
static bool is_save_folder(const probe_input *in)
{
    static const char prefix[] = "iter_";
    char name[256];
    path_kind kind;
    path_component(in->path, 0, name, sizeof name);
    if (probe_has_entry(in, DCP_MEGATRON_CONFIG) || strcmp(name, "release") == 0 ||
        strcmp(name, "dist_ckpt") == 0)
        return true;
    if (strcmp(name, "weights") == 0) /* NeMo */
        return path_probe(&in->dir, "../context", &kind, NULL, NULL) == FSDPCK_OK &&
               kind == PATH_FOLDER;
    const char *digits = name + sizeof prefix - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && digits[0] != '\0' &&
           digits[strspn(digits, "0123456789")] == '\0';
}

dcp_megatron dcp_megatron_probe(const probe_input *in)
{
    char backend[64];
    if (!in->is_folder || probe_has_entry(in, ".metadata"))
        return DCP_MEGATRON_NONE;
    /* The file of a single rank is read by itself. */
    if (count_rank_folders(in) > 1)
        return DCP_MEGATRON_RANKS;
    if (!probe_has_entry(in, DCP_MEGATRON_COMMON))
        return DCP_MEGATRON_NONE;
    read_backend(in, backend, sizeof backend);
    if ((backend[0] != '\0' && strcmp(backend, TORCH_DIST) != 0) || has_zarr(in))
        return DCP_MEGATRON_OTHER;
    return is_save_folder(in) ? DCP_MEGATRON_UNFINISHED : DCP_MEGATRON_NONE;
}

fsdpck_status dcp_megatron_check(const probe_input *in, fsdpck_error *err)
{
    static const char convert[] =
        "load it with Megatron-LM and save it with --ckpt-convert-format torch_dist";
    char backend[64];
    switch (dcp_megatron_probe(in)) {
    case DCP_MEGATRON_RANKS:
        return FAIL_WITH(err, UNSUPPORTED, MEGATRON_FORMAT,
                         ("folder of Megatron-LM's format 'torch', with a file for each "
                          "model-parallel rank, which fsdpck does not merge"),
                         (path, in->path), (expected, "format " TORCH_DIST),
                         (found, "%zu folder%s mp_rank_*", count_rank_folders(in),
                          text_plural(count_rank_folders(in))),
                         (next, "%s", convert));
    case DCP_MEGATRON_OTHER:
        read_backend(in, backend, sizeof backend);
        return FAIL_WITH(err, UNSUPPORTED, MEGATRON_FORMAT,
                         ("folder of Megatron-Core in format '%s', which fsdpck does not read",
                          backend[0] == '\0' ? "zarr" : backend),
                         (path, in->path), (expected, "format " TORCH_DIST), (next, "%s", convert));
    case DCP_MEGATRON_UNFINISHED:
        return FAIL_WITH(
            err, BADINPUT, SAVE_INCOMPLETE,
            ("save did not complete: the folder has no '.metadata'"), (path, in->path),
            (expected, "'.metadata', which Megatron-Core writes after all tensors"),
            (found, "'" DCP_MEGATRON_COMMON "', which it writes first"),
            (next, "if the save was complete, copy '.metadata' (a hidden file) from where it was "
                   "written; otherwise use an earlier checkpoint: fsdpck latest ROOT finds it"));
    default:
        return FSDPCK_OK;
    }
}
