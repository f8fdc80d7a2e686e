#include "formats/hdf5/hdf5_lock.h"

#include <pthread.h>

/* The only writable variable of the library. libhdf5 has many, shared by all contexts of a process:
 * their lock must also be shared by all contexts. */
static pthread_mutex_t libhdf5_users = PTHREAD_MUTEX_INITIALIZER;

/* A mutex of the default kind that is neither destroyed nor locked twice by one thread cannot fail. */
void hdf5_lock(void)
{
    (void)pthread_mutex_lock(&libhdf5_users);
}

void hdf5_unlock(void)
{
    (void)pthread_mutex_unlock(&libhdf5_users);
}
