#include "open/open_fail.h"

#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"
#include "base/similar.h"
#include "base/step_name.h"
#include "base/text.h"
#include "open/foreign_folders.h"

/* fsdpck-model(5): JSON that begins with its version. */
static bool looks_like_model(const probe_input *in)
{
    static const char key[] = "\"version\"";
    size_t at = 0;
    if (in->is_folder)
        return false;
    while (at < in->head_nbytes && memchr(" \t\r\n", in->head[at], 4) != NULL)
        at++;
    if (at == in->head_nbytes || in->head[at++] != '{')
        return false;
    while (at < in->head_nbytes && memchr(" \t\r\n", in->head[at], 4) != NULL)
        at++;
    return in->head_nbytes - at >= sizeof key - 1 &&
           memcmp(in->head + at, key, sizeof key - 1) == 0;
}

/* Of a model or of its tokenizer, as transformers writes them beside the weights; or the cache of the Hub for a model. */
static bool has_settings(const probe_input *in)
{
    return in->is_folder &&
           (probe_has_entry(in, "config.json") || probe_has_entry(in, "generation_config.json") ||
            probe_has_entry(in, "tokenizer_config.json") ||
            (probe_has_entry(in, "refs") && probe_has_entry(in, "snapshots")));
}

fsdpck_status open_fail_no_checkpoint(const probe_input *in, const char *path,
                                      const char *near_miss, fsdpck_error *err)
{
    RETURN_IF(foreign_folder_check_compressed(in, err));
    const bool is_model = looks_like_model(in);
    const bool is_of_system = in->is_folder && is_system_folder(path);
    if (is_of_system)
        near_miss = "it is a system folder of devices, processes or settings";
    if (is_model)
        near_miss = "it resembles a model description";
    if (!in->is_folder && in->nbytes == 0)
        return FAIL_WITH(err, BADINPUT, NO_CHECKPOINT, ("file is empty"), (path, path),
                         (next, "copy it again from where it was saved: the save or a copy may "
                                "have been interrupted"));
    const fsdpck_status st =
        FAIL_AS(err, format_is_foreign(in) ? FSDPCK_UNSUPPORTED : FSDPCK_BADINPUT,
                FSDPCK_FINDING_NO_CHECKPOINT,
                ("not a checkpoint that fsdpck can read%s%s", near_miss == NULL ? "" : ": ",
                 near_miss == NULL ? "" : near_miss),
                (path, path));
    if (is_of_system)
        error_next(err, "give the folder that the checkpoint was written to");
    else if (is_model)
        error_next(err, "give it as --model FILE together with the checkpoint; fsdpck layout shows "
                        "its contents");
    else if (in->is_folder && probe_has_entry(in, "adapter_config.json"))
        error_next(err, "the folder has the config of an adapter: copy its weights "
                        "('adapter_model.safetensors') from where they were saved");
    else if (has_settings(in))
        error_next(err, "if the folder is that of a model, copy its weights, such as "
                        "'model.safetensors', from where they were saved, or download them");
    else
        error_next(err, "%s", format_foreign_next(in));
    return st;
}

fsdpck_status open_fail_limited(const char *path, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, SEARCH_LIMIT,
        ("search for checkpoints inside ended after %u folders and files", SEARCH_ENTRIES_MAX),
        (path, path), (next, "give the path of the checkpoint inside"));
}

/* The name in the folder at `path` below which a checkpoint was found, with its end. */
static const char *entry_of(const char *found, const char *path, size_t *nbytes)
{
    const size_t n = strlen(path);
    const char *entry = strncmp(found, path, n) == 0 ? found + n : text_file_name(found);
    entry += strspn(entry, "/");
    *nbytes = strcspn(entry, "/");
    return entry;
}

/* Whether these are steps of a run, by their names: "run/step-1", "run/step-2". */
static bool are_steps(const search_result *found, const char *path)
{
    size_t first_nbytes = 0;
    const char *first = NULL;
    bool differ = false;
    for (size_t i = 0; i < found->count; i++) {
        size_t nbytes;
        step_name step;
        const char *entry = entry_of(found->paths[i], path, &nbytes);
        step_name_read(entry, nbytes, &step);
        if (!step_name_has_word(&step))
            return false;
        differ = differ || (first != NULL && !text_equal(first, first_nbytes, entry, nbytes));
        first = entry;
        first_nbytes = nbytes;
    }
    return differ;
}

/* As a word for a shell: it is pasted. */
static void put_path(text_buf *list, const char *before, const char *path)
{
    const size_t nbytes = SHELL_WORD_CAPACITY(strlen(path));
    char *word = malloc(nbytes);
    if (word == NULL)
        list->failed = 1;
    else
        text_printf(list, "%s%s", before, shell_word(word, nbytes, path));
    free(word);
}

fsdpck_status open_fail_several(const search_result *found, const char *path, fsdpck_error *err)
{
    const fsdpck_status st =
        FAIL_WITH(err, USAGE, NONE, ("folder contains several checkpoints"), (path, path));
    text_buf list = {0}, pattern = {0};
    char word[256];
    if (are_steps(found, path) && shell_word(word, sizeof word, path)[0] != '\0')
        text_printf(&list, "run fsdpck latest %s for the newest complete one, or ", word);
    text_puts(&list, "choose one of them:");
    for (size_t i = 0; i < found->count; i++)
        put_path(&list, i == 0 ? " " : ", ", found->paths[i]);
    if (found->more + found->more_state > 0)
        text_printf(&list, ", and %s%zu more", found->is_limited ? "at least " : "",
                    found->more + found->more_state);
    if (search_rank_pattern(found, &pattern) && text_check(&pattern, NULL) == FSDPCK_OK)
        text_printf(&list,
                    "; if they are one checkpoint with a file per rank: --source-rank-pattern '%s'",
                    pattern.text);
    if (text_check(&list, NULL) == FSDPCK_OK)
        error_next(err, "%s", list.text);
    text_release(&pattern);
    text_release(&list);
    return st;
}

fsdpck_status open_fail_format(const char *name, fsdpck_error *err)
{
    similar_search search = similar_to(name);
    for (size_t i = 0; format_readers[i] != NULL; i++)
        (void)similar_try(&search, format_readers[i]->name);
    if (search.best == NULL)
        return FAIL_WITH(err, USAGE, NONE, ("unknown input format '%s'", name),
                         (next, "list the formats with: fsdpck version"));
    return FAIL_WITH(
        err, USAGE, NONE, ("unknown input format '%s'", name),
        (next, "did you mean '%s'? List the formats with: fsdpck version", search.best));
}
