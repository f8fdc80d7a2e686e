/* A cancel of a context, through the public calls. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsdpck.h"

/* As fsdpck.h says: later calls are cancelled too. */
Test(cancel, a_cancel_is_permanent)
{
    char path[4096];
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *src = NULL;
    snprintf(path, sizeof path, "%s/torch-2.15.0/dcp-fsdp2", getenv("FIXTURES"));
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &src, NULL), FSDPCK_OK);
    fsdpck_context_cancel(ctx);
    for (unsigned i = 0; i < 2; i++) {
        fsdpck_digests *d = NULL;
        cr_expect_eq(fsdpck_digests_new(ctx, src, NULL, &d, NULL), FSDPCK_CANCELLED);
        cr_expect_null(d);
    }
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}
