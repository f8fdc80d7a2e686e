#include <string.h>

#include "formats/hdf5/hdf5.h"

static bool probe(const probe_input *in, const char **near_miss)
{
    (void)near_miss;
    return !in->is_folder && in->head_nbytes >= 8 && memcmp(in->head, "\x89HDF\r\n\x1a\n", 8) == 0;
}

static fsdpck_status open_hdf5(const open_request *req, catalogue *cat, void **self,
                               fsdpck_error *err)
{
    (void)req;
    (void)cat;
    *self = NULL;
    return error_set(err, FSDPCK_UNSUPPORTED, "", "built without HDF5");
}

static void no_source(void *self, catalogue *cat, source *src)
{
    (void)self;
    *src = (source){.cat = cat};
}

static void close_hdf5(void *self)
{
    (void)self;
}

const format_reader hdf5_reader = {
    .name = "hdf5",
    .description = "one HDF5 file",
    .probe = probe,
    .open = open_hdf5,
    .source = no_source,
    .close = close_hdf5,
};
