/* hdf5_records FILE: a seed of fuzz_hdf5_protocol: the file's size as u64, then what the child tells of
 * it. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "formats/hdf5/hdf5_child.h"

int main(int argc, char **argv)
{
    struct stat s;
    uint8_t size[8];
    const int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &s) != 0)
        return 2;
    store_le64(size, (uint64_t)s.st_size);
    if (write(STDOUT_FILENO, size, sizeof size) != sizeof size)
        return 2;
    /* A refused file has records too. */
    (void)hdf5_child_run(NULL, fd, STDOUT_FILENO);
    return 0;
}
