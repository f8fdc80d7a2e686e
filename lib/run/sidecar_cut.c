#include "run/sidecar_cut.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "io/unfinished_file.h"
#include "open/state_files.h"

void sidecar_warn_cut(const folder *dir, const char *name, const logger *log)
{
    const probe_input in = {.dir = *dir}; /* borrowed */
    fsdpck_error why = FSDPCK_ERROR_INIT;
    char *text = NULL, shown[256];
    const char *damage = NULL;
    size_t nbytes;
    if (unfinished_is_pointer(dir, name))
        return;
    if (tokenizer_file_has_name(name))
        damage = tokenizer_file_damage(dir, name);
    else if (model_json_has_name(name) &&
             trainer_state_read_json(&in, name, &text, &nbytes, &why) == FSDPCK_BADINPUT)
        damage = why.message;
    if (damage != NULL)
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "copy the file again from where it was written",
                 "'%s' is copied as it is, but a loader cannot read it: %s",
                 escape_text(shown, sizeof shown, name, strlen(name)), damage);
    free(text);
}
