#include "open/step_manifest.h"

#include <stdlib.h>

#include "base/json.h"
#include "open/state_files.h"

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

/* ---- trainer_state.json ---- */

/* Members of the root object, in the order of their names. */
static void read_progress(const char *text, size_t nbytes, trainer_progress *p)
{
    json_reader r;
    json_token t;
    *p = (trainer_progress){-1, -1, false};
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_next(&r, &t, NULL);
    while (st == FSDPCK_OK && (p->step < 0 || p->epoch < 0) &&
           (st = json_next(&r, &t, NULL)) == FSDPCK_OK && t.kind == JSON_KEY) {
        const bool is_step = json_is(&t, "global_step"), is_epoch = json_is(&t, "epoch");
        p->has_episodes = p->has_episodes || json_is(&t, "episode");
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK && is_step && t.is_u64 && t.u64 < INT64_MAX)
            p->step = (int64_t)t.u64;
        else if (st == FSDPCK_OK && is_epoch && t.kind == JSON_NUMBER)
            p->epoch = strtod(t.text, NULL);
        else if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
}

bool trainer_state_read_progress(const probe_input *in, trainer_progress *p)
{
    char *text = NULL;
    size_t nbytes;
    *p = (trainer_progress){-1, -1, false};
    if (trainer_state_read_json(in, TRAINER_STATE_JSON, &text, &nbytes, NULL) != FSDPCK_OK)
        return false;
    read_progress(text, nbytes, p);
    free(text);
    return true;
}
