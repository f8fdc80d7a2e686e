/* The DCP reader over every fixture from several threads, and over damaged copies: it succeeds or
 * says why not, touches no foreign memory and gives all of its own back. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "formats/dcp/dcp.h"
#include "tests/support/scratch.h"

enum { THREADS = 4, DAMAGED_COPIES = 30 };

typedef struct job {
    catalogue *cat;
    source *src;
} job;

static fsdpck_status read_stream(const job *j, uint64_t chunk, const place *where,
                                 fsdpck_error *err)
{
    source_stream *s;
    uint8_t bytes[4096];
    fsdpck_status st = j->src->stream_open(j->src->ctx, chunk, &s, err);
    if (st != FSDPCK_OK)
        return st;
    uint64_t left = where->record_offset_bytes + where->record_nbytes;
    while (left > 0 && st == FSDPCK_OK) {
        const uint64_t n = left < sizeof bytes ? left : sizeof bytes;
        st = j->src->stream_read(s, bytes, n, err);
        left -= n;
    }
    if (st == FSDPCK_OK)
        st = j->src->stream_finish(s, err);
    j->src->stream_close(s);
    return st;
}

static fsdpck_status read_chunk(void *ctx, unsigned worker, uint64_t chunk, fsdpck_error *err)
{
    const job *j = ctx;
    const cat_chunk *c = catalogue_chunk(j->cat, chunk);
    place where;
    (void)worker;
    if (c->place == LOCATION_EMPTY)
        return FSDPCK_OK;
    RETURN_IF(j->src->locate(j->src->ctx, chunk, &where, err));
    if (where.stream)
        return read_stream(j, chunk, &where, err);
    uint8_t *bytes = malloc((size_t)where.record_nbytes + 1);
    const fsdpck_status st = j->src->read_at(j->src->ctx, where.file, where.record_offset_bytes,
                                             bytes, where.record_nbytes, err);
    free(bytes);
    return st;
}

static fsdpck_status read_all(const open_request *req, catalogue *cat, fsdpck_error *err)
{
    void *self;
    source src;
    RETURN_IF(dcp_reader.open(req, cat, &self, err));
    dcp_reader.source(self, cat, &src);
    job j = {.cat = cat, .src = &src};
    fsdpck_status st = pool_run(THREADS, catalogue_chunk_count(cat), read_chunk, &j, NULL, err);
    for (uint32_t i = 0; i < catalogue_object_count(cat); i++) {
        fsdpck_error own;
        fsdpck_error_init(&own);
        const fsdpck_status loaded = dcp_reader.load_object(self, cat, i, &own);
        assert(loaded == own.status);
        if (loaded != FSDPCK_OK && st == FSDPCK_OK) {
            st = loaded;
            if (err != NULL)
                *err = own;
        }
    }
    if (st == FSDPCK_OK)
        st = pool_run(THREADS, catalogue_chunk_count(cat), read_chunk, &j, NULL,
                      err); /* with tensors in objects */
    if (st == FSDPCK_OK)
        st = src.check_unchanged(src.ctx, err);
    dcp_reader.close(self);
    return st;
}

static fsdpck_status run(const char *path, fsdpck_error *err)
{
    folder dir;
    char **names;
    budget b;
    catalogue cat;
    probe_input probe = {.path = path, .is_folder = true};
    fsdpck_error_init(err);
    if (folder_open(&dir, path, err) != FSDPCK_OK ||
        folder_list(&dir, NULL, &names, &probe.entry_count, err) != FSDPCK_OK)
        abort();
    probe.dir = dir;
    probe.entries = names;
    budget_init(&b, 64u << 20, "metadata", NULL);
    const open_request req = {.path = path, .probe = &probe, .metadata = &b, .nthreads = THREADS};
    catalogue_init(&cat, &b);
    const fsdpck_status st = read_all(&req, &cat, err);
    catalogue_release(&cat);
    assert(b.used_bytes == 0);
    assert(st == FSDPCK_OK || err->message[0] != '\0');
    free(names);
    folder_close(&dir);
    return st;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* A copy with a few bytes changed, or one file cut. */
static void copy_damaged(const char *from, const char *to, uint32_t *state)
{
    folder dir;
    char **names;
    size_t count;
    if (folder_open(&dir, from, NULL) != FSDPCK_OK ||
        folder_list(&dir, NULL, &names, &count, NULL) != FSDPCK_OK)
        abort();
    const size_t victim = next_random(state) % count;
    for (size_t i = 0; i < count; i++) {
        char *bytes;
        size_t nbytes;
        if (file_read_whole(&dir, names[i], 1u << 26, &bytes, &nbytes, NULL) != FSDPCK_OK)
            abort();
        /* The metadata is hit in half of the copies, whichever file was drawn. */
        const int hit =
            i == victim || (strstr(names[i], ".metadata") != NULL && next_random(state) % 2 == 0);
        for (int k = 0; hit && nbytes > 0 && k < 3; k++)
            bytes[next_random(state) % nbytes] ^= (char)(1u << next_random(state) % 8);
        if (hit && nbytes > 0 && next_random(state) % 8 == 0)
            nbytes = next_random(state) % nbytes;
        scratch_write(to, names[i], bytes, nbytes);
        free(bytes);
    }
    free(names);
    folder_close(&dir);
}

static int check_fixture(const char *path, uint32_t *state)
{
    fsdpck_error err;
    unsigned refused = 0;
    if (run(path, &err) != FSDPCK_OK) {
        fprintf(stderr, "%s: %s %s (%s, %s)\n", path, fsdpck_finding_name(err.finding), err.message,
                err.expected, err.found);
        return 1;
    }
    for (int i = 0; i < DAMAGED_COPIES; i++) {
        char dir[SCRATCH_BYTES];
        scratch_make(dir);
        copy_damaged(path, dir, state);
        refused += run(dir, &err) != FSDPCK_OK;
        scratch_remove(dir);
    }
    if (refused < DAMAGED_COPIES / 4) {
        fprintf(stderr, "%s: only %u of %d damaged copies were refused\n", path, refused,
                DAMAGED_COPIES);
        return 1;
    }
    return 0;
}

static unsigned check_release(const char *root, const char *release, uint32_t *state, int *failed)
{
    char path[SCRATCH_BYTES], **names;
    size_t count;
    unsigned checked = 0;
    folder dir;
    scratch_path(path, root, release);
    if (folder_open(&dir, path, NULL) != FSDPCK_OK ||
        folder_list(&dir, NULL, &names, &count, NULL) != FSDPCK_OK)
        abort();
    for (size_t i = 0; i < count; i++) {
        char fixture[SCRATCH_BYTES];
        if (strncmp(names[i], "dcp-", 4) != 0 || strchr(names[i], '.') != NULL)
            continue;
        *failed |= check_fixture(scratch_path(fixture, path, names[i]), state);
        checked++;
    }
    free(names);
    folder_close(&dir);
    return checked;
}

int main(void)
{
    const char *root = getenv("FIXTURES");
    char **names;
    size_t count;
    folder dir;
    unsigned checked = 0;
    uint32_t state = 20;
    int failed = 0;
    if (root == NULL) {
        fprintf(stderr, "FIXTURES is not set\n");
        return 1;
    }
    if (folder_open(&dir, root, NULL) != FSDPCK_OK ||
        folder_list(&dir, NULL, &names, &count, NULL) != FSDPCK_OK)
        return 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], "torch-", 6) == 0)
            checked += check_release(root, names[i], &state, &failed);
    free(names);
    folder_close(&dir);
    printf("%u fixtures\n", checked);
    return failed || checked < 10;
}
