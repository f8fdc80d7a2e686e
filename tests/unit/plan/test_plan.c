#include <criterion/criterion.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/segment.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})

static budget b;
static catalogue from;
static target to;

static void begin(void)
{
    uint32_t f;
    budget_init(&b, 1u << 30, "metadata", NULL);
    catalogue_init(&from, &b);
    target_init(&to, &b);
    cr_assert_eq(catalogue_add_file(&from, "r0", 2, 1000, 0, &f, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_file(&from, "r1", 2, 1000, 1, &f, NULL), FSDPCK_OK);
}

static uint32_t add_tensor(catalogue *c, const char *name, dtype d, unsigned ndim,
                           const uint64_t *shape)
{
    uint32_t t;
    cr_assert_eq(catalogue_add_tensor(c, name, strlen(name), d, ndim, shape, &t, NULL), FSDPCK_OK);
    return t;
}

static void add_chunk(catalogue *c, uint32_t tensor, const uint64_t *offsets, const uint64_t *sizes,
                      uint32_t f, uint64_t at, uint64_t nbytes)
{
    const cat_chunk proto = {
        .file = f, .place = LOCATION_ROWS, .offset_bytes = at, .nbytes = nbytes};
    cr_assert_eq(catalogue_add_chunk(c, tensor, offsets, sizes, &proto, NULL), FSDPCK_OK);
}

/* w: float32 [4, 4] in two row shards; into one file of 16 header bytes and the tensor. */
static void two_shards(dtype target_type)
{
    uint32_t f;
    begin();
    const uint32_t w = add_tensor(&from, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&from, w, BOX(0, 0), BOX(2, 4), 0, 100, 32);
    add_chunk(&from, w, BOX(2, 0), BOX(2, 4), 1, 200, 32);
    cr_assert_eq(catalogue_seal(&from, NULL), FSDPCK_OK);
    const uint64_t nbytes = 16 * dtype_get(target_type)->itemsize_bytes;
    cr_assert_eq(catalogue_add_file(&to.cat, "out", 3, 16 + nbytes, CAT_NONE, &f, NULL), FSDPCK_OK);
    const uint32_t x = add_tensor(&to.cat, "x", target_type, 2, BOX(4, 4));
    add_chunk(&to.cat, x, BOX(0, 0), BOX(4, 4), 0, 16, nbytes);
    uint32_t *entry = vec_push(&to.from, NULL);
    *entry = w;
    cr_assert_eq(catalogue_seal(&to.cat, NULL), FSDPCK_OK);
    cr_assert_eq(target_add_constant(&to, 0, 0, "0123456789abcdef", 16, NULL), FSDPCK_OK);
}

static void end(void)
{
    catalogue_release(&from);
    target_release(&to);
    cr_assert_eq(b.used_bytes, 0, "%lu bytes are left", (unsigned long)b.used_bytes);
}

static fsdpck_status make(plan **p, fsdpck_error *err)
{
    const plan_options opt = {.tile_nbytes = 4096};
    return plan_new(&from, &to, &opt, &b, p, err);
}

Test(plan, sums_and_printed_form)
{
    plan *p;
    plan_totals sums;
    text_buf text = {0};
    two_shards(DTYPE_FLOAT32);
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    plan_get_totals(p, &sums);
    cr_assert_eq(sums.target_bytes, 64);
    cr_assert_eq(sums.constant_bytes, 16);
    cr_assert_eq(sums.source_bytes, 64);
    cr_assert_eq(sums.segments_at_least, 2);
    cr_assert_eq(sums.items, 1);
    cr_assert_eq(sums.files, 1);
    cr_assert_eq(plan_print(p, &text, NULL), FSDPCK_OK);
    cr_assert_str_eq(text.text, "plan: 1 item of 4096 bytes, replicas crc\n"
                                "file 'out' 80 bytes\n"
                                "  0+16 constant\n"
                                "  16+64 'x' float32 [0:4, 0:4]\n"
                                "    from 'r0' [0:2, 0:4]\n"
                                "    from 'r1' [2:4, 0:4]\n");
    text_release(&text);
    plan_free(p);
    end();
}

Test(plan, segments_of_a_range_that_cuts_rows_and_elements)
{
    static segment_walk s;
    plan *p;
    range_walk w;
    range_part part;
    two_shards(DTYPE_FLOAT32);
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    range_walk_begin(&w, p, &(output_range){0, 8, 16 + 22}); /* up to the middle of element 5 */
    cr_assert(range_walk_next(&w, &part));
    cr_assert_eq(part.begin, 8);
    cr_assert_eq(memcmp(part.constant, "89abcdef", 8), 0);
    cr_assert(range_walk_next(&w, &part));
    cr_assert_eq(part.kind, RANGE_PART_CHUNK);
    cr_assert_eq(part.first_elem, 0);
    cr_assert_eq(part.end_elem, 6);
    segment_walk_begin(&s, p, part.chunk, part.first_elem, part.end_elem);
    cr_assert(segment_walk_next(&s)); /* row 0 */
    cr_assert_eq(s.src_chunk, 0);
    cr_assert_eq(s.sizes[0], 1);
    cr_assert_eq(s.sizes[1], 4);
    cr_assert(segment_walk_next(&s)); /* two elements of row 1 */
    cr_assert_eq(s.dst_first, 4);
    cr_assert_eq(s.src_offsets[0], 1);
    cr_assert_eq(s.nelems, 2);
    cr_assert(!segment_walk_next(&s));
    cr_assert(!range_walk_next(&w, &part));
    plan_free(p);
    end();
}

Test(plan, hash_follows_the_input)
{
    plan *p;
    two_shards(DTYPE_FLOAT32);
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    const uint64_t first = plan_hash(p);
    cr_assert_eq(plan_hash(p), first);
    catalogue_chunk(&from, 1)->offset_bytes++;
    cr_assert_neq(plan_hash(p), first);
    catalogue_chunk(&from, 1)->offset_bytes--;
    to.text.text[3] ^= 1;
    cr_assert_neq(plan_hash(p), first);
    plan_free(p);
    end();
}

static void expect_failure(fsdpck_status status, const char *finding, const char *name)
{
    fsdpck_error err = {0};
    plan *p = NULL;
    const uint64_t used = b.used_bytes;
    cr_assert_eq(make(&p, &err), status, "%s", err.message);
    cr_assert_null(p);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_assert_str_eq(err.tensor, name);
    cr_assert_eq(b.used_bytes, used);
}

Test(plan, a_missing_shard_is_an_error)
{
    uint32_t f;
    begin();
    const uint32_t w = add_tensor(&from, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&from, w, BOX(0, 0), BOX(2, 4), 0, 100, 32);
    cr_assert_eq(catalogue_seal(&from, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_file(&to.cat, "", 0, 64, CAT_NONE, &f, NULL), FSDPCK_OK);
    const uint32_t x = add_tensor(&to.cat, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&to.cat, x, BOX(0, 0), BOX(2, 4), 0, 0, 32);
    uint32_t *entry = vec_push(&to.from, NULL);
    *entry = w;
    cr_assert_eq(catalogue_seal(&to.cat, NULL), FSDPCK_OK);
    plan *p;
    cr_assert_eq(make(&p, NULL), FSDPCK_OK); /* the half that is there is all that is wanted */
    plan_free(p);
    end();

    begin();
    const uint32_t v = add_tensor(&from, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&from, v, BOX(0, 0), BOX(2, 4), 0, 100, 32);
    cr_assert_eq(catalogue_seal(&from, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_file(&to.cat, "", 0, 64, CAT_NONE, &f, NULL), FSDPCK_OK);
    const uint32_t y = add_tensor(&to.cat, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&to.cat, y, BOX(0, 0), BOX(4, 4), 0, 0, 64);
    entry = vec_push(&to.from, NULL);
    *entry = v;
    cr_assert_eq(catalogue_seal(&to.cat, NULL), FSDPCK_OK);
    expect_failure(FSDPCK_BADINPUT, "CHUNK-GAP", "w");
    end();
}

/* Two chunks of rows [0, 3) and [first, 4), and a target of the rows that both have or one has. */
static void overlapping(uint64_t first, uint64_t wanted_at, uint64_t wanted)
{
    uint32_t f;
    begin();
    const uint32_t w = add_tensor(&from, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&from, w, BOX(0, 0), BOX(3, 4), 0, 100, 48);
    add_chunk(&from, w, BOX(first, 0), BOX(4 - first, 4), 1, 200, 16 * (4 - first));
    cr_assert_eq(catalogue_seal(&from, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_file(&to.cat, "", 0, 64, CAT_NONE, &f, NULL), FSDPCK_OK);
    const uint32_t x = add_tensor(&to.cat, "w", DTYPE_FLOAT32, 2, BOX(4, 4));
    add_chunk(&to.cat, x, BOX(wanted_at, 0), BOX(wanted, 4), 0, 0, 16 * wanted);
    uint32_t *entry = vec_push(&to.from, NULL);
    *entry = w;
    cr_assert_eq(catalogue_seal(&to.cat, NULL), FSDPCK_OK);
}

Test(plan, chunks_that_overlap_are_an_error)
{
    plan *p;
    overlapping(3, 0, 4);
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    plan_free(p);
    end();
    for (uint64_t first = 1; first < 3; first++) {
        overlapping(first, 0, 4);
        expect_failure(FSDPCK_BADINPUT, "CHUNK-OVERLAP", "w");
        end();
        /* Of elements that one chunk alone has, too: which chunk is wrong is not known. */
        overlapping(first, 0, 1);
        expect_failure(FSDPCK_BADINPUT, "CHUNK-OVERLAP", "w");
        end();
    }
}

Test(plan, integers_are_not_cast)
{
    two_shards(DTYPE_BFLOAT16);
    plan *p;
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    plan_free(p);
    end();
    two_shards(DTYPE_INT32);
    expect_failure(FSDPCK_UNSUPPORTED, "", "x");
    end();
}

Test(plan, places_of_the_writer_are_checked)
{
    two_shards(DTYPE_FLOAT32);
    catalogue_chunk(&to.cat, 0)->offset_bytes = 15; /* into the literal */
    expect_failure(FSDPCK_INTERNAL, "", "x");
    catalogue_chunk(&to.cat, 0)->offset_bytes = 17; /* past the end */
    expect_failure(FSDPCK_INTERNAL, "", "x");
    catalogue_chunk(&to.cat, 0)->offset_bytes = 16;
    catalogue_chunk(&to.cat, 0)->nbytes = 60;
    expect_failure(FSDPCK_INTERNAL, "", "x");
    end();
}

Test(plan, items_cut_files_at_multiples_of_the_tile)
{
    plan *p;
    output_range r;
    two_shards(DTYPE_FLOAT32);
    catalogue_file(&to.cat, 0)->nbytes = 10000;
    cr_assert_eq(make(&p, NULL), FSDPCK_OK);
    cr_assert_eq(plan_item_count(p), 3);
    for (uint64_t i = 0; i < 3; i++) {
        plan_get_item(p, i, &r);
        cr_assert_eq(r.begin, i * 4096);
        cr_assert_eq(r.end, i == 2 ? 10000 : (i + 1) * 4096);
    }
    plan_free(p);
    end();
}
