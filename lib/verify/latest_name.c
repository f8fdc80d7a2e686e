#include "verify/latest_name.h"

#include <string.h>

#include "base/text.h"

/* Lightning counts interruptions by the scheduler in 'hpc_ckpt_3.ckpt'. */
static bool is_of_scheduler(const char *name)
{
    return text_begins(name, "hpc_ckpt_");
}

/* 'last.ckpt', 'last-v1.ckpt', 'latest-rank0.pt' */
bool latest_name_is_newest(const char *name)
{
    static const char *const words[] = {"last", "latest"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(name, words[i], n) == 0 && (name[n] == '\0' || strchr(".-_", name[n]) != NULL))
            return true;
    }
    return is_of_scheduler(name);
}

bool latest_name_has_no_step(const char *name, const step_name *s)
{
    return is_of_scheduler(name) ||
           (s->kind <= STEP_UNKNOWN && (!s->has_numbers || latest_name_is_newest(name)));
}
