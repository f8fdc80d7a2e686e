/* An HDF5 file of many chunks: opening time and kept memory grow linearly, for every chunk index of
 * libhdf5. Files are described, not written: only the offsets matter. */
#define H5_USE_110_API
#include <assert.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_driver.h"

#define SIDE         4u   /* elements of a chunk each way */
#define WIDE         100u /* chunks of a row of the grid */
#define CODED_NBYTES 24u
/* Of the catalogue and its tables, and of the child at its peak. */
#define KEPT_NBYTES_EACH  250u
#define CHILD_NBYTES_EACH 200u
#define CHILD_NBYTES      ((uint64_t)32 << 20)
#define SLOWER_MAX        3.0

static const uint8_t nowhere[1];

typedef struct index_kind {
    const char *name;
    H5F_libver_t version;
    hsize_t most[2]; /* 0: as large as it is */
    unsigned every;  /* chunk that is there */
} index_kind;

static const index_kind kinds[] = {
    {"version 1 tree", H5F_LIBVER_EARLIEST, {0, 0}, 1},
    {"version 1 tree, holes", H5F_LIBVER_EARLIEST, {0, 0}, 3},
    {"fixed array", H5F_LIBVER_LATEST, {0, 0}, 1},
    {"extensible array", H5F_LIBVER_LATEST, {H5S_UNLIMITED, 0}, 1},
    {"version 2 tree", H5F_LIBVER_LATEST, {H5S_UNLIMITED, H5S_UNLIMITED}, 1},
};

static void forget(void *ctx, uint64_t offset_bytes, uint64_t nbytes)
{
    (void)ctx;
    (void)offset_bytes;
    (void)nbytes;
}

static hid_t new_dataset(hid_t made_in, const index_kind *k, const hsize_t *dims)
{
    const hsize_t chunk[2] = {SIDE, SIDE};
    const hsize_t most[2] = {k->most[0] ? k->most[0] : dims[0], k->most[1] ? k->most[1] : dims[1]};
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, most);
    H5Pset_chunk(list, 2, chunk);
    H5Pset_deflate(list, 6);
    const hid_t made =
        H5Dcreate2(made_in, "x", H5T_STD_I32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert(made >= 0);
    H5Pclose(list);
    H5Sclose(space);
    return made;
}

/* Every so many'th chunk of a grid. */
static void describe(int fd, const index_kind *k, unsigned nchunks)
{
    hdf5_driver d = {.fd = fd, .nowhere = nowhere, .raw = forget};
    const hid_t access = (hid_t)hdf5_driver_access(&d);
    const unsigned ncells = nchunks * k->every;
    const hsize_t dims[2] = {(hsize_t)ncells / WIDE * SIDE, WIDE * SIDE};
    H5Pset_libver_bounds(access, k->version, H5F_LIBVER_LATEST);
    const hid_t made = H5Fcreate(HDF5_DRIVER_PATH, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    const hid_t dataset = new_dataset(made, k, dims);
    for (unsigned i = 0; i < ncells; i += k->every) {
        const hsize_t corner[2] = {(hsize_t)(i / WIDE) * SIDE, (hsize_t)(i % WIDE) * SIDE};
        if (H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, corner, CODED_NBYTES, nowhere) < 0)
            abort();
    }
    H5Dclose(dataset);
    H5Fclose(made);
    H5Pclose(access);
    hdf5_driver_release(&d);
}

static double seconds_of(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double seconds(void)
{
    return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
}

/* Processor time to open the file, in microseconds a chunk. */
static double open_file(const char *path, const index_kind *k, unsigned nchunks)
{
    budget owner;
    catalogue cat;
    fsdpck_error err;
    struct rusage u;
    void *self = NULL;
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    catalogue_init(&cat, &owner);
    fsdpck_error_init(&err);
    const open_request req = {.path = path, .metadata = &owner};
    const double begin = seconds();
    if (hdf5_reader.open(&req, &cat, &self, &err) != FSDPCK_OK) {
        fprintf(stderr, "%s: %s: %s (%s)\n", k->name, fsdpck_finding_name(err.finding), err.message,
                err.found);
        exit(1);
    }
    const double took = (seconds() - begin) * 1e6 / nchunks;
    if (catalogue_chunk_count(&cat) != (uint64_t)nchunks * k->every)
        exit(1);
    const double kept = (double)owner.used_bytes / (double)(nchunks * k->every);
    getrusage(RUSAGE_CHILDREN, &u);
    const uint64_t peak = (uint64_t)u.ru_maxrss << 10;
    printf("%-22s %7u chunks  %6.2f us and %5.1f bytes each, peak of the child %4llu MiB\n",
           k->name, nchunks, took, kept, (unsigned long long)(peak >> 20));
    if ((nchunks > 9999 && kept > KEPT_NBYTES_EACH) ||
        peak > CHILD_NBYTES + (uint64_t)nchunks * CHILD_NBYTES_EACH) {
        fprintf(stderr, "%s: too much memory\n", k->name);
        exit(1);
    }
    hdf5_reader.close(self);
    catalogue_release(&cat);
    return took;
}

/* Describes and opens a file, each in a process of its own: what libhdf5 kept from one would count as
 * memory of the other, and of its child. */
static double measure(int fd, const char *path, const index_kind *k, unsigned nchunks)
{
    double *took =
        mmap(NULL, sizeof *took, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(took != MAP_FAILED);
    for (int opens = 0; opens < 2; opens++) {
        int status = 0;
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            if (opens)
                *took = open_file(path, k, nchunks);
            else
                describe(fd, k, nchunks);
            exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            exit(1);
    }
    const double result = *took;
    munmap(took, sizeof *took);
    return result;
}

static bool grows_linearly(const index_kind *k, unsigned largest)
{
    static const unsigned counts[] = {1000, 10000, 100000, 300000};
    char path[] = "/tmp/hdf5-chunks-XXXXXX";
    double before = 0, last = 0;
    const int fd = mkstemp(path);
    assert(fd >= 0);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && counts[i] <= largest; i++) {
        last = measure(fd, path, k, counts[i]);
        /* The first is all start. */
        before = i == 1 ? last : before;
    }
    close(fd);
    unlink(path);
    if (last < SLOWER_MAX * before)
        return true;
    fprintf(stderr, "%s: a chunk of many takes %.1f times as long as one of 10000\n", k->name,
            last / before);
    return false;
}

int main(int argc, char **argv)
{
    const unsigned largest = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 300000;
    bool ok = true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        ok = grows_linearly(&kinds[i], largest) && ok;
    return ok ? 0 : 1;
}
