#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/hdf5/hdf5_driver.h"

#define OFFSET_MAX ((haddr_t)INT64_MAX)
/* From the range that libhdf5 reserves for external drivers. */
#define DRIVER_NUMBER 4096

/* Its part in a property list: libhdf5 copies it as bytes. */
typedef struct info {
    const hdf5_driver *driver;
} info;

typedef struct opened {
    H5FD_t base; /* libhdf5's, first */
    const hdf5_driver *driver;
    haddr_t eoa; /* end of the allocated space */
    haddr_t eof; /* end of the file */
} opened;

/* Of a system call. */
static herr_t fail(const hdf5_driver *d)
{
    if (d->error != NULL && *d->error == 0)
        *d->error = errno;
    return d->hides_errors ? 0 : -1;
}

static H5FD_t *driver_open(const char *path, unsigned flags, hid_t access, haddr_t most)
{
    const info *have = H5Pget_driver_info(access);
    (void)path;
    (void)most;
    if (have == NULL)
        return NULL;
    const hdf5_driver *d = have->driver;
    /* One system call per operation: a filter of system calls need allow no others. */
    const off_t end = lseek(d->fd, 0, SEEK_END);
    const bool truncate = end > 0 && (flags & H5F_ACC_TRUNC) != 0;
    opened *o = NULL;
    if (end >= 0 && (!truncate || ftruncate(d->fd, 0) == 0))
        o = calloc(1, sizeof *o);
    if (o == NULL) {
        (void)fail(d);
        return NULL;
    }
    o->driver = d;
    o->eof = truncate ? 0 : (haddr_t)end;
    return &o->base;
}

static herr_t driver_close(H5FD_t *base)
{
    free(base);
    return 0;
}

/* Same flags as libhdf5's own single-file drivers, so that the file layout is the same; except that
 * raw data is not aggregated. */
static herr_t driver_query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
                H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const opened *)base)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((opened *)base)->eoa = address;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const opened *)base)->eof;
}

/* 1 if `bytes` is nowhere: then only the location is reported; -1 past the largest file; otherwise
 * 0. */
static int tell(const opened *o, const void *bytes, haddr_t at, size_t nbytes)
{
    const hdf5_driver *d = o->driver;
    if (at > OFFSET_MAX || nbytes > OFFSET_MAX - at)
        return -1;
    if (d->nowhere == NULL || bytes != d->nowhere)
        return 0;
    d->raw(d->ctx, at, nbytes);
    return 1;
}

/* Reads zeros after the end of the file, as libhdf5's own drivers do: allocated space may be
 * unwritten. */
static herr_t driver_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t nbytes,
                          void *bytes)
{
    const opened *o = (const opened *)base;
    uint8_t *p = bytes;
    (void)type;
    (void)transfer;
    const int told = tell(o, bytes, at, nbytes);
    if (told != 0)
        return told < 0 ? -1 : 0;
    while (nbytes > 0) {
        const ssize_t n = pread(o->driver->fd, p, nbytes, (off_t)at);
        const bool failed = n < 0 && errno != EINTR;
        if (n == 0 || failed) {
            memset(p, 0, nbytes);
            return failed ? fail(o->driver) : 0;
        }
        if (n > 0) {
            p += n;
            at += (haddr_t)n;
            nbytes -= (size_t)n;
        }
    }
    return 0;
}

static herr_t driver_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t nbytes,
                           const void *bytes)
{
    opened *o = (opened *)base;
    const uint8_t *p = bytes;
    (void)type;
    (void)transfer;
    const int told = tell(o, bytes, at, nbytes);
    if (told != 0)
        return told < 0 ? -1 : 0;
    while (nbytes > 0) {
        const ssize_t n = pwrite(o->driver->fd, p, nbytes, (off_t)at);
        if (n < 0 && errno != EINTR)
            return fail(o->driver);
        if (n > 0) {
            p += n;
            at += (haddr_t)n;
            nbytes -= (size_t)n;
        }
    }
    o->eof = at > o->eof ? at : o->eof;
    return 0;
}

/* Extends the file to the allocated size. libhdf5 requires this for writable files. */
static herr_t driver_truncate(H5FD_t *base, hid_t transfer, hbool_t closing)
{
    opened *o = (opened *)base;
    (void)transfer;
    (void)closing;
    if (o->eof == o->eoa)
        return 0;
    if (o->eoa > OFFSET_MAX)
        return -1;
    if (ftruncate(o->driver->fd, (off_t)o->eoa) != 0)
        return fail(o->driver);
    o->eof = o->eoa;
    return 0;
}

static const H5FD_class_t driver_class = {
#if H5_VERSION_GE(1, 14, 0)
    .version = H5FD_CLASS_VERSION,
    .value = DRIVER_NUMBER,
#endif
    .name = "fsdpck",
    .maxaddr = OFFSET_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(info),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

int64_t hdf5_driver_access(hdf5_driver *d)
{
    const info want = {d};
    const hid_t driver = H5FDregister(&driver_class);
    if (driver < 0)
        return -1;
    d->id = driver;
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && H5Pset_driver(access, driver, &want) >= 0)
        return access;
    if (access >= 0)
        (void)H5Pclose(access);
    hdf5_driver_release(d);
    return -1;
}

void hdf5_driver_release(hdf5_driver *d)
{
    if (d->id > 0)
        (void)H5FDunregister((hid_t)d->id);
    d->id = 0;
}
