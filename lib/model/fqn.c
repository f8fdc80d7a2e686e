#include "model/fqn.h"

#include <string.h>

static const char *const wrapper_parts[] = {
    "_fsdp_wrapped_module",
    "_fpw_module",
    "_checkpoint_wrapped_module",
    "_orig_mod",
};

static bool part_is_wrapper(const char *part, size_t nbytes)
{
    for (size_t i = 0; i < sizeof wrapper_parts / sizeof wrapper_parts[0]; i++) {
        if (strlen(wrapper_parts[i]) == nbytes && memcmp(wrapper_parts[i], part, nbytes) == 0)
            return true;
    }
    return false;
}

static bool part_is_ddp(const char *part, size_t nbytes)
{
    return nbytes == 6 && memcmp(part, "module", 6) == 0;
}

/* Length of the dotted part at `name`; *last is set where no dot follows. */
static size_t part_nbytes(const char *name, size_t nbytes, bool *last)
{
    const char *dot = memchr(name, '.', nbytes);
    *last = dot == NULL;
    return dot == NULL ? nbytes : (size_t)(dot - name);
}

void fqn_clean(const char *name, size_t nbytes, bool strip_ddp, text_buf *out)
{
    bool at_front = true;
    size_t at = 0;
    for (;;) {
        bool last;
        const size_t n = part_nbytes(name + at, nbytes - at, &last);
        const char *part = name + at;
        /* A name that ends in a wrapper's word is not a prefix: it stays. */
        bool drop = !last && part_is_wrapper(part, n);
        if (!drop && !last && at_front && strip_ddp && part_is_ddp(part, n)) {
            drop = true;
            strip_ddp = false;
        }
        if (!drop) {
            text_append(out, part, n);
            at_front = false;
            if (!last)
                text_append(out, ".", 1);
        }
        if (last)
            return;
        at += n + 1;
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
