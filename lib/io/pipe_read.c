#include "io/pipe_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_NBYTES ((size_t)64 << 10)

bool pipe_is_at(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

static fsdpck_status read_all(int fd, const char *path, uint64_t limit_bytes, text_buf *out,
                              fsdpck_error *err)
{
    char *step = malloc(STEP_NBYTES);
    if (step == NULL)
        return error_set_nomem(err, STEP_NBYTES);
    fsdpck_status st = FSDPCK_OK;
    ssize_t n = 1;
    while (st == FSDPCK_OK && n > 0) {
        n = read(fd, step, STEP_NBYTES);
        if (n < 0)
            st = error_set_errno(err, errno, "read", path);
        else if ((uint64_t)n > limit_bytes - out->nbytes)
            st = FAIL_WITH(err, LIMIT, LIMIT_SIZE, ("pipe has more bytes than its limit"),
                           (path, path), (expected, "at most %" PRIu64 " bytes", limit_bytes));
        else if (n > 0)
            text_append(out, step, (size_t)n);
        if (st == FSDPCK_OK)
            st = text_check(out, err);
    }
    free(step);
    return st;
}

/* A signal ends the wait: an interrupted call is not repeated. */
fsdpck_status pipe_read_whole(const char *path, uint64_t limit_bytes, char **text, size_t *nbytes,
                              fsdpck_error *err)
{
    text_buf all = {0};
    *text = NULL;
    *nbytes = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open", path);
    const fsdpck_status st = read_all(fd, path, limit_bytes, &all, err);
    (void)close(fd);
    if (st != FSDPCK_OK) {
        text_release(&all);
        return st;
    }
    *nbytes = all.nbytes;
    *text = realloc(all.text, all.nbytes + 1);
    if (*text == NULL) {
        text_release(&all);
        return error_set_nomem(err, *nbytes + 1);
    }
    (*text)[*nbytes] = '\0';
    return FSDPCK_OK;
}
