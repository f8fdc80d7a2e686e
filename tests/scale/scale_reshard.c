/* Planning a large reshard, without data: parameters with their two Adam moments, cut by rows over
 * 1,024 ranks, to 256 ranks of a DCP folder. The source catalogue is made in memory, as the DCP
 * reader leaves it; from there all is what a run does before it writes: layout explained from the
 * chunks, aim, the writer's places, plan, heads located (by a source that invents them), and every
 * segment of every item generated once and thrown away. Time grows no faster than n log n, memory
 * with the chunks.
 *
 * Arguments: parameters (200), whether the largest size alone is run ("only"). 3,000 parameters make
 * 9.2 million chunks in and 2.3 million out: under 20 s and 2 GiB on two cores.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/segment.h"
#include "tests/support/seconds.h"
#include "tests/support/synthetic_dcp.h"

#define RANKS_IN  1024u
#define RANKS_OUT 256u
#define LIMIT     ((uint64_t)2 << 30)
#define SECONDS   20.0

typedef struct times {
    double explain, aim, place, plan, locate, segments;
    double planned; /* the sum of the first four */
} times;

/* CPU time of all threads: what else runs on the machine does not count. */
static double since(double *last)
{
    const double now = cpu_seconds();
    const double took = now - *last;
    *last = now;
    return took;
}

/* Weights of 8,192 rows, every fifth of a few more, with nothing on the last ranks; every eighth
 * tensor is a bias. */
static unsigned shape_of(uint64_t parameter, uint64_t *shape)
{
    shape[0] = 8192 + (parameter % 5 == 4 ? parameter % 97 : 0);
    shape[1] = 4096;
    return parameter % 8 == 7 ? 1 : 2;
}

static void name_of(uint64_t parameter, char *fqn, size_t capacity)
{
    snprintf(fqn, capacity, "layers.%" PRIu64 ".weight", parameter);
}

/* Every segment of every item: elements must add up to those of the target. */
static uint64_t walk_items(const plan *p)
{
    static segment_walk s;
    uint64_t nelems = 0;
    for (uint64_t i = 0; i < plan_item_count(p); i++) {
        output_range range;
        range_walk w;
        range_part part;
        plan_get_item(p, i, &range);
        range_walk_begin(&w, p, &range);
        while (range_walk_next(&w, &part)) {
            if (part.kind != RANGE_PART_CHUNK)
                continue;
            /* Whole elements: one that an item's edge cuts is counted by the item that begins it. */
            const uint64_t shared = part.begin > part.chunk_begin + part.first_elem * 4;
            segment_walk_begin(&s, p, part.chunk, part.first_elem + shared, part.end_elem);
            while (segment_walk_next(&s))
                nelems += s.nelems;
        }
    }
    return nelems;
}

static void print_times(const synthetic_dcp *w, const plan_totals *sums, const times *t,
                        uint64_t kept_nbytes)
{
    printf("%5" PRIu64 " tensors, %8" PRIu64 " chunks in, %8" PRIu64 " out, %9" PRIu64
           " segments: planned in %.2f s (explain %.2f, aim %.2f, places %.2f, plan %.2f), located "
           "%.2f, segments %.2f; plan %.1f bytes a chunk; peak %.0f MB\n",
           w->tensors, catalogue_chunk_count(&w->from), catalogue_chunk_count(&w->to.cat),
           sums->segments_at_least, t->planned, t->explain, t->aim, t->place, t->plan, t->locate,
           t->segments, (double)kept_nbytes / (double)catalogue_chunk_count(&w->from),
           (double)synthetic_dcp_peak_nbytes() / 1e6);
    fflush(stdout);
}

static double measure(uint64_t parameters)
{
    const synthetic_dcp_model model = {parameters, name_of, shape_of};
    synthetic_dcp w;
    plan_totals sums;
    times t;
    synthetic_dcp_init(&w, &model, RANKS_IN, LIMIT);
    const uint64_t chunks = catalogue_chunk_count(&w.from);
    synthetic_dcp_must(w.metadata.used_bytes <= 64 * chunks + (4 << 20),
                       "more than 64 bytes a source chunk");
    double last = cpu_seconds();
    synthetic_dcp_explain(&w);
    t.explain = since(&last);
    synthetic_dcp_select(&w, RANKS_OUT);
    t.aim = since(&last);
    synthetic_dcp_lay_out(&w);
    t.place = since(&last);
    const uint64_t before = w.metadata.used_bytes;
    synthetic_dcp_plan(&w);
    t.plan = since(&last);
    t.planned = t.explain + t.aim + t.place + t.plan;
    const uint64_t kept = w.metadata.used_bytes - before;
    synthetic_dcp_resolve(&w);
    t.locate = since(&last);
    plan_get_totals(w.plan, &sums);
    synthetic_dcp_must(walk_items(w.plan) * 4 == sums.target_bytes, "segments do not add up");
    t.segments = since(&last);
    print_times(&w, &sums, &t, kept);
    synthetic_dcp_must(synthetic_dcp_peak_nbytes() <= LIMIT, "more than 2 GiB");
    synthetic_dcp_must(t.planned + t.locate < SECONDS, "more than 20 s");
    synthetic_dcp_must(kept <= 32 * chunks, "the plan keeps too much");
    synthetic_dcp_must(sums.target_bytes == sums.source_bytes, "bytes were lost");
    synthetic_dcp_release(&w);
    return t.planned + t.locate + t.segments;
}

/* The better of two: other work shares the caches. */
static double best(uint64_t parameters)
{
    const double one = measure(parameters);
    const double two = measure(parameters);
    return one < two ? one : two;
}

int main(int argc, char **argv)
{
    const uint64_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    if (argc > 2) {
        measure(most);
        return 0;
    }
    const double quarter = best(most / 4);
    const double half = best(most / 2);
    const double whole = best(most);
    printf("twice the tensors: %.2f and %.2f times the time\n", half / quarter, whole / half);
    /* n log n gives 4.4 over a factor of 4; cache misses a little more; quadratic is 16. */
    synthetic_dcp_must(whole < 9 * quarter || whole < 0.3, "time grows faster than n log n");
    return 0;
}
