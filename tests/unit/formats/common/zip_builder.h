/* zip_builder.h: zips in memory for tests, with every field open to mistakes.
 *
 *     zip_builder z;
 *     zip_builder_begin(&z);
 *     zip_builder_add(&z, "archive/data.pkl", bytes, nbytes);
 *     zip_builder_end(&z);
 *     zip_input in = zip_builder_input(&z);
 *     zip_builder_release(&z);
 */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_COMMON_ZIP_BUILDER_H
#define FSDPCK_TESTS_UNIT_FORMATS_COMMON_ZIP_BUILDER_H

#include "formats/common/zip.h"

enum { ZIP_BUILDER_ENTRIES = 16 };

typedef struct zip_builder {
    text_buf bytes;
    text_buf directory;
    size_t header_at[ZIP_BUILDER_ENTRIES];
    size_t data_at[ZIP_BUILDER_ENTRIES];
    size_t central_at[ZIP_BUILDER_ENTRIES]; /* in the whole file, once ended */
    size_t count;
    size_t directory_at;
    unsigned nreads;
} zip_builder;

void zip_builder_begin(zip_builder *z);
/* A stored record, as torch writes it. */
void zip_builder_add(zip_builder *z, const char *name, const void *bytes, size_t nbytes);
/* A deflated one; claimed_nbytes is the size in its headers. */
void zip_builder_add_deflated(zip_builder *z, const char *name, const void *bytes, size_t nbytes,
                              size_t claimed_nbytes);
void zip_builder_end(zip_builder *z);
zip_input zip_builder_input(zip_builder *z);
uint8_t *zip_builder_at(zip_builder *z, size_t offset);
/* Puts nbytes of filling in at an offset; nothing else is mended. */
void zip_builder_insert(zip_builder *z, size_t offset, size_t nbytes, uint8_t with);
void zip_builder_release(zip_builder *z);

#endif
