/* Attributes that are not read: only their names are reported. */
#include <hdf5.h>
#include <string.h>

#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_report.h"

typedef struct attributes_walk {
    hdf5_record_writer *put;
    bool by_fsdpck;
} attributes_walk;

/* Those that the reader uses, and those of the writer. */
static bool is_used(const attributes_walk *w, const char *name)
{
    static const char *const used[] = {"torch_dtype", "dtype"};
    static const char *const of_fsdpck[] = {"format", "format_version", "source_format",
                                            HDF5_OBJECTS_ATTRIBUTE, "fqn"};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (strcmp(name, used[i]) == 0)
            return true;
    for (size_t i = 0; w->by_fsdpck && i < sizeof of_fsdpck / sizeof *of_fsdpck; i++)
        if (strcmp(name, of_fsdpck[i]) == 0)
            return true;
    return false;
}

static bool report_name(hdf5_record_writer *put, const char *name)
{
    put_u8(put, HDF5_LEFT_ATTRIBUTE);
    put_text(put, name, strlen(name));
    put_record(put, HDF5_LEFT);
    return !put->failed;
}

static herr_t report_unused(hid_t object, const char *name, const H5A_info_t *info, void *ctx)
{
    const attributes_walk *w = ctx;
    (void)object;
    (void)info;
    return is_used(w, name) || report_name(w->put, name) ? 0 : -1;
}

/* Damaged attributes are no reason to refuse the tensors. */
bool report_attributes(hdf5_record_writer *put, int64_t object, bool by_fsdpck)
{
    attributes_walk w = {put, by_fsdpck};
    hsize_t at = 0;
    if (H5Aiterate2((hid_t)object, H5_INDEX_NAME, H5_ITER_NATIVE, &at, report_unused, &w) < 0 &&
        !put->failed)
        return report_name(put, "?");
    return !put->failed;
}
