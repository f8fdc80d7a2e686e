#include "open/single_rank_file.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* "ep0-ba10-rank", and *rest: "0.pt". */
static bool is_of_composer(const char *name, const char **rest)
{
    static const char *const words[] = {"ep", "-ba"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(name, words[i], n) != 0 || digits(name + n) == 0)
            return false;
        name += n + digits(name + n);
    }
    if (strncmp(name, "-rank", 5) != 0)
        return false;
    *rest = name + 5;
    return true;
}

bool single_rank_file(const folder *dir, const char *path)
{
    const char *rest;
    text_buf other = {0};
    path_kind kind;
    if (!is_of_composer(text_file_name(path), &rest) || strcmp(rest, "0.pt") != 0)
        return false;
    text_append(&other, path, (size_t)(rest - path));
    text_puts(&other, "1.pt");
    const bool is = text_check(&other, NULL) == FSDPCK_OK &&
                    path_probe(dir, other.text, &kind, NULL, NULL) == FSDPCK_OK &&
                    kind == PATH_ABSENT;
    text_release(&other);
    return is;
}
