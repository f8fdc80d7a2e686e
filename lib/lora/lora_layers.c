/* lora_layers.c: numbers in paths of modules. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

size_t lora_append_template(const char *path, size_t nbytes, text_buf *out)
{
    size_t at = 0, begin, end, last = 0;
    while (lora_name_next(path, nbytes, &at, &begin, &end)) {
        bool number = end > begin;
        for (size_t k = begin; k < end; k++)
            number = number && path[k] >= '0' && path[k] <= '9';
        text_puts(out, begin > 0 ? "." : "");
        text_append(out, number ? "#" : path + begin, number ? 1 : end - begin);
        last = number ? end : last;
    }
    return last;
}

bool lora_comes_before(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i])
        i++;
    const size_t x = strcspn(a + i, "."), y = strcspn(b + i, ".");
    return x != y ? x < y : strcmp(a + i, b + i) < 0;
}

lora_layer_number lora_first_number(const char *path, size_t nbytes)
{
    lora_layer_number found = {0};
    size_t at = 0, begin, end;
    while (lora_name_next(path, nbytes, &at, &begin, &end)) {
        uint64_t n = 0;
        size_t k = begin;
        for (; k < end && path[k] >= '0' && path[k] <= '9'; k++)
            n = n < UINT64_MAX / 100 ? n * 10 + (uint64_t)(path[k] - '0') : UINT64_MAX;
        if (end == begin || k < end || found.nnumbers++ > 0)
            continue;
        found.begin = begin;
        found.layer = n;
    }
    return found;
}

bool lora_is_outside(const strtab *stacks, const char *path, size_t nbytes)
{
    const char *dot = memchr(path, '.', nbytes);
    const size_t n = dot == NULL ? 0 : (size_t)(dot - path) + 1;
    for (uint32_t i = 0; i < strtab_count(stacks); i++)
        if (strtab_nbytes(stacks, i) >= n && memcmp(strtab_text(stacks, i), path, n) == 0)
            return true;
    return false;
}
