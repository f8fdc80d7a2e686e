/* Folders of other programs' formats, by the names in them, so that a message can name what they are. */
#include "open/foreign_folders.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { FOLDERS_TRIED = 64 };

static const foreign_kind orbax = {
    "of orbax (JAX)", "export the model in Hugging Face's format with the program that trained it"};
static const foreign_kind ocdbt = {
    "of tensorstore (OCDBT)",
    "export the model in Hugging Face's format with the program that trained it"};
static const foreign_kind zarr = {
    "of zarr arrays", "export the model in Hugging Face's format with the program that trained it"};
static const foreign_kind colossal = {
    "of Colossal-AI, with a file for each pipeline stage and shard",
    "save it with Colossal-AI and use_safetensors=True, which gives a Hugging Face folder"};
static const foreign_kind vescale = {"of veScale, with an optimizer folder for each pipeline stage",
                                     "give the folder 'model' in it, or one of the folders in "
                                     "'optimizer', which are read one by one"};

static const foreign_kind nanotron = {
    "of nanotron, with a safetensors file for each parameter and rank",
    "convert it to a Hugging Face folder with nanotron's examples/llama/convert_nanotron_to_hf.py"};

static const foreign_kind compressed = {
    "in compressed files, as Composer writes them",
    "decompress them first, by the end of the name: gzip -dk, zstd -d, xz -dk, bzip2 -dk, lz4 -d "
    "or lzop -d"};

static bool has_kind(const probe_input *in, const char *folder_name, const char *name,
                     path_kind expected)
{
    char path[512];
    path_kind kind;
    const int n = snprintf(path, sizeof path, "%s/%s", folder_name, name);
    return n > 0 && (size_t)n < sizeof path &&
           path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == expected;
}

static bool has_file(const probe_input *in, const char *folder_name, const char *name)
{
    return has_kind(in, folder_name, name, PATH_FILE);
}

static bool any_matches(const probe_input *in, const char *glob)
{
    for (size_t i = 0; i < in->entry_count; i++)
        if (fnmatch(glob, in->entries[i], 0) == 0)
            return true;
    return false;
}

/* Versions 2 and 3, an array in each folder; or the folder is an array or a group itself. */
static bool is_zarr(const probe_input *in)
{
    static const char *const names[] = {".zarray", "zarr.json", ".zgroup"};
    size_t tried = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (probe_has_entry(in, names[k]))
            return true;
    for (size_t i = 0; i < in->entry_count && tried < FOLDERS_TRIED; i++) {
        path_kind kind;
        if (path_probe(&in->dir, in->entries[i], &kind, NULL, NULL) != FSDPCK_OK ||
            kind != PATH_FOLDER)
            continue;
        tried++;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (has_file(in, in->entries[i], names[k]))
                return true;
    }
    return false;
}

/* Each module is a folder, and the modules of a pipeline stage are in 'pp_block'. The folder of a step contains
 * model/model, that of the model contains model. */
static bool is_nanotron(const probe_input *in)
{
    static const char *const above[] = {"model/model", "model", "."};
    static const char *const blocks[] = {"token_position_embeddings/pp_block",
                                         "final_layer_norm/pp_block", "decoder/0/pp_block"};
    for (size_t i = 0; i < sizeof above / sizeof *above; i++)
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
            if (has_kind(in, above[i], blocks[k], PATH_FOLDER))
                return true;
    return false;
}

const foreign_kind *foreign_folder_kind(const probe_input *in)
{
    static const char stage[] =
        "-stage-[0-9][0-9][0-9][0-9][0-9]-shard-[0-9][0-9][0-9][0-9][0-9].bin";
    char glob[128];
    if (!in->is_folder)
        return NULL;
    if (probe_has_entry(in, "_CHECKPOINT_METADATA") ||
        (probe_has_entry(in, "_METADATA") && probe_has_entry(in, "_sharding")))
        return &orbax;
    if (probe_has_entry(in, "manifest.ocdbt"))
        return &ocdbt;
    snprintf(glob, sizeof glob, "*%s", stage);
    if (any_matches(in, glob) || probe_has_entry(in, "pytorch_optim.bin.index.json"))
        return &colossal;
    if (has_file(in, "model", ".metadata") && has_file(in, "optimizer/pp_0", ".metadata"))
        return &vescale;
    if (is_nanotron(in))
        return &nanotron;
    return is_zarr(in) ? &zarr : NULL;
}

fsdpck_status foreign_folder_fail(const foreign_kind *kind, const char *path, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                     ("checkpoint %s, which fsdpck does not read", kind->title), (path, path),
                     (next, "%s", kind->next));
}

fsdpck_status foreign_folder_check(const probe_input *in, fsdpck_error *err)
{
    const foreign_kind *kind = foreign_folder_kind(in);
    return kind == NULL ? FSDPCK_OK : foreign_folder_fail(kind, in->path, err);
}

fsdpck_status foreign_folder_check_compressed(const probe_input *in, fsdpck_error *err)
{
    static const char *const globs[] = {"*.pt.bz2", "*.pt.gz", "*.pt.lz4", "*.pt.lzma",
                                        "*.pt.lzo", "*.pt.xz", "*.pt.zst"};
    for (size_t i = 0; in->is_folder && i < sizeof globs / sizeof *globs; i++)
        if (any_matches(in, globs[i]))
            return foreign_folder_fail(&compressed, in->path, err);
    return FSDPCK_OK;
}
