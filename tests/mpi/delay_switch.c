/* A switch between network namespaces whose frames take a while, for kernels without tc-netem(8):
 *
 *     delay_switch MICROSECONDS ONE_IN NAMESPACE...
 *
 * Makes the tap device d0 in each namespace of ip-netns(8), prints "ready", and carries frames until it is
 * killed. One frame in ONE_IN is lost; 0: none is. A frame is what TCP hands over: up to 64 KiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MAX = 8, FRAME_NBYTES_MAX = 10 + 65536 + 64, HEADER_NBYTES = 10, AT_ONCE = 32 };

#define QUEUE_NBYTES ((size_t)256 << 20)

typedef struct frame {
    uint64_t due_ns;
    uint32_t nbytes, from;
    uint8_t bytes[];
} frame;

typedef struct port {
    int fd;
    uint8_t mac[6]; /* of its host: the source of its frames */
} port;

static port ports[PORTS_MAX];
static int nports;
/* Frames in the order of arrival, which is that of departure; a frame is never cut at the end. */
static uint8_t *queue;
static size_t head, tail, wrap = QUEUE_NBYTES;

static void must(int holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_tap(const char *namespace)
{
    char path[256];
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "d0"};
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    must(space >= 0 && setns(space, CLONE_NEWNET) == 0, path);
    close(space);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    must(fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0, "/dev/net/tun");
    must(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0, "TUNSETOFFLOAD");
    return fd;
}

/* Place for the largest frame at the end of the queue, or NULL. */
static frame *room(void)
{
    const size_t need = sizeof(frame) + FRAME_NBYTES_MAX;
    if (tail >= head && QUEUE_NBYTES - tail < need) {
        if (head <= need)
            return NULL;
        wrap = tail;
        tail = 0;
    }
    return tail < head && head - tail <= need ? NULL : (frame *)(queue + tail);
}

static void receive(uint32_t from, uint64_t delay_ns, unsigned one_in)
{
    static unsigned seed = 1;
    for (int i = 0; i < AT_ONCE; i++) {
        frame *f = room();
        if (f == NULL)
            return;
        const ssize_t n = read(ports[from].fd, f->bytes, FRAME_NBYTES_MAX);
        if (n < HEADER_NBYTES + 14)
            return;
        memcpy(ports[from].mac, f->bytes + HEADER_NBYTES + 6, 6);
        if (one_in > 0 && (unsigned)rand_r(&seed) % one_in == 0)
            continue;
        f->due_ns = now_ns() + delay_ns;
        f->nbytes = (uint32_t)n;
        f->from = from;
        tail += (sizeof *f + f->nbytes + 7) / 8 * 8;
    }
}

static void deliver(const frame *f)
{
    const uint8_t *to = f->bytes + HEADER_NBYTES;
    for (int i = 0; i < nports; i++)
        if ((uint32_t)i != f->from && ((to[0] & 1) != 0 || memcmp(to, ports[i].mac, 6) == 0) &&
            write(ports[i].fd, f->bytes, f->nbytes) < 0 && errno != EIO && errno != EAGAIN)
            must(0, "write");
}

/* Sends the frames that are due. Returns how long the next frame still waits; 1 s if there is none. */
static uint64_t send_due(void)
{
    while (head != tail) {
        if (tail < head && head == wrap) {
            head = 0;
            wrap = QUEUE_NBYTES;
            continue;
        }
        const frame *f = (const frame *)(queue + head);
        const uint64_t now = now_ns();
        if (f->due_ns > now)
            return f->due_ns - now;
        deliver(f);
        head += (sizeof *f + f->nbytes + 7) / 8 * 8;
    }
    return 1000000000u;
}

int main(int argc, char **argv)
{
    struct pollfd polled[PORTS_MAX];
    must(argc >= 4 && argc - 3 <= PORTS_MAX,
         "usage: delay_switch MICROSECONDS ONE_IN NAMESPACE...");
    const uint64_t delay_ns = strtoull(argv[1], NULL, 10) * 1000;
    const unsigned one_in = (unsigned)strtoul(argv[2], NULL, 10);
    queue = malloc(QUEUE_NBYTES);
    must(queue != NULL, "queue");
    for (; nports < argc - 3; nports++) {
        ports[nports].fd = open_tap(argv[3 + nports]);
        polled[nports] = (struct pollfd){.fd = ports[nports].fd, .events = POLLIN};
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        const uint64_t wait_ns = send_due();
        const struct timespec wait = {.tv_sec = (time_t)(wait_ns / 1000000000u),
                                      .tv_nsec = (long)(wait_ns % 1000000000u)};
        must(ppoll(polled, (nfds_t)nports, &wait, NULL) >= 0 || errno == EINTR, "ppoll");
        for (int i = 0; i < nports; i++)
            if (polled[i].revents != 0)
                receive((uint32_t)i, delay_ns, one_in);
    }
}
