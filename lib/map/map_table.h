/* map_table.h: the maps that are built in: lib/map/maps/NAME.map.
 *
 * The first line of a map is its title, lines that begin with '# Source:' name the code that it was
 * compared with.
 */
#ifndef FSDPCK_MAP_MAP_TABLE_H
#define FSDPCK_MAP_MAP_TABLE_H

#include <stddef.h>

typedef struct map_entry {
    const char *name; /* NULL after the last */
    const char *text;
    size_t nbytes;
} map_entry;

/* In the order of the names; made by CMake from the files. */
extern const map_entry map_entries[];

/* NULL for an unknown name. */
const map_entry *map_find(const char *name);

#endif
