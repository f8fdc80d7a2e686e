/* digest_print.h: output of `fsdpck digest`, on stdout. Each returns the exit code. */
#ifndef FSDPCK_CLI_DIGEST_PRINT_H
#define FSDPCK_CLI_DIGEST_PRINT_H

#include "command_options.h"

/* The SHA-256 of each file, in the format of sha256sum. */
int digest_print_files(const cli *c, const fsdpck_info *info, const fsdpck_files *files);
/* Prints nothing with -q and --manifest. */
int digest_print_text(const cli *c, const command_request *r, const fsdpck_digests *d);
/* info: of the source. */
int digest_print_json(const cli *c, const command_request *r, const fsdpck_info *info,
                      const fsdpck_digests *d);
/* Compares with a list: 0 if all match, else 1. */
int digest_print_check(const cli *c, const command_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, const char *list, size_t nbytes);

#endif
