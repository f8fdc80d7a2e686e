/* The driver against libhdf5's own. */
#define H5_USE_110_API
#include <criterion/criterion.h>
#include <hdf5.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/hdf5/hdf5_driver.h"

#define SIDE  40u /* elements of a row, and rows */
#define CHUNK 16u
#define GRID  3u

typedef struct places {
    unsigned count;
    uint64_t offset_bytes, nbytes; /* the last */
} places;

static const uint8_t nowhere[1];
static char path[32];
static int fd;
static int32_t values[SIDE][SIDE];
static uint8_t coded[CHUNK * CHUNK * 8];
static places told;

static void setup(void)
{
    strcpy(path, "/tmp/driver-XXXXXX");
    fd = mkstemp(path);
    cr_assert(fd >= 0);
    for (unsigned i = 0; i < SIDE * SIDE; i++)
        values[i / SIDE][i % SIDE] = (int32_t)(i * i);
    told = (places){0};
}

static void teardown(void)
{
    close(fd);
    unlink(path);
}

TestSuite(hdf5_driver, .init = setup, .fini = teardown);

static void take(void *ctx, uint64_t offset_bytes, uint64_t nbytes)
{
    places *p = ctx;
    p->count++;
    p->offset_bytes = offset_bytes;
    p->nbytes = nbytes;
}

static hdf5_driver driver_of(int of)
{
    return (hdf5_driver){.fd = of, .nowhere = nowhere, .raw = take, .ctx = &told};
}

static hid_t new_dataset(hid_t file, const char *name)
{
    const hsize_t dims[2] = {SIDE, SIDE}, chunk[2] = {CHUNK, CHUNK};
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, NULL);
    H5Pset_chunk(list, 2, chunk);
    H5Pset_deflate(list, 6);
    const hid_t made = H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    cr_assert(made >= 0);
    H5Pclose(list);
    H5Sclose(space);
    return made;
}

/* A chunk, its part over the edge zeros. */
static uLongf code(const hsize_t *corner)
{
    int32_t chunk[CHUNK][CHUNK] = {{0}};
    uLongf nbytes = sizeof coded;
    for (unsigned i = 0; i < CHUNK && corner[0] + i < SIDE; i++)
        for (unsigned k = 0; k < CHUNK && corner[1] + k < SIDE; k++)
            chunk[i][k] = values[corner[0] + i][corner[1] + k];
    cr_assert_eq(compress2(coded, &nbytes, (const Bytef *)chunk, sizeof chunk, 6), Z_OK);
    return nbytes;
}

static void put_text(hid_t object, const char *name, const char *text)
{
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t made = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(made >= 0 && H5Awrite(made, type, &text) >= 0);
    H5Aclose(made);
    H5Tclose(type);
    H5Sclose(space);
}

static void expect_text(hid_t object, const char *name, const char *text)
{
    char *got = NULL;
    const hid_t made = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(made);
    cr_assert(H5Aread(made, type, &got) >= 0);
    cr_expect_str_eq(got, text);
    H5free_memory(got);
    H5Tclose(type);
    H5Aclose(made);
}

/* With the driver: the library writes the structure, the bytes go to its offsets. */
static void write_described(hsize_t user_block)
{
    hdf5_driver d = driver_of(fd);
    const hid_t access = (hid_t)hdf5_driver_access(&d), create = H5Pcreate(H5P_FILE_CREATE);
    cr_assert(access >= 0);
    H5Pset_userblock(create, user_block);
    H5Pset_alignment(access, 1024, 4096);
    const hid_t file = H5Fcreate(HDF5_DRIVER_PATH, H5F_ACC_TRUNC, create, access);
    const hid_t dataset = new_dataset(file, "x");
    put_text(dataset, "words", "of a global heap");
    for (hsize_t i = 0; i < (hsize_t)GRID * GRID; i++) {
        const hsize_t corner[2] = {i / GRID * CHUNK, i % GRID * CHUNK};
        const uLongf nbytes = code(corner);
        cr_assert(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, corner, nbytes, nowhere) >= 0);
        cr_assert_eq(told.count, i + 1);
        cr_assert_eq(told.nbytes, nbytes);
        cr_assert(told.offset_bytes >= user_block);
        cr_assert_eq(pwrite(fd, coded, nbytes, (off_t)told.offset_bytes), (ssize_t)nbytes);
    }
    H5Dclose(dataset);
    cr_assert(H5Fclose(file) >= 0);
    H5Pclose(access);
    H5Pclose(create);
    hdf5_driver_release(&d);
}

/* By libhdf5 alone. */
static void write_normally(hsize_t user_block)
{
    const hid_t create = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_userblock(create, user_block);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, create, H5P_DEFAULT);
    const hid_t dataset = new_dataset(file, "x");
    put_text(dataset, "words", "of a global heap");
    cr_assert(H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    cr_assert(H5Fclose(file) >= 0);
    H5Pclose(create);
}

static void expect_values(hid_t file)
{
    int32_t got[SIDE][SIDE] = {{0}};
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    cr_assert(H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    cr_expect_eq(memcmp(got, values, sizeof got), 0);
    expect_text(dataset, "words", "of a global heap");
    H5Dclose(dataset);
}

/* Places that libhdf5 tells of chunks have the user block in them since 1.14.4. */
static hsize_t forgotten(hsize_t user_block)
{
    return H5_VERSION_GE(1, 14, 4) ? 0 : user_block;
}

static void expect_places(hid_t file, hid_t other, hsize_t user_block)
{
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    const hid_t same = H5Dopen2(other, "x", H5P_DEFAULT), space = H5Dget_space(same);
    for (hsize_t i = 0; i < (hsize_t)GRID * GRID; i++) {
        hsize_t corner[2], nbytes;
        uint32_t mask;
        unsigned expected_mask;
        haddr_t at;
        cr_assert(H5Dget_chunk_info(same, space, i, corner, &expected_mask, &at, &nbytes) >= 0);
        told = (places){0};
        cr_assert(H5Dread_chunk(dataset, H5P_DEFAULT, corner, &mask, (void *)nowhere) >= 0);
        cr_expect_eq(told.count, 1);
        cr_expect_eq(told.nbytes, nbytes);
        cr_expect_eq(told.offset_bytes, at + forgotten(user_block));
        cr_expect_eq(mask, expected_mask);
    }
    H5Sclose(space);
    H5Dclose(same);
    H5Dclose(dataset);
}

static void check(hsize_t user_block)
{
    hdf5_driver d = driver_of(fd);
    const hid_t normal = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    cr_assert(normal >= 0);
    expect_values(normal);
    told = (places){0};
    const hid_t access = (hid_t)hdf5_driver_access(&d);
    const hid_t file = H5Fopen(HDF5_DRIVER_PATH, H5F_ACC_RDONLY, access);
    cr_assert(file >= 0);
    /* Bytes that are not to go nowhere are read. */
    expect_values(file);
    cr_expect_eq(told.count, 0);
    expect_places(file, normal, user_block);
    H5Fclose(file);
    H5Pclose(access);
    hdf5_driver_release(&d);
    H5Fclose(normal);
}

Test(hdf5_driver, file_described_by_it_is_read_by_libhdf5_and_by_it)
{
    write_described(0);
    check(0);
}

Test(hdf5_driver, user_block_is_in_the_places_of_a_file_described_by_it)
{
    write_described(4096);
    check(4096);
}

Test(hdf5_driver, file_of_libhdf5_is_read_by_it)
{
    write_normally(0);
    check(0);
}

Test(hdf5_driver, user_block_is_in_the_places_of_a_file_of_libhdf5)
{
    write_normally(512);
    check(512);
}

Test(hdf5_driver, file_is_as_long_as_what_was_allocated)
{
    write_described(0);
    const off_t end = lseek(fd, 0, SEEK_END);
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hsize_t nbytes = 0;
    cr_assert(H5Fget_filesize(file, &nbytes) >= 0);
    cr_expect_eq((hsize_t)end, nbytes);
    cr_expect(end >= (off_t)(told.offset_bytes + told.nbytes));
    H5Fclose(file);
}

Test(hdf5_driver, file_that_ends_early_is_no_file)
{
    write_normally(0);
    cr_assert_eq(ftruncate(fd, lseek(fd, 0, SEEK_END) / 2), 0);
    hdf5_driver d = driver_of(fd);
    const hid_t access = (hid_t)hdf5_driver_access(&d);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    cr_expect(H5Fopen(HDF5_DRIVER_PATH, H5F_ACC_RDONLY, access) < 0);
    H5Pclose(access);
    hdf5_driver_release(&d);
}

/* libhdf5 1.10.8 drops the file's reference, then calls the driver to close the file. */
Test(hdf5_driver, stays_registered_until_the_file_is_closed)
{
    hdf5_driver d = driver_of(fd);
    const hid_t access = (hid_t)hdf5_driver_access(&d), id = (hid_t)d.id;
    cr_expect_eq(H5Pget_driver(access), id);
    const hid_t file = H5Fcreate(HDF5_DRIVER_PATH, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    cr_assert(file >= 0);
    H5Pclose(access);
    cr_expect(H5Iis_valid(id) > 0);
    cr_assert(H5Fclose(file) >= 0);
    cr_expect(H5Iis_valid(id) > 0);
    hdf5_driver_release(&d);
    cr_expect_eq(d.id, 0);
    cr_expect_eq(H5Iis_valid(id), 0);
    hdf5_driver_release(&d);
}
