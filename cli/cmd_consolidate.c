#include "consolidate_report.h"
#include "consolidate_words.h"
#include "progress.h"
#include "report.h"

static int run(cli *c, const consolidate_request *r)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_checkpoint *src = NULL;
    fsdpck_report *report = NULL;
    progress_view *view = progress_start(c, (progress_mode)r->progress);
    fsdpck_status st = fsdpck_open(c->ctx, r->src, &r->open, &src, &err);
    fsdpck_info info = {0};
    if (st == FSDPCK_OK) {
        fsdpck_get_info(src, &info);
        st = fsdpck_consolidate(c->ctx, src, r->dst, &r->transform, &report, &err);
    }
    progress_stop(view);
    int code = 0;
    if (st != FSDPCK_OK)
        code = report_failure(c, src == NULL ? NULL : &info, &err);
    else if (c->json)
        code = consolidate_print_json(c, &info, report, r->transform.dry_run != 0);
    else if (!c->quiet)
        consolidate_print_text(c, &info, report, r->transform.dry_run != 0);
    fsdpck_report_free(report);
    fsdpck_close(src);
    return code;
}

int cmd_consolidate(cli *c, int argc, const char **argv)
{
    return consolidate_with_words(c, argc, argv, run);
}
