#include "formats/common/step_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void path_component(const char *path, unsigned skip, char *name, size_t capacity_bytes)
{
    size_t end = strlen(path), begin;
    for (;;) {
        while (end > 0 && path[end - 1] == '/')
            end--;
        for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
            continue;
        if (skip-- == 0)
            break;
        end = begin;
    }
    snprintf(name, capacity_bytes, "%.*s", (int)(end - begin < 255 ? end - begin : 255),
             path + begin);
}

static int64_t step_of_name(const char *name)
{
    static const char *const prefixes[] = {"step-", "step_",       "global_step_", "global_step",
                                           "iter_", "checkpoint-", "checkpoint_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) != 0 || name[n] < '0' || name[n] > '9' ||
            strlen(name) > n + 18)
            continue;
        char *end;
        const long long step = strtoll(name + n, &end, 10);
        if (*end == '\0')
            return step;
    }
    return -1;
}

int64_t step_of_folder(const char *path)
{
    int64_t step = -1;
    for (unsigned skip = 0; skip < 2 && step < 0; skip++) {
        char name[256];
        path_component(path, skip, name, sizeof name);
        step = step_of_name(name);
    }
    return step;
}
