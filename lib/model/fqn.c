#include "model/fqn.h"

#include <string.h>

#include "base/text.h"

static const char *const wrapper_parts[] = {
    "_fsdp_wrapped_module",
    "_fpw_module",
    "_checkpoint_wrapped_module",
    "_orig_mod",
};

static bool part_is_wrapper(const char *part, size_t nbytes)
{
    return TEXT_IS_IN(part, nbytes, wrapper_parts);
}

static bool part_is_ddp(const char *part, size_t nbytes)
{
    return nbytes == 6 && memcmp(part, "module", 6) == 0;
}

/* Length of the dotted part at `name`; *last is set if no dot follows. */
static size_t part_nbytes(const char *name, size_t nbytes, bool *last)
{
    const char *dot = memchr(name, '.', nbytes);
    *last = dot == NULL;
    return dot == NULL ? nbytes : (size_t)(dot - name);
}

bool fqn_parts_next(fqn_parts *p)
{
    while (!p->last) {
        p->part = p->name + p->at;
        p->part_nbytes = part_nbytes(p->part, p->nbytes - p->at, &p->last);
        p->at += p->part_nbytes + 1;
        /* A name that ends in a wrapper's word is not a prefix: it is kept. */
        if (!p->last && part_is_wrapper(p->part, p->part_nbytes))
            continue;
        if (!p->last && !p->begun && p->strip_ddp && part_is_ddp(p->part, p->part_nbytes)) {
            p->strip_ddp = false;
            continue;
        }
        p->begun = true;
        return true;
    }
    return false;
}

void fqn_clean(const char *name, size_t nbytes, bool strip_ddp, text_buf *out)
{
    fqn_parts p = {.name = name, .nbytes = nbytes, .strip_ddp = strip_ddp};
    while (fqn_parts_next(&p)) {
        text_append(out, p.part, p.part_nbytes);
        if (!p.last)
            text_append(out, ".", 1);
    }
}

bool fqn_has_ddp_prefix(const char *name, size_t nbytes)
{
    size_t at = 0;
    for (;;) {
        bool last;
        const size_t n = part_nbytes(name + at, nbytes - at, &last);
        if (last)
            return false;
        if (!part_is_wrapper(name + at, n))
            return part_is_ddp(name + at, n);
        at += n + 1;
    }
}
