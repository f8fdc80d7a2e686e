/* The chunk shape of a tensor. */
#include "formats/hdf5/hdf5_write_internal.h"

bool hdf5_chunk_shape_choose(dtype d, unsigned ndim, const uint64_t *shape, hdf5_chunk_shape *cut)
{
    uint64_t row = dtype_get(d)->itemsize_bytes; /* bytes of one step along the dim */
    unsigned dim = ndim;
    const uint64_t nbytes = box_nelems(shape, ndim) * row;
    if (ndim == 0 || nbytes < HDF5_FILTERED_NBYTES_MIN)
        return false;
    while (dim > 0 && row * shape[dim - 1] <= HDF5_CHUNK_NBYTES)
        row *= shape[--dim];
    if (dim == 0) { /* all of it is one chunk */
        *cut = (hdf5_chunk_shape){.rows = shape[0], .span_nbytes = row, .chunk_nbytes = row};
        return true;
    }
    dim--;
    const uint64_t most = HDF5_CHUNK_NBYTES / row;
    const uint64_t count = (shape[dim] + most - 1) / most;
    /* As even as possible: the last one is padded. */
    const uint64_t rows = (shape[dim] + count - 1) / count;
    *cut = (hdf5_chunk_shape){dim, rows, shape[dim] * row, rows * row};
    return true;
}

void hdf5_chunk_shape_corner(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                             uint64_t number, uint64_t *corner)
{
    const uint64_t each = (shape[cut->dim] + cut->rows - 1) / cut->rows;
    uint64_t before = number / each;
    for (unsigned i = ndim; i-- > 0;) {
        if (i > cut->dim) {
            corner[i] = 0;
        } else if (i == cut->dim) {
            corner[i] = number % each * cut->rows;
        } else {
            corner[i] = before % shape[i];
            before /= shape[i];
        }
    }
}

void hdf5_chunk_shape_sizes(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                            uint64_t *sizes)
{
    for (unsigned i = 0; i < ndim; i++)
        sizes[i] = i < cut->dim ? 1 : i == cut->dim ? cut->rows : shape[i];
}
