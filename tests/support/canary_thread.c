/* canary_thread.c: a data race that the thread configuration must report. */
#include <pthread.h>
#include <stddef.h>

static int shared;

static void *increment(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++)
        shared++;
    return NULL;
}

int main(void)
{
    pthread_t other;

    if (pthread_create(&other, NULL, increment, NULL) != 0)
        return 0;
    increment(NULL);
    pthread_join(other, NULL);
    return 0;
}
