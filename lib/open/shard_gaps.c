#include "open/shard_gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"

/* As in transformers' "-00001-of-00003". */
enum { NUMBER_NBYTES = 5 };

/* The file of a checkpoint that was found in a folder; NULL if there are several, or the file itself was given. */
static const char *only_file(const fsdpck_checkpoint *c, const catalogue *read)
{
    if (!c->probe.is_folder)
        return c->entered_from == NULL ? NULL : text_file_name(c->probe.path);
    return catalogue_file_count(read) == 1 ? catalogue_name(read, catalogue_file(read, 0)->path)
                                           : NULL;
}

/* 3 of "model-00003.safetensors", 0 for other names. "checkpoint-00003.pt" is a step. *at: of the digits. */
static unsigned shard_number(const char *name, size_t *at)
{
    const size_t stem = weights_stem_nbytes(name);
    bool known;
    step_name s;
    step_name_read(name, stem, &s);
    if (stem <= NUMBER_NBYTES + 1 || strchr(name, '/') != NULL || step_name_has_word(&s) ||
        format_file_count(name) > 0 || format_is_rank_file(name, &known))
        return 0;
    *at = stem - NUMBER_NBYTES;
    return name[*at] == '0' && strspn(name + *at, "0123456789") == NUMBER_NBYTES &&
                   strchr("-_.", name[*at - 1]) != NULL
               ? (unsigned)strtoul(name + *at, NULL, 10)
               : 0;
}

void shard_gaps_warn(const fsdpck_checkpoint *c, const catalogue *read)
{
    const char *name = only_file(c, read);
    size_t at;
    const unsigned number = name == NULL ? 0 : shard_number(name, &at);
    if (number > 1)
        log_warn(&c->ctx->log, FSDPCK_FINDING_FILE_OF_SET,
                 "copy the missing files if there were any; otherwise ignore this warning",
                 "files may be missing: the folder has '%s', but not '%.*s%0*u%s'", name, (int)at,
                 name, (int)NUMBER_NBYTES, number - 1, name + at + NUMBER_NBYTES);
}
