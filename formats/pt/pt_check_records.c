/* pt_check_records.c: checks the records of a torch.save file outside tensors, for verify. */
#include "formats/pt/pt_check_records.h"

typedef struct rest_work {
    const zip_archive *zip;
    const char *path;
    zip_checker *summers; /* by worker */
} rest_work;

static fsdpck_status sum_one(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const rest_work *w = ctx;
    return zip_check_record(&w->summers[worker], w->zip, VEC_AT(&w->zip->entries, zip_entry, job),
                            0, w->path, NULL, err);
}

fsdpck_status pt_check_records(const zip_archive *zip, const char *path,
                               const record_check_request *request, record_check_result *result,
                               fsdpck_error *err)
{
    const unsigned workers = request->nthreads > 0 ? request->nthreads : 1;
    zip_checker *summers = budget_alloc(zip->owner, workers * sizeof *summers, err);
    fsdpck_status st = FSDPCK_OK;

    if (summers == NULL)
        return FSDPCK_LIMIT;
    rest_work w = {.zip = zip, .path = path, .summers = summers};
    for (unsigned i = 0; st == FSDPCK_OK && i < workers; i++)
        st = zip_checker_init(&summers[i], request, err);
    if (st == FSDPCK_OK)
        st = pool_run(workers, zip->entries.count, sum_one, &w, request->cancel, err);
    if (st == FSDPCK_OK)
        zip_check_serialization_id(request, zip, path, NULL);
    for (unsigned i = 0; i < workers; i++) {
        record_check_result_add(result, &summers[i].result);
        zip_checker_release(&summers[i]);
    }
    budget_free(zip->owner, summers, workers * sizeof *summers);
    return st;
}
