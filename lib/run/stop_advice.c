#include "run/stop_advice.h"

#include <stdlib.h>
#include <string.h>

#include "base/path_names.h"
#include "io/leftover.h"
#include "run/run.h"

static void advise_resume(const run *r, fsdpck_error *err)
{
    if (!r->opt.output.resume && !r->opt.output.output_local && r->exec != NULL &&
        r->out.created && !r->out.committed && resume_obstacle(r) == NULL)
        error_next(err, "a run with --resume can be continued after a signal: give it to this "
                        "command, and run it again after each end");
}

/* Unfinished outputs and replaced ones, except that of this run. */
static size_t count_others(const folder *dir, const char *own)
{
    char **names = NULL;
    size_t count = 0, others = 0, stem_nbytes, name_nbytes;
    if (folder_list(dir, NULL, &names, &count, NULL) != FSDPCK_OK)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const leftover_kind kind = leftover_parse(names[i], &stem_nbytes, &name_nbytes);
        others += (kind == LEFTOVER_PARTIAL || kind == LEFTOVER_OLD) &&
                  (own == NULL || strcmp(names[i], own) != 0);
    }
    free(names);
    return others;
}

static void advise_space(const run *r, fsdpck_error *err)
{
    folder dir;
    char *parent = path_real_parent(r->dst);
    if (parent != NULL && folder_open(&dir, parent, NULL) == FSDPCK_OK) {
        const size_t n = count_others(&dir, r->out.partial_name);
        if (n > 0) {
            err->next[0] = '\0'; /* the text of the caller says less */
            error_next(err,
                       "write the output elsewhere, or free some space: the folder of the output has %zu unfinished output%s of "
                       "other runs: fsdpck inspect --partials FOLDER lists %s",
                       n, n == 1 ? "" : "s", n == 1 ? "it" : "them");
        }
        folder_close(&dir);
    }
    free(parent);
}

void stop_advise(const run *r, fsdpck_status st, fsdpck_error *err)
{
    if (err == NULL || r->dst == NULL)
        return;
    if (st == FSDPCK_CANCELLED)
        advise_resume(r, err);
    else if (st == FSDPCK_NOSPACE)
        advise_space(r, err);
}
