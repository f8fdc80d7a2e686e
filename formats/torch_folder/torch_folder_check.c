/* torch_folder_check.c: checks the records of the files outside chunks, for verify. */
#include "base/bytes.h"
#include "formats/common/zip_check.h"
#include "formats/torch_folder/torch_folder.h"

typedef struct rest_work {
    torch_folder *r;
    const record_check_request *request;
} rest_work;

typedef struct rest_file {
    torch_folder *r;
    uint32_t file;
} rest_file;

static fsdpck_status read_file(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    const rest_file *f = ctx;
    return file_set_read_at(&f->r->files, f->file, offset_bytes, dst, nbytes, err);
}

/* Legacy streams are not zips and have no checksums. */
static fsdpck_status sum_zip(zip_checker *s, rest_file *f, const char *path, fsdpck_error *err)
{
    const zip_input in = {
        .read = read_file, .ctx = f, .nbytes = catalogue_file(f->r->cat, f->file)->nbytes};
    uint8_t head[2];
    zip_archive z;

    RETURN_IF(in.nbytes < sizeof head ? FSDPCK_OK : read_file(f, 0, head, sizeof head, err));
    if (in.nbytes < sizeof head || load_le16(head) != 0x4b50)
        return FSDPCK_OK;
    RETURN_IF(zip_open(&in, f->r->owner, &z, err));
    const fsdpck_status st = zip_check_records(s, &z, f->file, path, NULL, err);
    zip_release(&z);
    return st;
}

static fsdpck_status sum_file(void *ctx, zip_checker *s, uint64_t job, fsdpck_error *err)
{
    const rest_work *w = ctx;
    rest_file f = {.r = w->r, .file = (uint32_t)job};
    text_buf path = {.limit_bytes = 8192};
    fsdpck_error what = FSDPCK_ERROR_INIT;

    text_printf(&path, "%s/%s", w->r->dir.path, file_set_path(&w->r->files, f.file));
    const char *text = path.text != NULL ? path.text : "";
    fsdpck_status st = sum_zip(s, &f, text, &what);
    if (st != FSDPCK_OK)
        error_path(&what, text);
    if (status_is_finding(st)) {
        w->request->found(w->request->found_ctx, FORMAT_ERROR, &what);
        st = FSDPCK_OK;
    } else if (st != FSDPCK_OK && err != NULL) {
        *err = what;
    }
    text_release(&path);
    return st;
}

fsdpck_status torch_folder_check_records(void *self, const record_check_request *request,
                                         record_check_result *result, fsdpck_error *err)
{
    rest_work w = {.r = self, .request = request};
    if (!request->sums)
        return FSDPCK_OK;
    return zip_check_jobs(request, w.r->owner, w.r->inputs.count, sum_file, &w, result, err);
}
