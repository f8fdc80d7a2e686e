#include "formats/hdf5/hdf5_superblock.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"

static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

/* Bytes read of a superblock: all versions fit. */
#define SUPER_NBYTES 96u
/* Marks of version 3 (and later ones of 1.10): written to now, or as a single writer. */
#define FLAG_WRITE 1u
#define FLAG_SWMR  4u

bool hdf5_superblock_find(const file *f, uint64_t *at)
{
    uint8_t head[8];
    for (*at = 0; checked_range(*at, sizeof head, f->nbytes); *at = *at == 0 ? 512 : 2 * *at)
        if (file_read_at(f, *at, head, sizeof head, NULL) == FSDPCK_OK &&
            memcmp(head, signature, sizeof head) == 0)
            return true;
    return false;
}

static fsdpck_status cut_short(const file *f, uint64_t wanted, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, FILE_SHORT, ("HDF5 file is truncated"),
                     (expected, "%" PRIu64 " bytes", wanted),
                     (found, "%" PRIu64 " bytes", f->nbytes));
}

static fsdpck_status bad_super(uint64_t at, fsdpck_status status, const char *what, unsigned found,
                               fsdpck_error *err)
{
    return FAIL_AS(err, status, FSDPCK_FINDING_H5_SUPER, ("HDF5 superblock %s", what), (offset, at),
                   (found, "%u", found));
}

static uint64_t load_address(const uint8_t *p, unsigned nbytes)
{
    return nbytes == 8 ? load_le64(p) : nbytes == 4 ? load_le32(p) : load_le16(p);
}

fsdpck_status hdf5_superblock_read(const file *f, hdf5_superblock *super, fsdpck_error *err)
{
    uint8_t b[SUPER_NBYTES] = {0};
    memset(super, 0, sizeof *super);
    if (!hdf5_superblock_find(f, &super->at))
        return FAIL(err, BADINPUT, H5_SUPER, "no HDF5 signature in the file");
    const uint64_t left = f->nbytes - super->at;
    RETURN_IF(file_read_at(f, super->at, b, left < SUPER_NBYTES ? left : SUPER_NBYTES, err));
    super->version = b[8];
    if (left < 9)
        return cut_short(f, super->at + 48, err);
    if (super->version > 3)
        return bad_super(super->at, FSDPCK_UNSUPPORTED, "has an unknown version", super->version,
                         err);
    const unsigned size = super->version < 2 ? b[13] : b[9];
    if (left > 13 && size != 2 && size != 4 && size != 8)
        return bad_super(super->at, FSDPCK_BADINPUT, "has an unsupported address size", size, err);
    const unsigned base_at = super->version == 0 ? 24 : super->version == 1 ? 28 : 12;
    const unsigned end_at = base_at + 2 * size;
    if (left < end_at + size)
        return cut_short(f, super->at + end_at + size, err);
    if (super->version == 3 && (b[11] & (FLAG_WRITE | FLAG_SWMR)))
        return FAIL_WITH(err, BADINPUT, H5_OPEN,
                         ("HDF5 file was not closed by the program that wrote it"),
                         (offset, super->at + 11),
                         (next, "wait for its writer; if the writer has ended, clear the file's "
                                "open flag with h5clear -s: data not yet written is lost"));
    /* The end is relative to the base, which differs in a moved file. */
    uint64_t nbytes;
    if (!checked_sub(load_address(b + end_at, size), load_address(b + base_at, size), &nbytes) ||
        !checked_add(super->at, nbytes, &super->end_bytes))
        return bad_super(super->at, FSDPCK_BADINPUT, "has an end before its start", 0, err);
    if (super->end_bytes > f->nbytes)
        return cut_short(f, super->end_bytes, err);
    return FSDPCK_OK;
}
