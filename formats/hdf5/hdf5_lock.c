#include "formats/hdf5/hdf5_lock.h"

#include <pthread.h>

/* The library has no other variable that is written to. libhdf5 is full of them, which all contexts
 * of a process share: what guards them has to be shared by all contexts too. */
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
