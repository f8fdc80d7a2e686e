#include "progress_print.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

/* Between two looks; a terminal is redrawn each time. */
#define LOOK_NANOSECONDS 200000000L
#define PLAIN_SECONDS    30.0

struct progress_view {
    const cli *c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* either of the two has changed */
    bool runs, stop;
    bool terminal;
    bool drawn;
    double started, last_plain;
};

static void draw(progress_view *v)
{
    const char *phase;
    uint64_t done, total;
    fsdpck_context_progress(v->c->ctx, &phase, &done, &total);
    const double now = report_now();
    if (phase[0] == '\0' || (!v->terminal && now - v->last_plain < PLAIN_SECONDS))
        return;
    char a[32], b[32], rate[32];
    const double seconds = now - v->started;
    report_bytes(a, sizeof a, done);
    report_bytes(b, sizeof b, total);
    report_bytes(rate, sizeof rate, seconds > 0 ? (uint64_t)((double)done / seconds) : 0);
    const char *lead = v->terminal ? "\r\033[K" : "";
    const char *tail = v->terminal ? "" : "\n";
    if (total > 0)
        fprintf(stderr, "%sfsdpck: %s: %s of %s (%u%%), %s/s%s", lead, phase, a, b,
                (unsigned)(100.0 * (double)done / (double)total), rate, tail);
    else
        fprintf(stderr, "%sfsdpck: %s, %.0f s%s", lead, phase, seconds, tail);
    fflush(stderr);
    v->drawn = true;
    v->last_plain = now;
}

static void *watch(void *arg)
{
    progress_view *v = arg;
    pthread_mutex_lock(&v->lock);
    v->runs = true;
    pthread_cond_signal(&v->turn);
    while (!v->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NANOSECONDS;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&v->turn, &v->lock, &until);
        if (!v->stop)
            draw(v);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

progress_view *progress_start(const cli *c, progress_mode mode)
{
    if (mode == PROGRESS_NEVER || (mode == PROGRESS_AUTO && c->quiet))
        return NULL;
    progress_view *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->c = c;
    v->terminal = isatty(STDERR_FILENO) == 1;
    v->started = report_now();
    v->last_plain = mode == PROGRESS_ALWAYS ? v->started - PLAIN_SECONDS : v->started;
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->turn, NULL);
    if (pthread_create(&v->thread, NULL, watch, v) != 0) {
        free(v);
        return NULL;
    }
    /* The library forks children (HDF5). A lock that a thread's start holds at that moment, as in the
     * allocators of sanitizers, is never free in them. */
    pthread_mutex_lock(&v->lock);
    while (!v->runs)
        pthread_cond_wait(&v->turn, &v->lock);
    pthread_mutex_unlock(&v->lock);
    return v;
}

void progress_stop(progress_view *v)
{
    if (v == NULL)
        return;
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_cond_signal(&v->turn);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    if (v->terminal && v->drawn)
        fputs("\r\033[K", stderr);
    pthread_cond_destroy(&v->turn);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
