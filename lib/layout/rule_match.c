#include "layout/rule_match.h"

#include <string.h>

#include "base/name_glob.h"

static void module_name(char *module, const char *name)
{
    const char *dot = name == NULL ? NULL : strrchr(name, '.');
    const size_t nbytes = dot == NULL ? 0 : (size_t)(dot - name);
    module[0] = '\0';
    if (nbytes > 0 && nbytes < RULE_MODULE_NBYTES_MAX) {
        memcpy(module, name, nbytes);
        module[nbytes] = '\0';
    }
}

void rule_names_of(const layout_tensor *t, rule_names *n)
{
    n->names[0] = t->fqn;
    n->names[1] = t->outer_fqn;
    for (unsigned i = 0; i < 2; i++)
        module_name(n->modules[i], n->names[i]);
}

bool rule_names_match(const rule_names *n, const char *glob)
{
    for (unsigned i = 0; i < 2; i++)
        if (n->names[i] != NULL && name_glob_matches(glob, n->names[i]))
            return true;
    return false;
}

bool rule_names_match_module(const rule_names *n, const char *glob)
{
    for (unsigned i = 0; i < 2; i++)
        if (n->modules[i][0] != '\0' && name_glob_matches(glob, n->modules[i]))
            return true;
    return false;
}
