#include "open/recorded_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "open/open_quietly.h"
#include "open/state_files.h"
#include "open/state_list.h"
#include "open/step_rows.h"

static void put_ranks(recorded_ranks *r, int64_t ranks, const char *name)
{
    if (ranks <= 0)
        return;
    r->ranks = (uint64_t)ranks;
    snprintf(r->file, sizeof r->file, "%s", name);
}

static void read_ranks(const probe_input *in, fsdpck_context *ctx, const char *name,
                       checkpoint_open_fn open, recorded_ranks *r)
{
    const step_record_row *row = step_record_row_of(name);
    fsdpck_checkpoint *state = NULL;
    if (row == NULL || row->ranks == NULL)
        return;
    char *path = folder_path_join(in->path, name);
    if (path != NULL && open_quietly(open, ctx, path, &state, NULL) == FSDPCK_OK)
        put_ranks(r, checkpoint_number(state, row->ranks), name);
    fsdpck_close(state);
    free(path);
}

/* Ranks agree: one of their files is opened. */
void recorded_ranks_read(const probe_input *in, fsdpck_checkpoint *c, checkpoint_open_fn open,
                         recorded_ranks *r)
{
    strtab names;
    const step_record_row *row;
    *r = (recorded_ranks){0};
    for (size_t i = 0; r->ranks == 0 && (row = step_record_row_at(i)) != NULL; i++) {
        step_record json = {.ranks = -1};
        if (step_record_is_json(row) && step_record_read_json(in, row, &json))
            put_ranks(r, json.ranks, row->file);
    }
    if (r->ranks > 0 || c == NULL || !step_records_are_local(c))
        return;
    strtab_init(&names, NULL);
    if (state_list_read(in, &names, NULL) == FSDPCK_OK)
        for (uint32_t i = 0; r->ranks == 0 && i < strtab_count(&names); i++)
            read_ranks(in, c->ctx, strtab_text(&names, i), open, r);
    strtab_release(&names);
}
