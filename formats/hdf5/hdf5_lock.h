/* hdf5_lock.h: one user of libhdf5 in the process at a time.
 *
 *     hdf5_lock();
 *     ... libhdf5, or a fork after which the child calls it ...
 *     hdf5_unlock();
 *
 * libhdf5 may be built without locks of its own, and then no two threads may be in it. Where it has
 * them, a child that is forked while another thread is in it waits for that thread, which the child
 * does not have. The child itself, being one thread, takes no lock.
 *
 * Of what the calling program does with libhdf5 nothing is known here: fsdpck.h asks it not to.
 */
#ifndef FSDPCK_FORMATS_HDF5_LOCK_H
#define FSDPCK_FORMATS_HDF5_LOCK_H

void hdf5_lock(void);
void hdf5_unlock(void);

#endif
