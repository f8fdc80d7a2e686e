/* Cells are placed in their order and written whole, whatever the threads do, and a failure of any of them
 * ends the run with its error. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/support/exec_harness.h"

enum { CELL = 1000 };

/* In target.writer_state: the coder copies, so that the file is the image. */
typedef struct packer {
    uint64_t placed;
    uint64_t fail_code, fail_place; /* cells; UINT64_MAX: none */
    uint64_t file_nbytes;
    bool finished;
} packer;

static uint64_t number_of(const target *t, const filter_cell *cell)
{
    return VEC_AT(&t->pack.grids, const filter_grid, cell->tensor)->first_cell + cell->number;
}

static fsdpck_status coder_new(const target *t, void **coder, fsdpck_error *err)
{
    (void)t;
    (void)err;
    *coder = NULL;
    return FSDPCK_OK;
}

static void coder_free(void *coder)
{
    cr_assert_null(coder);
}

/* Some take long, so that later ones are ready first. */
static fsdpck_status code(const target *t, void *coder, const filter_cell *cell,
                          const uint8_t *bytes, uint8_t *coded, uint64_t *nbytes, uint32_t *how,
                          fsdpck_error *err)
{
    const packer *p = t->writer_state;
    const uint64_t number = number_of(t, cell);
    (void)coder;
    if (number % 5 == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (number == p->fail_code)
        return error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_NONE, "cell %u", (unsigned)number);
    memcpy(coded, bytes, cell->nbytes);
    *nbytes = cell->nbytes;
    *how = (uint32_t)number;
    return FSDPCK_OK;
}

static fsdpck_status put_in_place(target *t, const filter_cell *cell, uint64_t nbytes, uint32_t how,
                                  uint64_t *offset_bytes, fsdpck_error *err)
{
    packer *p = t->writer_state;
    cr_assert_eq(p->placed, number_of(t, cell));
    cr_assert_eq(p->placed, how);
    cr_assert_eq(nbytes, cell->nbytes);
    if (p->placed == p->fail_place)
        return error_set(err, FSDPCK_IO, FSDPCK_FINDING_NONE, "place of cell %u",
                         (unsigned)p->placed);
    p->placed++;
    *offset_bytes = catalogue_chunk(&t->cat, catalogue_tensor(&t->cat, cell->tensor)->first_chunk)
                        ->offset_bytes +
                    cell->at;
    return FSDPCK_OK;
}

static fsdpck_status finish(target *t, uint64_t *file_nbytes, fsdpck_error *err)
{
    packer *p = t->writer_state;
    (void)err;
    p->finished = true;
    *file_nbytes = p->file_nbytes;
    return FSDPCK_OK;
}

/* What no chunk has of the file. */
static fsdpck_status put_rest(const target *t, filter_put_fn put, void *ctx, fsdpck_error *err)
{
    (void)t;
    return put(ctx, 0, "\0", 1, err);
}

static exec_harness *packed_world(packer *p)
{
    static const uint64_t shapes[][2] = {{30, 1000}, {1, 1}, {0, 5}, {7, 333}};
    exec_harness *w = exec_harness_new(1, 1);
    target_filter *pack = &w->to.pack;
    *p = (packer){.fail_code = UINT64_MAX, .fail_place = UINT64_MAX};
    pack->grids = VEC_OF(filter_grid, NULL);
    pack->places = VEC_OF(filter_location, NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char name[8];
        const uint64_t span = 4 * shapes[i][1];
        (void)snprintf(name, sizeof name, "t%zu", i);
        const uint32_t t = memory_source_add_tensor(&w->source, name, DTYPE_FLOAT32, 2, shapes[i]);
        memory_source_add_chunk(&w->source, t, (uint64_t[]){0, 0}, shapes[i],
                                &(memory_layout){.gap_nbytes = 5});
        cr_assert_eq(
            filter_add_tensor(pack, span < CELL ? span : CELL, span, shapes[i][0] * span, NULL),
            FSDPCK_OK);
    }
    memory_source_seal(&w->source);
    for (uint32_t t = 0; t < sizeof shapes / sizeof shapes[0]; t++)
        exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 13);
    exec_harness_expect(w);
    p->file_nbytes = catalogue_file(&w->to.cat, 0)->nbytes;
    w->to.writer_state = p;
    pack->coder_new = coder_new;
    pack->coder_free = coder_free;
    pack->code = code;
    pack->place = put_in_place;
    pack->finish = finish;
    pack->put_rest = put_rest;
    return w;
}

Test(compress, the_file_is_the_same_with_any_number_of_threads)
{
    static const unsigned threads[] = {1, 2, 3, 16};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        packer p;
        fsdpck_error err = {0};
        exec_harness *w = packed_world(&p);
        cr_assert_eq(exec_harness_run(w, &(exec_harness_options){.nthreads = threads[i]}, &err),
                     FSDPCK_OK, "%s", err.message);
        cr_expect(p.finished);
        cr_expect_eq(p.placed, w->to.pack.cell_count);
        exec_harness_free(w);
    }
}

static void must_fail(uint64_t fail_code, uint64_t fail_place, unsigned nthreads, fsdpck_status st,
                      const char *message)
{
    packer p;
    fsdpck_error err = {0};
    exec_harness *w = packed_world(&p);
    p.fail_code = fail_code;
    p.fail_place = fail_place;
    cr_expect_eq(exec_harness_run(w, &(exec_harness_options){.nthreads = nthreads}, &err), st);
    cr_expect_str_eq(err.message, message);
    cr_expect(!p.finished);
    exec_harness_free(w);
}

Test(compress, a_failure_ends_it_for_all, .timeout = 60)
{
    static const unsigned threads[] = {1, 2, 16};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        must_fail(0, UINT64_MAX, threads[i], FSDPCK_BADINPUT, "cell 0");
        must_fail(35, UINT64_MAX, threads[i], FSDPCK_BADINPUT, "cell 35");
        must_fail(UINT64_MAX, 35, threads[i], FSDPCK_IO, "place of cell 35");
    }
}
