/* torch_serialization_id.h: the serialization id that torch 2.1 and newer put into a zip.
 *
 * .data/serialization_id is 40 digits: 20 of a hash of the records' names, which depends on the C++
 * library, and 20 of one over the CRCs of the records before it, in the order in which they were
 * written; empty records do not count (PyTorchStreamWriter::writeSerializationId, the same in 2.1
 * to 2.15). It reveals a record that was replaced together with its CRC.
 *
 *     uint64_t hash = 0;
 *     for each record before it that is not empty: hash = torch_serialization_id_add(hash, crc32);
 *     if (torch_serialization_id_differs(text, nbytes, hash)) ...
 */
#ifndef FSDPCK_FORMATS_COMMON_TORCH_SERIALIZATION_ID_H
#define FSDPCK_FORMATS_COMMON_TORCH_SERIALIZATION_ID_H

#include "formats/common/zip.h"

#define TORCH_SERIALIZATION_ID_RECORD ".data/serialization_id"
#define TORCH_SERIALIZATION_ID_NBYTES 40u

static inline uint64_t torch_serialization_id_add(uint64_t hash, uint32_t crc32)
{
    return hash ^ (crc32 + UINT64_C(0x9e3779b9) + (hash << 6) + (hash >> 2));
}

/* Also false if torch does not write such a text. */
bool torch_serialization_id_differs(const uint8_t *text, size_t nbytes, uint64_t hash);

/* PT-SERID, BADINPUT: the archive has such a record, and it does not match the CRCs. OK without the
 * record or CRCs, or if the record cannot be read. */
fsdpck_status torch_serialization_id_check(const zip_archive *z,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
