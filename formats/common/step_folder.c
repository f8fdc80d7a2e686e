#include "formats/common/step_folder.h"

#include <stdio.h>
#include <string.h>

#include "base/step_name.h"

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

/* An epoch or a plain number is no step. */
static int64_t step_of_name(const char *name)
{
    step_name s;
    step_name_read(name, strlen(name), &s);
    const bool is_step = s.kind == STEP_STEP || s.kind == STEP_CHECKPOINT;
    return is_step && s.step < INT64_MAX ? (int64_t)s.step : -1;
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
