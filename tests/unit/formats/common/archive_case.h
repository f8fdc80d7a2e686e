/* archive_case.h: the reader of torch's archives on an archive that a test has built. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_COMMON_ARCHIVE_CASE_H
#define FSDPCK_TESTS_UNIT_FORMATS_COMMON_ARCHIVE_CASE_H

#include <criterion/criterion.h>

#include "formats/common/torch_archive.h"
#include "zip_builder.h"

typedef struct opened {
    budget owner;
    value_pool pool;
    torch_archive a;
    fsdpck_error err;
} opened;

static inline fsdpck_status open_made(opened *o, zip_builder *z, bool opaque)
{
    const zip_input in = zip_builder_input(z);

    budget_init(&o->owner, 64 << 20, "archive", NULL);
    value_pool_init(&o->pool, &o->owner);
    fsdpck_error_init(&o->err);
    return torch_archive_open(&in, &o->owner, &o->pool, opaque, &o->a, &o->err);
}

static inline void close_made(opened *o)
{
    torch_archive_release(&o->a);
    value_pool_release(&o->pool);
    cr_expect_eq(o->owner.used_bytes, 0);
}

#endif
