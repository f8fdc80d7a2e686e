/* verify_modules.c: Python files that the settings of a model folder name and the folder lacks. */
#include <inttypes.h>

#include "run/model_modules.h"
#include "verify/verify_internal.h"

fsdpck_status verify_modules(fsdpck_verify *v, fsdpck_error *err)
{
    const probe_input *in = &v->src->probe;
    text_buf list = {0};
    uint64_t lost = 0;
    if (!v->src->format->of_model || !in->is_folder || !probe_has_entry(in, "config.json"))
        return FSDPCK_OK;
    const fsdpck_status st = model_modules_lost(&in->dir, &list, &lost, err);
    if (st == FSDPCK_OK && lost > 0) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        FAIL_WITH(&what, BADINPUT, MODULE_LOST,
                  ("folder lacks %" PRIu64 " Python file%s of the model: %s", lost,
                   text_plural(lost), list.text),
                  (path, v->src->path));
        findings_report(&v->found, &what);
    }
    text_release(&list);
    return st;
}
