#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/format.h"
#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_superblock.h"
#include "formats/pt/pt.h"
#include "formats/safetensors/hf_keras.h"
#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st.h"

/* The order of detection: formats with a unique file name come first. */
const format_reader *const format_readers[] = {
    &dcp_reader,
    &dcp_safetensors_reader,
    &hf_reader,
    &safetensors_reader,
    &hdf5_reader,
    &deepspeed_reader,
    &deepspeed_universal_reader,
    &pt_ranks_reader,
    &pt_reader,
    &hf_bin_reader,
    NULL,
};

const format_writer *const format_writers[] = {
    &safetensors_writer,     &hf_writer,    &pt_writer,   &dcp_writer,  &pt_ranks_writer,
    &dcp_safetensors_writer, &fsdp1_writer, &hdf5_writer, &peft_writer, NULL,
};

const format_reader *const format_reader_of_pattern = &pt_ranks_reader;
const format_writer *const format_writer_of_whole = &hf_writer;
const format_writer *const format_writer_of_shards = &dcp_writer;
const format_writer *const format_writer_of_adapter = &peft_writer;

const format_reader *format_reader_named(const char *name)
{
    for (size_t i = 0; format_readers[i] != NULL; i++)
        if (strcmp(format_readers[i]->name, name) == 0)
            return format_readers[i];
    return NULL;
}

const format_writer *format_writer_named(const char *name)
{
    for (size_t i = 0; format_writers[i] != NULL; i++)
        if (strcmp(format_writers[i]->name, name) == 0)
            return format_writers[i];
    return NULL;
}

bool format_is_foreign(const probe_input *in)
{
    return in->is_folder ? ranks_are_foreign(in) : torch_is_foreign(in->head, in->head_nbytes);
}

const char *format_foreign_next(const probe_input *in)
{
    const char *next = in->is_folder ? NULL : torch_container_next(in->head, in->head_nbytes);
    return next != NULL ? next
                        : "fsdpck-formats(5) lists the formats; a DCP folder contains '.metadata'";
}

bool format_is_rank_file(const char *name, bool *known)
{
    if (deepspeed_name_has_rank(name)) {
        *known = true;
        return true;
    }
    return ranks_name_has_rank(name, known);
}

bool format_is_keras_shard(const char *name)
{
    return hf_keras_is_shard(name);
}

bool format_is_hdf5_cut(const file *f, fsdpck_error *why)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    hdf5_superblock super;
    if (hdf5_superblock_read(f, &super, &what) == FSDPCK_OK ||
        what.finding != FSDPCK_FINDING_FILE_SHORT)
        return false;
    *why = what;
    return true;
}

bool format_is_safetensors_rank(const char *name)
{
    uint32_t rank;
    return shard_name_has_rank(name, &rank);
}

bool format_is_shard_of_rank(const char *name)
{
    shard_name parts;
    return shard_name_parse(name, &parts) && parts.rank_number > 0;
}

bool format_index_name(const char *name, char *index, size_t capacity)
{
    return shard_name_index(name, index, capacity);
}

bool format_numbered_name(const char *name, uint64_t number, char *other, size_t capacity)
{
    enum { DIGITS = 5 };
    shard_name parts;
    if (!shard_name_parse(name, &parts) && !shard_name_parse_as(name, ".bin", &parts))
        return false;
    const int n = snprintf(other, capacity, "%.*s%0*" PRIu64 "%s", (int)parts.number_at, name,
                           DIGITS, number, name + parts.number_at + DIGITS);
    return n > 0 && (size_t)n < capacity && (size_t)n == strlen(name);
}

uint64_t format_file_count(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".bin", ".pt",  ".pth",
                                           ".ckpt",        ".h5",  ".hdf5"};
    shard_name parts;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (shard_name_parse_as(name, suffixes[i], &parts))
            return parts.file_count;
    return ranks_name_world_size(name);
}
