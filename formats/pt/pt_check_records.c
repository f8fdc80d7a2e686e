/* pt_check_records.c: checks the records of a torch.save file outside tensors, for verify. */
#include "formats/pt/pt_check_records.h"

typedef struct rest_work {
    const zip_archive *zip;
    const char *path;
} rest_work;

static fsdpck_status sum_one(void *ctx, zip_checker *s, uint64_t job, fsdpck_error *err)
{
    const rest_work *w = ctx;
    return zip_check_record(s, w->zip, VEC_AT(&w->zip->entries, zip_entry, job), 0, w->path, NULL,
                            err);
}

fsdpck_status pt_check_records(const zip_archive *zip, const char *path,
                               const record_check_request *request, record_check_result *result,
                               fsdpck_error *err)
{
    rest_work w = {.zip = zip, .path = path};
    RETURN_IF(zip_check_jobs(request, zip->owner, zip->entries.count, sum_one, &w, result, err));
    zip_check_serialization_id(request, zip, path, NULL);
    return FSDPCK_OK;
}
