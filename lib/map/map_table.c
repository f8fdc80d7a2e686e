#include "map/map_table.h"

#include <string.h>

const map_entry *map_find(const char *name)
{
    for (const map_entry *e = map_entries; e->name != NULL; e++)
        if (strcmp(e->name, name) == 0)
            return e;
    return NULL;
}
