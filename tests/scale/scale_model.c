/* Descriptions of many modules are read and laid out in time and memory in proportion: 8 times the
 * modules take at most 24 times as long. Up to 1,048,576 modules with MODEL_SCALE=full, whose
 * limits are 3 seconds and 1 GiB with the text; an eighth of it otherwise. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdpck.h"
#include "model/model.h"
#include "tests/support/seconds.h"

typedef enum tree_kind {
    BLOCKS,   /* transformer blocks, each a unit */
    FLAT,     /* one unit, all modules below the root */
    TIED,     /* one unit, each parameter tied to one far away */
    REPEATED, /* one block registered again and again */
    BY_CLASS, /* blocks, chosen by a policy */
    BY_SIZE,
    SHARDED, /* blocks of FSDP2 */
    TREE_KINDS
} tree_kind;

static const char *const names[] = {"blocks",   "flat",    "tied",   "repeated",
                                    "by class", "by size", "sharded"};

static void must(bool ok, const char *what, const fsdpck_error *err)
{
    if (ok)
        return;
    fprintf(stderr, "scale_model: %s: %s, found %s\n", what, err->message, err->found);
    exit(1);
}

static void put_block(text_buf *out, tree_kind kind, uint64_t b)
{
    const char *unit_key = kind == BLOCKS    ? ", \"fsdp\": {\"use_orig_params\": true}"
                           : kind == SHARDED ? ", \"fully_shard\": {}"
                                             : "";
    text_printf(out, ",\n{\"name\": \"layers.%" PRIu64 "\", \"class\": \"Block\"%s}", b, unit_key);
    if (kind == REPEATED && b > 0) {
        out->nbytes -= 1;
        text_puts(out, ", \"same_as\": \"layers.0\"}");
        return;
    }
    for (int i = 0; i < 7; i++)
        text_printf(out,
                    ",\n{\"name\": \"layers.%" PRIu64
                    ".linear%d\", \"class\": \"Linear\", \"params\": "
                    "[{\"name\": \"weight\", \"shape\": [%d, 40], \"dtype\": \"float32\"}]}",
                    b, i, 8 + i);
}

static void put_leaf(text_buf *out, tree_kind kind, uint64_t i, uint64_t n)
{
    text_printf(out, ",\n{\"name\": \"layers.%" PRIu64 "\", \"params\": [", i);
    if (kind == TIED && i >= n / 2)
        text_printf(out, "{\"name\": \"weight\", \"same_as\": \"layers.%" PRIu64 ".weight\"}]}",
                    (i - n / 2) * UINT64_C(7919) % (n / 2));
    else
        text_puts(out, "{\"name\": \"weight\", \"shape\": [3, 40], \"dtype\": \"float32\"}]}");
}

static void describe(tree_kind kind, uint64_t n, text_buf *out)
{
    text_puts(out, "{\"version\": 1, \"world_size\": 64, ");
    if (kind == BY_CLASS)
        text_puts(out, "\"auto_wrap\": {\"module\": \"\", \"classes\": [\"Block\"]}, ");
    if (kind == BY_SIZE)
        text_puts(out, "\"auto_wrap\": {\"module\": \"\", \"min_numel\": 500}, ");
    text_puts(out, "\"modules\": [{\"name\": \"\", ");
    text_puts(out,
              kind == SHARDED ? "\"fully_shard\": {}}" : "\"fsdp\": {\"use_orig_params\": true}}");
    text_puts(out, ",\n{\"name\": \"layers\"}");
    if (kind == FLAT || kind == TIED) {
        for (uint64_t i = 0; i < n; i++)
            put_leaf(out, kind, i, n);
    } else {
        for (uint64_t b = 0; b < n / 8; b++)
            put_block(out, kind, b);
    }
    text_puts(out, "]}\n");
}

static double measure(tree_kind kind, uint64_t n, bool full)
{
    text_buf text = {.limit_bytes = (size_t)1 << 31};
    budget b;
    model m;
    unit_list units;
    sharded_list groups;
    fsdpck_error err;
    fsdpck_error_init(&err);
    describe(kind, n, &text);
    must(text_check(&text, &err) == FSDPCK_OK, "text", &err);
    budget_init(&b, ((uint64_t)1 << 30) - text.nbytes, "metadata", NULL);
    model_init(&m, &b);
    unit_list_init(&units, &b);
    sharded_list_init(&groups, &b);
    const double begin = cpu_seconds();
    must(model_read(&m, text.text, text.nbytes, &err) == FSDPCK_OK, "read", &err);
    if (kind == SHARDED)
        must(model_find_fully_sharded(&m, &groups, &err) == FSDPCK_OK, "groups", &err);
    else
        must(model_find_units(&m, &(model_ranks){0}, &units, &err) == FSDPCK_OK, "units", &err);
    const double seconds = cpu_seconds() - begin;
    const size_t count = kind == SHARDED ? groups.units.count : unit_count(&units);
    must(model_module_count(&m) > n - 8, "modules", &err);
    must(kind == FLAT || kind == TIED || kind == REPEATED ? count == 1 : count >= n / 8,
         "count of units", &err);
    if (full)
        printf("%-9s %8" PRIu64 " modules: %5.2f s, %4zu MiB of text, %4" PRIu64 " MiB more\n",
               names[kind], n, seconds, text.nbytes >> 20, b.used_bytes >> 20);
    sharded_list_release(&groups);
    unit_list_release(&units);
    model_release(&m);
    text_release(&text);
    must(b.used_bytes == 0, "memory was not given back", &err);
    return seconds;
}

/* The public way, all units, parameters and pieces of a rank walked: what `fsdpck layout` does but for
 * its text. */
static double measure_public(tree_kind kind, uint64_t n, bool full)
{
    text_buf text = {.limit_bytes = (size_t)1 << 31};
    fsdpck_error err;
    fsdpck_model *m = NULL;
    fsdpck_units *units = NULL;
    fsdpck_units_info all = {.struct_nbytes = sizeof all};
    fsdpck_error_init(&err);
    describe(kind, n, &text);
    must(text_check(&text, &err) == FSDPCK_OK, "text", &err);
    const double begin = cpu_seconds();
    must(fsdpck_model_read(NULL, text.text, text.nbytes, &m, &err) == FSDPCK_OK, "read", &err);
    must(fsdpck_units_new(m, 8, 0, &units, &err) == FSDPCK_OK, "units", &err);
    fsdpck_units_get_info(units, &all);
    uint64_t nbytes = all.whole_nbytes;
    for (uint64_t i = 0; i < all.units; i++) {
        fsdpck_unit of = {.struct_nbytes = sizeof of};
        fsdpck_units_get(units, i, &of);
        for (uint64_t k = 0; k < of.params; k++) {
            fsdpck_unit_param param = {.struct_nbytes = sizeof param};
            fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
            fsdpck_units_get_param(units, i, k, &param);
            fsdpck_units_get_param_shard(units, i, k, 3, &piece);
            nbytes += piece.nelems * param.itemsize_nbytes;
        }
    }
    const double seconds = cpu_seconds() - begin;
    fsdpck_units_rank rank = {.struct_nbytes = sizeof rank};
    fsdpck_units_get_rank(units, 3, &rank);
    must(rank.nbytes == nbytes, "bytes of a rank", &err);
    if (full)
        printf("%-9s %8" PRIu64 " modules: %5.2f s the public way\n", names[kind], n, seconds);
    fsdpck_units_free(units);
    fsdpck_model_close(m);
    text_release(&text);
    return seconds;
}

/* Each module in the one before: no recursion, and paths that grow as the document does. */
static void read_chain(unsigned depth)
{
    text_buf text = {0};
    text_buf path = {0};
    budget b;
    model m;
    unit_list units;
    fsdpck_error err;
    fsdpck_error_init(&err);
    text_puts(&text,
              "{\"version\": 1, \"world_size\": 2, \"modules\": [{\"name\": \"\", \"fsdp\": {}}");
    for (unsigned i = 0; i < depth; i++) {
        text_puts(&path, i > 0 ? ".m" : "m");
        text_printf(
            &text,
            ", {\"name\": \"%s\", \"fsdp\": {}, \"params\": [{\"name\": \"w\", \"shape\": [3], "
            "\"dtype\": \"float32\"}]}",
            path.text);
    }
    text_puts(&text, "]}");
    budget_init(&b, (uint64_t)1 << 30, "metadata", NULL);
    model_init(&m, &b);
    unit_list_init(&units, &b);
    must(model_read(&m, text.text, text.nbytes, &err) == FSDPCK_OK, "chain", &err);
    must(model_find_units(&m, &(model_ranks){0}, &units, &err) == FSDPCK_OK, "units of the chain",
         &err);
    must(unit_count(&units) == depth, "count of units in the chain", &err);
    unit_list_release(&units);
    model_release(&m);
    text_release(&text);
    text_release(&path);
}

static bool grows_too_fast(tree_kind kind, uint64_t n, bool full,
                           double (*seconds_of)(tree_kind kind, uint64_t n, bool full))
{
    const double few = seconds_of(kind, n / 8, false);
    const double many = seconds_of(kind, n, full);
    if (many <= 24 * few + 0.05 && (!full || many <= 3))
        return false;
    fprintf(stderr, "scale_model: %s: %.3f s for %" PRIu64 " modules, %.3f s for 8 times less\n",
            names[kind], many, n, few);
    return true;
}

int main(void)
{
    read_chain(6000);
    const char *scale = getenv("MODEL_SCALE");
    const bool full = scale != NULL && strcmp(scale, "full") == 0;
    const uint64_t n = full ? (uint64_t)1 << 20 : (uint64_t)1 << 17;
    for (unsigned kind = 0; kind < TREE_KINDS; kind++) {
        if (grows_too_fast(kind, n, full, measure) || grows_too_fast(kind, n, full, measure_public))
            return 1;
    }
    return 0;
}
