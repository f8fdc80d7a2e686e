/* consumer.c: what a program of somebody else does first. */
#include <fsdpck.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    fsdpck_error err;

    fsdpck_error_init(&err);
    if (err.rank != -1 || strcmp(fsdpck_status_name(FSDPCK_BADINPUT), "bad input") != 0) {
        printf("unexpected name '%s'\n", fsdpck_status_name(FSDPCK_BADINPUT));
        return 1;
    }
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *src;
    const fsdpck_status st = fsdpck_open(ctx, "/nonexistent", NULL, &src, &err);
    if (st != FSDPCK_IO || src != NULL || fsdpck_context_world_size(ctx) != 1) {
        printf("unexpected status '%s'\n", fsdpck_status_name(st));
        return 1;
    }
    fsdpck_context_free(ctx);
    return 0;
}
