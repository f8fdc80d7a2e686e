/* zip_make.h: zips in memory for tests, with every field open to mistakes.
 *
 *     zip_made z;
 *     zip_made_begin(&z);
 *     zip_made_add(&z, "archive/data.pkl", bytes, nbytes);
 *     zip_made_end(&z);
 *     zip_input in = zip_made_input(&z);
 *     zip_made_release(&z);
 */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_COMMON_ZIP_MAKE_H
#define FSDPCK_TESTS_UNIT_FORMATS_COMMON_ZIP_MAKE_H

#include "formats/common/zip.h"

enum { ZIP_MADE_ENTRIES = 16 };

typedef struct zip_made {
    text_buf bytes;
    text_buf directory;
    size_t header_at[ZIP_MADE_ENTRIES];
    size_t data_at[ZIP_MADE_ENTRIES];
    size_t central_at[ZIP_MADE_ENTRIES]; /* in the whole file, once ended */
    size_t count;
    size_t directory_at;
    unsigned nreads;
} zip_made;

void zip_made_begin(zip_made *z);
/* A stored record, as torch writes it. */
void zip_made_add(zip_made *z, const char *name, const void *bytes, size_t nbytes);
/* A deflated one; claimed_nbytes is what headers say of its size. */
void zip_made_add_deflated(zip_made *z, const char *name, const void *bytes, size_t nbytes,
                           size_t claimed_nbytes);
void zip_made_end(zip_made *z);
zip_input zip_made_input(zip_made *z);
uint8_t *zip_made_at(zip_made *z, size_t offset);
/* Puts nbytes of filling in at an offset; nothing else is mended. */
void zip_made_insert(zip_made *z, size_t offset, size_t nbytes, uint8_t with);
void zip_made_release(zip_made *z);

#endif
