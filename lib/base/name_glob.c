#include "base/name_glob.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Each byte may become \xNN. */
#define ESCAPED_CAPACITY(nbytes) (4 * (nbytes) + 1)

static bool matches_printed(const char *glob, const char *name)
{
    const size_t nbytes = strlen(name);
    char *printed = malloc(ESCAPED_CAPACITY(nbytes));
    const bool matches = printed != NULL &&
                         fnmatch(glob, escape_text(printed, ESCAPED_CAPACITY(nbytes), name, nbytes),
                                 FNM_NOESCAPE) == 0;
    free(printed);
    return matches;
}

bool name_glob_matches(const char *glob, const char *name)
{
    return fnmatch(glob, name, 0) == 0 || strcmp(glob, name) == 0 ||
           (strchr(glob, '\\') != NULL && matches_printed(glob, name));
}
