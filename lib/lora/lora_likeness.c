#include "lora/lora_likeness.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void drop_end(char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    if (text_ends_with(text, n, end))
        text[n - m] = '\0';
}

void lora_likeness_init(lora_likeness *l, const char *path)
{
    static const char of_peft[] = "base_model.model.";
    *l = (lora_likeness){0};
    snprintf(l->path, sizeof l->path, "%s",
             text_begins(path, of_peft) ? path + strlen(of_peft) : path);
    drop_end(l->path, ".weight");
    drop_end(l->path, ".base_layer");
}

/* Whether a part of the path, such as "0" or "attention", has these bytes. */
static bool has_part(const char *path, const char *part, size_t nbytes)
{
    for (const char *at = path;; at++) {
        const size_t n = strcspn(at, ".");
        if (n == nbytes && memcmp(at, part, n) == 0)
            return true;
        at += n;
        if (*at == '\0')
            return false;
    }
}

/* Common parts count first, then the numbers of parts. */
static int score_of(const char *path, const char *name)
{
    int common = 0, parts = 0, of_path = 1;
    for (const char *at = path; (at = strchr(at, '.')) != NULL; at++)
        of_path++;
    for (const char *at = name;; at++) {
        const size_t n = strcspn(at, ".");
        common += has_part(path, at, n);
        parts++;
        at += n;
        if (*at == '\0')
            break;
    }
    return 1000 + 8 * common - (parts > of_path ? parts - of_path : of_path - parts);
}

void lora_likeness_try(lora_likeness *l, const char *name, size_t nbytes)
{
    static const char end[] = ".weight";
    char module[sizeof l->best];
    if (nbytes >= sizeof module || !text_ends_with(name, nbytes, end))
        return;
    snprintf(module, sizeof module, "%.*s", (int)(nbytes - strlen(end)), name);
    const int score = score_of(l->path, module);
    if (score <= l->score)
        return;
    l->score = score;
    memcpy(l->best, module, sizeof module);
}

void lora_likeness_of_base(lora_likeness *l, const char *path, const catalogue *base)
{
    lora_likeness_init(l, path == NULL ? "" : path);
    for (size_t i = 0; i < catalogue_tensor_count(base); i++) {
        const char *name = catalogue_name(base, catalogue_tensor(base, i)->name);
        lora_likeness_try(l, name, strlen(name));
    }
}
