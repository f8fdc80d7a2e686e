#include <sys/resource.h>
#include <unistd.h>

#include "base/child_confine.h"

#define DESCRIPTORS_MAX 65536

void confine_close_others(int one, int two)
{
    struct rlimit r;
    int end = DESCRIPTORS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < DESCRIPTORS_MAX)
        end = (int)r.rlim_cur;
    for (int fd = 0; fd < end; fd++)
        if (fd != one && fd != two)
            close(fd);
}

void confine_memory(uint64_t nbytes)
{
    (void)nbytes;
}

bool confine_calls(void)
{
    return true;
}
