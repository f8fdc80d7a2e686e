/* hdf5_lock.h: one user of libhdf5 in the process at a time.
 *
 *     hdf5_lock();
 *     ... libhdf5, or a fork after which the child calls it ...
 *     hdf5_unlock();
 *
 * libhdf5 may be built without locks; then only one thread may use it. If it has locks, a child
 * that is forked while another thread holds one waits for that thread, which does not exist in the
 * child. The child itself has one thread and takes no lock.
 *
 * Calls of the calling program to libhdf5 are not covered: fsdpck.h forbids them.
 */
#ifndef FSDPCK_FORMATS_HDF5_LOCK_H
#define FSDPCK_FORMATS_HDF5_LOCK_H

void hdf5_lock(void);
void hdf5_unlock(void);

#endif
