#include "open/step_manifest.h"

#include <stdlib.h>

#include "base/json.h"

#define NBYTES_MAX ((uint64_t)1 << 20)

static int64_t count_of(const json_token *t)
{
    return t->is_u64 && t->u64 < INT64_MAX ? (int64_t)t->u64 : -1;
}

/* The members of the root object, and nothing after it. */
static fsdpck_status read_members(json_reader *r, const char *step, const char *ranks,
                                  step_manifest *m)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, NULL));
    for (;;) {
        RETURN_IF(json_next(r, &t, NULL));
        if (t.kind != JSON_KEY)
            break;
        const bool is_step = json_is(&t, step), is_ranks = json_is(&t, ranks);
        RETURN_IF(json_next(r, &t, NULL));
        if (is_step)
            m->step = count_of(&t);
        if (is_ranks)
            m->world_size = count_of(&t);
        RETURN_IF(json_skip(r, &t, NULL));
    }
    return json_expect(r, JSON_END, &t, NULL);
}

bool step_json_read(const probe_input *in, const char *name, const char *step, const char *ranks,
                    step_manifest *m)
{
    char *text = NULL;
    size_t nbytes;
    json_reader r;
    *m = (step_manifest){-1, -1};
    if (!in->is_folder || !probe_has_entry(in, name) ||
        file_read_whole(&in->dir, name, NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return false;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    const fsdpck_status st = read_members(&r, step, ranks, m);
    json_reader_release(&r);
    free(text);
    if (st != FSDPCK_OK)
        *m = (step_manifest){-1, -1};
    return st == FSDPCK_OK;
}

bool step_manifest_read(const probe_input *in, step_manifest *m)
{
    if (step_json_read(in, STEP_MANIFEST, "global_step", "world_size", m) && m->world_size > 0)
        return true;
    *m = (step_manifest){-1, -1};
    return false;
}
