/* Shards of parameters beside the flat parameter that has them, by their names. */
#include <string.h>

#include "formats/pt/ranks_internal.h"

/* Whether a ShardedTensor has the one dim of a flat parameter. */
static bool is_flat_param(const ranks_state *s, uint32_t entry)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    return t->kind == RANKS_SHARDED && t->index != CAT_NONE &&
           catalogue_tensor(s->cat, t->index)->ndim == 1;
}

bool ranks_is_beside_flat(const ranks_state *s, uint32_t entry)
{
    static const char flat_name[] = "_flat_param"; /* no release before 2.0 stores such shards */
    const char *name = strtab_text(&s->names, entry);
    const size_t length = strlen(name);
    char sibling[1024];

    if (length + 16 > sizeof sibling)
        return false;
    memcpy(sibling, name, length);
    for (size_t n = length; n-- > 0;) { /* every prefix that ends in a dot, and the empty one */
        if (n > 0 && name[n - 1] != '.')
            continue;
        memcpy(sibling + n, flat_name, sizeof flat_name);
        const uint32_t found = strtab_find(&s->names, sibling, strlen(sibling));
        if (found != STRTAB_NONE && is_flat_param(s, found))
            return true;
    }
    return false;
}
