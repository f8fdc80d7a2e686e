#include "progress_print.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "progress_line.h"
#include "report.h"

/* Interval between updates; a terminal is redrawn each time. */
#define POLL_NANOSECONDS 200000000L
#define PLAIN_SECONDS    30.0

struct progress_display {
    const cli *c;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* `runs` or `stop` has changed */
    bool runs, stop;
    bool terminal;
    bool each_phase; /* elsewhere: a line for each phase too, however short the run is */
    bool drawn;
    double last_plain;
    const char *last_phase; /* of the last line */
    const char *phase;      /* constant texts of the library, compared by address */
    double phase_began;     /* seconds */
    double rate;            /* bytes per second, smoothed */
    double last_seconds;    /* previous sample */
    uint64_t last_done, last_fresh;
};

/* Time constant of the smoothed rate: an older sample has lost two thirds of its weight. */
#define SMOOTH_SECONDS 4.0

/* fresh: bytes done without those of an earlier run, which are checked only. */
static void follow_rate(progress_display *v, const char *phase, uint64_t done, uint64_t fresh,
                        double now)
{
    if (phase != v->phase || done < v->last_done) {
        v->phase = phase;
        v->phase_began = v->last_seconds = now;
        v->last_done = done;
        v->last_fresh = fresh;
        v->rate = 0;
        return;
    }
    const double step = now - v->last_seconds;
    if (done != v->last_done && fresh <= v->last_fresh) { /* only checked meanwhile */
        v->last_done = done;
        v->last_seconds = now;
        return;
    }
    if (step <= 0 || fresh < v->last_fresh || (fresh == v->last_fresh && v->rate <= 0))
        return;
    const double current = (double)(fresh - v->last_fresh) / step;
    const double weight = v->rate <= 0 ? 1 : step / (step + SMOOTH_SECONDS);
    v->rate += weight * (current - v->rate);
    v->last_seconds = now;
    v->last_done = done;
    v->last_fresh = fresh;
}

/* Width of the terminal without the last column, at which some terminals wrap. */
static unsigned columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2)
        return 79;
    return size.ws_col - 1U;
}

static void draw(progress_display *v)
{
    const char *phase;
    uint64_t done, total;
    char line[PROGRESS_LINE_MOST];
    const uint64_t kept = fsdpck_context_kept(v->c->ctx);
    fsdpck_context_progress(v->c->ctx, &phase, &done, &total);
    const double now = report_now();
    follow_rate(v, phase, done, done > kept ? done - kept : 0, now);
    const bool is_due = v->terminal || now - v->last_plain >= PLAIN_SECONDS ||
                        (v->each_phase && phase != v->last_phase);
    if (phase[0] == '\0' || !is_due)
        return;
    const progress_sample sample = {.phase = phase,
                                    .done = done,
                                    .total = total,
                                    .kept = kept < done ? kept : done,
                                    .seconds = now - v->phase_began,
                                    .rate = v->rate};
    (void)progress_line(line, &sample, v->terminal ? columns() : 0);
    if (v->terminal)
        fprintf(stderr, "\r%s\033[K", line);
    else
        fprintf(stderr, "fsdpck: %s\n", line);
    fflush(stderr);
    v->drawn = true;
    v->last_plain = now;
    v->last_phase = phase;
}

static void *watch(void *arg)
{
    progress_display *v = arg;
    pthread_mutex_lock(&v->lock);
    v->runs = true;
    pthread_cond_signal(&v->turn);
    while (!v->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += POLL_NANOSECONDS;
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

progress_display *progress_start(const cli *c, progress_mode mode)
{
    if (mode == PROGRESS_NEVER || (mode == PROGRESS_AUTO && c->quiet))
        return NULL;
    progress_display *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->c = c;
    v->terminal = isatty(STDERR_FILENO) == 1;
    v->each_phase = mode == PROGRESS_ALWAYS;
    v->last_plain = report_now();
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->turn, NULL);
    if (pthread_create(&v->thread, NULL, watch, v) != 0) {
        free(v);
        return NULL;
    }
    /* The library forks children (HDF5). A lock held by a starting thread at that moment, as in the
     * allocators of sanitizers, stays locked in them. */
    pthread_mutex_lock(&v->lock);
    while (!v->runs)
        pthread_cond_wait(&v->turn, &v->lock);
    pthread_mutex_unlock(&v->lock);
    return v;
}

void progress_stop(progress_display *v)
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
