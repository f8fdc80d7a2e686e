/* scale_unit: lists of units take time in proportion: 16 times the parameters may not take
 * more than 100 times as long (what leaves the caches makes it 40). Up to 1,048,576 parameters, in
 * one unit and in many, read from JSON, laid out and scaled; then all pieces of 1024 ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/unit_json.h"
#include "tests/support/must.h"
#include "tests/support/seconds.h"

#define PARAMS_MAX ((uint32_t)1 << 20)
#define RANKS      1024u

/* A document of so many parameters, a few in each unit or all in one. */
static void write_units(uint32_t count, uint32_t per_unit, text_buf *text)
{
    text_puts(text, "[");
    for (uint32_t i = 0; i < count; i++) {
        if (i % per_unit == 0)
            text_printf(text,
                        "%s{\"prefix\": \"layers.%" PRIu32 "\", \"use_orig_params\": true,"
                        " \"dtype\": \"float32\", \"params\": [",
                        i > 0 ? "]}, " : "", i);
        text_printf(text, "%s{\"fqn\": \"layers.%" PRIu32 ".weight\", \"shape\": [%" PRIu32 ", 7]}",
                    i % per_unit == 0 ? "" : ", ", i, 1 + i % 5);
    }
    text_puts(text, "]}]");
    must(text_check(text, NULL) == FSDPCK_OK, "text");
}

/* Elements of all pieces of all ranks of a unit. */
static uint64_t count_pieces(const unit_list *l, const unit *u)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < u->world_size; rank++) {
        uint32_t first, end;
        unit_params_of_rank(l, u, rank, &first, &end);
        for (uint32_t k = first; k < end; k++) {
            const unit_param_range p = unit_param_range_of(l, u, k, rank);
            sum += p.end - p.begin;
        }
    }
    return sum;
}

/* Seconds for one list. */
static double run(uint32_t count, uint32_t per_unit)
{
    text_buf text = {0};
    unit_list l, scaled;
    json_reader r;
    json_token t;
    budget b;
    uint64_t elements = 0;
    uint64_t pieces = 0;
    budget_init(&b, (uint64_t)1 << 30, "metadata", NULL);
    unit_list_init(&l, &b);
    unit_list_init(&scaled, &b);
    write_units(count, per_unit, &text);
    const double start = cpu_seconds();
    json_reader_init(&r, text.text, text.nbytes, FSDPCK_FINDING_MODEL_JSON);
    must(json_expect(&r, JSON_ARRAY, &t, NULL) == FSDPCK_OK, "array");
    must(unit_json_read(&r, &(unit_defaults){.world_size = 8}, &l, NULL) == FSDPCK_OK, "read");
    must(unit_list_scale(&l, per_unit == count ? RANKS : 16, &scaled, NULL) == FSDPCK_OK, "scale");
    for (uint32_t i = 0; i < unit_count(&scaled); i++) {
        const unit *u = unit_at(&scaled, i);
        pieces += count_pieces(&scaled, u);
        for (uint32_t k = 0; k < u->nparams; k++)
            elements += unit_param_at(&scaled, u, k)->nelems;
    }
    const double seconds = cpu_seconds() - start;
    must(pieces == elements && elements > 0, "pieces are not all elements");
    json_reader_release(&r);
    unit_list_release(&l);
    unit_list_release(&scaled);
    text_release(&text);
    return seconds;
}

/* The least of three, so that the machine's noise does not count. */
static double best(uint32_t count, uint32_t per_unit)
{
    double least = run(count, per_unit);
    for (int i = 0; i < 2; i++) {
        const double again = run(count, per_unit);
        least = again < least ? again : least;
    }
    return least;
}

int main(void)
{
    for (int one = 0; one <= 1; one++) {
        const uint32_t few = PARAMS_MAX / 16;
        const double small = best(few, one ? few : 8);
        const double large = best(PARAMS_MAX, one ? PARAMS_MAX : 8);
        printf("%s: %.3f s for %u parameters, %.3f s for %u\n", one ? "one unit" : "many units",
               small, few, large, PARAMS_MAX);
        must(large < 100 * small, "more than in proportion");
        must(large < 10, "more than 10 s");
    }
    return 0;
}
