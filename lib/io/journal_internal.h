/* journal_internal.h: the header in the file, for journal.c and journal_write.c. */
#ifndef FSDPCK_IO_JOURNAL_INTERNAL_H
#define FSDPCK_IO_JOURNAL_INTERNAL_H

#include "io/journal.h"

/* magic, version, header size, number of plan hashes, program, partial, rank, ranks, 0, numbers of sources and outputs */
enum { MAGIC_BYTES = 8, FIXED_BYTES = 72, SOURCE_BYTES = 16, CRC_BYTES = 8 };

extern const uint8_t journal_magic[MAGIC_BYTES];

#endif
