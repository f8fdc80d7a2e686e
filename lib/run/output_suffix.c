#include "run/output_suffix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/similar.h"

/* Least length of a suffix that may be a misspelling. */
#define LENGTH_MIN 4u

/* Suffixes of files that other programs write, and those of the writer whose content they may have. Folders have none of
 * them, but they have dots: "step-100.0", "llama-3.1-8b", "out.tmp". */
static const struct {
    const char *suffix, *means;
} of_files[] = {
    {".sft", ".safetensors"}, {".pkl", ".pt"},    {".pickle", ".pt"}, {".hdf", ".h5"},
    {".distcp", NULL},        {".gguf", NULL},    {".onnx", NULL},    {".npz", NULL},
    {".npy", NULL},           {".msgpack", NULL}, {".keras", NULL},   {".zip", NULL},
    {".tar", NULL},           {".tgz", NULL},     {".gz", NULL},
};

/* The suffix in lower case, with its dot; "" if there is none. */
static void get_suffix(const char *path, char suffix[OUTPUT_SUFFIX_CAPACITY])
{
    const char *dot = strrchr(path, '.');
    suffix[0] = '\0';
    if (dot == NULL || strchr(dot, '/') != NULL || strlen(dot) >= OUTPUT_SUFFIX_CAPACITY)
        return;
    size_t n = 0;
    for (; dot[n] != '\0'; n++)
        suffix[n] = dot[n] >= 'A' && dot[n] <= 'Z' ? (char)(dot[n] - 'A' + 'a') : dot[n];
    suffix[n] = '\0';
}

/* The next word of a list such as " .pt .pth "; false after the last. */
static bool next_suffix(const char **list, char suffix[OUTPUT_SUFFIX_CAPACITY])
{
    if (*list == NULL)
        return false;
    *list += strspn(*list, " ");
    const size_t n = strcspn(*list, " ");
    snprintf(suffix, OUTPUT_SUFFIX_CAPACITY, "%.*s", (int)n, *list);
    *list += n;
    return n > 0;
}

static const format_writer *writer_with(const char *suffix)
{
    char own[OUTPUT_SUFFIX_CAPACITY];
    for (size_t i = 0; suffix[0] != '\0' && format_writers[i] != NULL; i++)
        for (const char *list = format_writers[i]->suffixes; next_suffix(&list, own);)
            if (strcmp(own, suffix) == 0)
                return format_writers[i];
    return NULL;
}

const format_writer *output_suffix_writer(const char *path)
{
    char suffix[OUTPUT_SUFFIX_CAPACITY];
    get_suffix(path, suffix);
    return writer_with(suffix);
}

void output_suffix_similar(const char *path, char suffix[OUTPUT_SUFFIX_CAPACITY])
{
    char given[OUTPUT_SUFFIX_CAPACITY], own[OUTPUT_SUFFIX_CAPACITY];
    suffix[0] = '\0';
    get_suffix(path, given);
    for (size_t i = 0; i < sizeof of_files / sizeof *of_files; i++)
        if (of_files[i].means != NULL && strcmp(given, of_files[i].suffix) == 0)
            snprintf(suffix, OUTPUT_SUFFIX_CAPACITY, "%s", of_files[i].means);
    if (strlen(given) < LENGTH_MIN + 1) /* with the dot */
        return;
    similar_search search = similar_to(given);
    for (size_t i = 0; format_writers[i] != NULL; i++)
        for (const char *list = format_writers[i]->suffixes; next_suffix(&list, own);)
            if (similar_try(&search, own))
                memcpy(suffix, own, sizeof own);
}

bool output_suffix_is_of_file(const char *path)
{
    char given[OUTPUT_SUFFIX_CAPACITY];
    bool found = false;
    get_suffix(path, given);
    for (size_t i = 0; i < sizeof of_files / sizeof *of_files; i++)
        found = found || strcmp(given, of_files[i].suffix) == 0;
    return found;
}

const format_writer *output_suffix_inner(const char *path)
{
    const char *dot = strrchr(path, '.');
    char *stem = dot == NULL ? NULL : strndup(path, (size_t)(dot - path));
    const format_writer *found = stem == NULL ? NULL : output_suffix_writer(stem);
    free(stem);
    return found;
}

void output_suffix_list(text_buf *text)
{
    char own[OUTPUT_SUFFIX_CAPACITY];
    const size_t begin = text->nbytes;
    for (size_t i = 0; format_writers[i] != NULL; i++)
        for (const char *list = format_writers[i]->suffixes; next_suffix(&list, own);)
            text_printf(text, "%s%s", text->nbytes > begin ? ", " : "", own);
}

bool output_suffix_is_offered(const format_writer *w, bool sharded)
{
    return sharded ? w->sharded : !w->ranks_only && !w->of_adapter;
}

const format_writer *output_suffix_guess(const char *name, bool sharded)
{
    char path[OUTPUT_SUFFIX_CAPACITY], suffix[OUTPUT_SUFFIX_CAPACITY];
    snprintf(path, sizeof path, ".%s", name[0] == '.' ? name + 1 : name);
    get_suffix(path, suffix);
    const format_writer *found = writer_with(suffix);
    if (found != NULL && output_suffix_is_offered(found, sharded))
        return found;
    found = NULL;
    similar_search search = similar_to(name);
    for (size_t i = 0; format_writers[i] != NULL; i++)
        if (output_suffix_is_offered(format_writers[i], sharded) &&
            similar_try(&search, format_writers[i]->name))
            found = format_writers[i];
    return found;
}
