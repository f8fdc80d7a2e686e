/* The simulated GPU refuses what a device refuses, or what only a device shows. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/support/fake_gpu.h"

#define NBYTES 4096u

typedef struct bench {
    fake_gpu f;
    const gpu_calls *c;
    gpu_stream *s;
    gpu_address device;
    void *pinned;
    fsdpck_error err;
} bench;

static bench b;

static void begin_as(fake_mode mode)
{
    memset(&b, 0, sizeof b);
    fake_gpu_init(&b.f);
    b.f.mode = mode;
    b.c = b.f.base.calls;
    cr_assert_eq(b.c->stream_new(&b.f.base, false, &b.s, &b.err), FSDPCK_OK);
    cr_assert_eq(b.c->host_new(&b.f.base, NBYTES, &b.pinned, &b.err), FSDPCK_OK);
    cr_assert_eq(b.c->device_new(&b.f.base, NBYTES, &b.device, &b.err), FSDPCK_OK);
    memset(b.pinned, 7, NBYTES);
}

static void end(void)
{
    b.c->stream_free(b.s);
    b.c->device_free(&b.f.base, b.device);
    b.c->host_free(&b.f.base, b.pinned, NBYTES);
    fake_gpu_release(&b.f);
}

Test(fake_gpu, the_host_does_not_read_the_device, .signal = SIGSEGV)
{
    begin_as(FAKE_LAST);
    cr_assert_eq(*(volatile uint8_t *)(uintptr_t)b.device, 7);
}

Test(fake_gpu, the_device_does_not_read_the_host, .signal = SIGABRT)
{
    begin_as(FAKE_EAGER);
    (void)b.c->zero(b.s, (uintptr_t)b.pinned, 8, &b.err);
}

Test(fake_gpu, copies_are_of_pinned_memory, .signal = SIGABRT)
{
    uint8_t bytes[8] = {0};
    begin_as(FAKE_EAGER);
    (void)b.c->copy_in(b.s, b.device, bytes, sizeof bytes, &b.err);
}

Test(fake_gpu, an_allocation_ends, .signal = SIGABRT)
{
    begin_as(FAKE_EAGER);
    (void)b.c->zero(b.s, b.device + 8, NBYTES, &b.err);
}

Test(fake_gpu, another_device_has_other_addresses, .signal = SIGABRT)
{
    begin_as(FAKE_EAGER);
    static fake_gpu other;
    gpu_address there;
    fake_gpu_init(&other);
    cr_assert_eq(b.c->device_new(&other.base, NBYTES, &there, &b.err), FSDPCK_OK);
    (void)b.c->zero(b.s, there, 8, &b.err);
}

/* Two copies in, one out: at the last moment, at once, or some time. */
Test(fake_gpu, work_is_done_when_its_mode_says)
{
    for (fake_mode mode = FAKE_LAST; mode <= FAKE_THREADS; mode++) {
        bool done = false;
        unsigned asked = 0;
        begin_as(mode);
        cr_assert_eq(b.c->copy_in(b.s, b.device, b.pinned, 100, &b.err), FSDPCK_OK);
        cr_assert_eq(b.c->copy_in(b.s, b.device + 100, b.pinned, 100, &b.err), FSDPCK_OK);
        cr_assert_eq(b.c->copy_out(b.s, (uint8_t *)b.pinned + 1000, b.device, 200, &b.err),
                     FSDPCK_OK);
        cr_assert_eq(b.c->mark(b.s, 0, &b.err), FSDPCK_OK);
        if (mode == FAKE_LAST)
            cr_assert_eq(atomic_load(&b.f.copies), 0);
        if (mode == FAKE_EAGER)
            cr_assert_eq(atomic_load(&b.f.copies), 3);
        for (; !done; asked++)
            cr_assert_eq(b.c->is_done(b.s, 0, &done, &b.err), FSDPCK_OK);
        cr_assert(mode != FAKE_LAST || asked == 3);
        cr_assert_eq(((const uint8_t *)b.pinned)[1199], 7);
        cr_assert_eq(atomic_load(&b.f.in_nbytes), 200);
        cr_assert_eq(atomic_load(&b.f.out_nbytes), 200);
        end();
    }
}

/* A failure of submitted work is found by a wait, and from then on by every call of every stream. */
Test(fake_gpu, late_errors_remain)
{
    gpu_stream *other;
    gpu_address more;
    begin_as(FAKE_LAST);
    b.f.late_fail_at = 2;
    cr_assert_eq(b.c->stream_new(&b.f.base, false, &other, &b.err), FSDPCK_OK);
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(b.c->zero(b.s, b.device, 8, &b.err), FSDPCK_OK);
    cr_assert_eq(b.c->mark(b.s, 0, &b.err), FSDPCK_OK);
    cr_assert_eq(b.c->wait(b.s, 0, &b.err), FSDPCK_DEVICE);
    cr_assert_eq(b.c->zero(other, b.device, 8, &b.err), FSDPCK_DEVICE);
    cr_assert_eq(b.c->device_new(&b.f.base, 8, &more, &b.err), FSDPCK_DEVICE);
    b.c->stream_free(other);
    end();
}

Test(fake_gpu, there_is_so_much_memory)
{
    gpu_address more;
    void *pinned;
    begin_as(FAKE_LAST);
    b.f.device_most = b.f.pinned_most = 3 * NBYTES;
    cr_assert_eq(b.c->device_new(&b.f.base, 3 * NBYTES, &more, &b.err), FSDPCK_DEVICE);
    cr_assert_eq(b.c->device_new(&b.f.base, 2 * NBYTES, &more, &b.err), FSDPCK_OK);
    cr_assert_eq(b.c->host_new(&b.f.base, 3 * NBYTES, &pinned, &b.err), FSDPCK_DEVICE);
    b.c->device_free(&b.f.base, more);
    end();
}

Test(fake_gpu, a_thread_has_a_current_device)
{
    begin_as(FAKE_LAST);
    cr_assert_eq(fake_gpu_current(), 0);
    const int before = b.c->enter(&b.f.base);
    const int within = b.c->enter(&b.f.base);
    b.c->leave(&b.f.base, within);
    cr_assert_neq(fake_gpu_current(), 0);
    b.c->leave(&b.f.base, before);
    cr_assert_eq(fake_gpu_current(), 0);
    end();
}
