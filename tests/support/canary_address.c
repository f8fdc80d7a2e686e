/* canary_address.c: three defects that the address configuration must report. The
 * sizes come from argc so that no compiler sees the defect in advance. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const size_t nbytes = (size_t)argc * 8;
    char *volatile block = malloc(nbytes);

    if (argc != 2 || block == NULL)
        return 0;
    memset(block, 0, nbytes);
    if (strcmp(argv[1], "overflow") == 0)
        block[nbytes] = 1;
    if (strcmp(argv[1], "undefined") == 0)
        printf("%d\n", INT_MAX - 1 + argc);
    if (strcmp(argv[1], "leak") == 0)
        block = NULL;
    free(block);
    return 0;
}
