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
    return 0;
}
