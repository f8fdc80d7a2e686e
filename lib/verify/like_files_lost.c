#include "verify/like_files_lost.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "run/like_files.h"

#define NAMED_MAX 5u

/* Files of one purpose; each release of transformers writes its own. A file in `of` is not lost if the output has one in `by`. */
typedef struct replaced {
    const char *const *of, *const *by;
    size_t of_count, by_count;
} replaced;

static const char *const vocabularies[] = {
    "vocab.json",     "vocab.txt",       "merges.txt",      "added_tokens.json",
    "spiece.model",   "tokenizer.model", "normalizer.json", "special_tokens_map.json",
    "tiktoken.model", "tekken.json",     "spm.model",       "sentencepiece.bpe.model",
    "emoji.json",     "bpe.codes",       "spm_char.model",  "sentencepiece.model",
};
static const char *const fast[] = {"tokenizer.json"};
static const char *const templates[] = {"chat_template.jinja", "chat_template.json"};
static const char *const processors[] = {
    "preprocessor_config.json", "processor_config.json", "image_processor_config.json",
    "feature_extractor_config.json", "video_preprocessor_config.json"};

#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static const replaced kinds[] = {
    {vocabularies, fast, COUNT_OF(vocabularies), COUNT_OF(fast)},
    {templates, templates, COUNT_OF(templates), COUNT_OF(templates)},
    {processors, processors, COUNT_OF(processors), COUNT_OF(processors)},
};

static bool has_one_of(const probe_input *in, const char *const *names, size_t count)
{
    bool has = false;
    for (size_t i = 0; !has && i < count; i++)
        has = probe_has_entry(in, names[i]);
    return has;
}

static bool is_lost(const probe_input *in, const char *name)
{
    bool lost = !probe_has_entry(in, name);
    for (size_t k = 0; lost && k < COUNT_OF(kinds); k++)
        for (size_t i = 0; lost && i < kinds[k].of_count; i++)
            lost = strcmp(name, kinds[k].of[i]) != 0 ||
                   !has_one_of(in, kinds[k].by, kinds[k].by_count);
    return lost;
}

static fsdpck_status report(fsdpck_verify *v, const strtab *names, fsdpck_error *err)
{
    text_buf text = {0};
    uint64_t count = 0;
    for (uint32_t i = 0; i < strtab_count(names); i++) {
        if (!is_lost(&v->src->probe, strtab_text(names, i)))
            continue;
        if (count < NAMED_MAX)
            text_printf(&text, "%s%s", count == 0 ? "" : ", ", strtab_text(names, i));
        count++;
    }
    if (count > NAMED_MAX)
        text_printf(&text, ", and %" PRIu64 " more", count - NAMED_MAX);
    const fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK && count > 0) {
        fsdpck_error what;
        FAIL_WITH(&what, BADINPUT, EXPORT_FILES,
                  ("%" PRIu64 " file%s in the folder of --like %s missing: %s", count,
                   text_plural(count), count == 1 ? "is" : "are", text.text),
                  (path, v->src->path));
        findings_report_as(&v->found, FINDING_WARNING, &what);
    }
    text_release(&text);
    return st;
}

fsdpck_status like_files_lost_check(fsdpck_verify *v, const like_output *l, fsdpck_error *err)
{
    strtab names;
    if (!v->src->format->of_model || !v->src->probe.is_folder)
        return FSDPCK_OK;
    strtab_init(&names, NULL);
    fsdpck_status st = like_files_names(l, &names, err);
    if (st == FSDPCK_OK)
        st = report(v, &names, err);
    strtab_release(&names);
    return st;
}
