#include "io/leftover.h"

#include <string.h>

static const char before_id[] = ".fsdpck-";

enum { BEFORE_ID_BYTES = sizeof before_id - 1, ID_BYTES = 8 };

/* The last ".fsdpck-XXXXXXXX." of a name; NULL: none. */
static const char *find_id(const char *name)
{
    const char *found = NULL;
    for (const char *p = strstr(name, before_id); p != NULL; p = strstr(p + 1, before_id))
        found = p;
    return found != NULL && strspn(found + BEFORE_ID_BYTES, "0123456789abcdef") == ID_BYTES ? found
                                                                                            : NULL;
}

static leftover_kind kind_of(const char *suffix)
{
    static const char journal_of_rank[] = ".journal-";
    const size_t n = sizeof journal_of_rank - 1;
    if (strcmp(suffix, ".partial") == 0)
        return LEFTOVER_PARTIAL;
    if (strcmp(suffix, ".old") == 0)
        return LEFTOVER_OLD;
    if (strcmp(suffix, ".journal") == 0)
        return LEFTOVER_JOURNAL;
    if (strncmp(suffix, journal_of_rank, n) == 0 && suffix[n] != '\0' &&
        strspn(suffix + n, "0123456789") == strlen(suffix + n))
        return LEFTOVER_JOURNAL;
    return LEFTOVER_NONE;
}

leftover_kind leftover_parse(const char *name, size_t *stem_nbytes, size_t *name_nbytes)
{
    const char *id = name[0] == '.' ? find_id(name) : NULL;
    if (id == NULL || id < name + 2)
        return LEFTOVER_NONE;
    *name_nbytes = (size_t)(id - name) - 1;
    *stem_nbytes = (size_t)(id - name) + BEFORE_ID_BYTES + ID_BYTES;
    return kind_of(name + *stem_nbytes);
}
