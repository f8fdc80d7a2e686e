#include "formats/common/torch_zip_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "formats/common/zip.h"

typedef struct small_record {
    const char *name;
    const char *bytes;
    size_t nbytes;
} small_record;

static const small_record marks[] = {
    {"archive/.format_version", "1", 1},
    {"archive/.storage_alignment", "64", 2},
    {"archive/byteorder", "little", 6},
};
enum { MARK_COUNT = sizeof(marks) / sizeof(marks[0]) };
static const small_record version_mark = {"archive/version", "3\n", 2};
const char torch_zip_pickle_name[] = "archive/data.pkl";

size_t torch_zip_storage_name(uint64_t number, char name[TORCH_STORAGE_NAME_NBYTES])
{
    return (size_t)snprintf(name, TORCH_STORAGE_NAME_NBYTES, "archive/data/%" PRIu64, number);
}

static void put_record(text_buf *out, uint64_t header_at, const char *name, const void *bytes,
                       size_t nbytes)
{
    zip_put_local(out, header_at, name, strlen(name), nbytes);
    text_append(out, bytes, nbytes);
    zip_put_descriptor(out, header_at, crc32_update(0, bytes, nbytes), nbytes);
}

void torch_zip_put_pickle(text_buf *out, const void *pickle, size_t nbytes)
{
    put_record(out, 0, torch_zip_pickle_name, pickle, nbytes);
}

void torch_zip_put_marks(text_buf *out, uint64_t header_at)
{
    const size_t begin = out->nbytes;
    for (size_t i = 0; i < MARK_COUNT; i++)
        put_record(out, header_at + (out->nbytes - begin), marks[i].name, marks[i].bytes,
                   marks[i].nbytes);
}

void torch_zip_put_version(text_buf *out, uint64_t header_at)
{
    put_record(out, header_at, version_mark.name, version_mark.bytes, version_mark.nbytes);
}

static uint64_t put_central(text_buf *out, uint64_t header_at, const char *name, uint64_t nbytes,
                            uint32_t crc)
{
    zip_put_central(out, header_at, name, strlen(name), crc, nbytes);
    return zip_data_offset(header_at, strlen(name), nbytes) + nbytes +
           zip_descriptor_nbytes(header_at, nbytes);
}

uint64_t torch_zip_put_central_head(text_buf *out, uint64_t pickle_nbytes, uint32_t pickle_crc)
{
    uint64_t at = put_central(out, 0, torch_zip_pickle_name, pickle_nbytes, pickle_crc);
    for (size_t i = 0; i < MARK_COUNT; i++)
        at = put_central(out, at, marks[i].name, marks[i].nbytes,
                         crc32_update(0, marks[i].bytes, marks[i].nbytes));
    return at;
}

uint64_t torch_zip_put_central_storage(text_buf *out, uint64_t header_at, uint64_t number,
                                       uint64_t nbytes, uint32_t crc)
{
    char name[TORCH_STORAGE_NAME_NBYTES];
    torch_zip_storage_name(number, name);
    return put_central(out, header_at, name, nbytes, nbytes == 0 ? 0 : crc);
}

uint64_t torch_zip_put_central_end(text_buf *out, size_t entries_at, uint64_t version_at,
                                   uint64_t storage_count)
{
    const uint64_t directory_at =
        put_central(out, version_at, version_mark.name, version_mark.nbytes,
                    crc32_update(0, version_mark.bytes, version_mark.nbytes));
    zip_put_end(out, directory_at, out->nbytes - entries_at, 1 + MARK_COUNT + storage_count + 1);
    return directory_at;
}
