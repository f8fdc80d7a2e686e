#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pt_checkpoint.h"
#include "pt_state.h"
#include "state_file.h"

TestSuite(pt_writer, .init = begin, .fini = end);

static bool holds_text(const char *bytes, size_t nbytes, const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i + n <= nbytes; i++)
        if (memcmp(bytes + i, text, n) == 0)
            return true;
    return false;
}

Test(pt_writer, records_are_those_of_torch_and_aligned)
{
    static const char *const names[] = {
        "archive/data.pkl",  "archive/.format_version", "archive/.storage_alignment",
        "archive/byteorder", "archive/data/0",          "archive/data/10",
        "archive/version"};
    pt_state s;
    fsdpck_error err;
    char *bytes;
    size_t nbytes;
    char name[16];

    pt_state_begin(&s);
    const value root = pt_state_dict(&s);
    for (int i = 0; i < 11; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        pt_state_put(&s, root, name, pt_state_tensor(&s, name, (uint64_t)i));
    }
    cr_assert_eq(pt_state_write(&s, root, path, &err), FSDPCK_OK, "%s", err.message);
    for (uint64_t i = 0; i < 11; i++) {
        const cat_chunk *c = catalogue_chunk(&s.t.cat, i);
        cr_expect_eq(c->aux, i);
        cr_expect_eq(c->offset_bytes % 64, 0);
        cr_expect_eq(c->place, i == 0 ? LOCATION_EMPTY : LOCATION_ROWS);
        cr_expect(i == 0 || c->offset_bytes > catalogue_chunk(&s.t.cat, i - 1)->offset_bytes);
    }
    cr_expect(s.t.want_crc);
    pt_state_end(&s);
    cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &bytes, &nbytes, &err), FSDPCK_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_expect(holds_text(bytes, nbytes, names[i]), "no record '%s'", names[i]);
    free(bytes);
}

/* Literals, chunks and late bytes tile the file. */
typedef struct coverage {
    uint8_t *seen;
    uint64_t nbytes;
} coverage;

static void cover(coverage *c, uint64_t offset, uint64_t nbytes)
{
    cr_assert(offset + nbytes <= c->nbytes);
    for (uint64_t i = offset; i < offset + nbytes; i++)
        c->seen[i]++;
}

static fsdpck_status cover_late(void *ctx, const deferred_bytes *late, fsdpck_error *err)
{
    (void)err;
    cover(ctx, late->offset_bytes, late->nbytes);
    return FSDPCK_OK;
}

Test(pt_writer, every_byte_is_given_once)
{
    pt_state s;
    fsdpck_error err;

    pt_state_begin(&s);
    const value root = pt_state_dict(&s);
    pt_state_put(&s, root, "a", pt_state_tensor(&s, "a", 100));
    pt_state_put(&s, root, "b", pt_state_tensor(&s, "b", 0));
    pt_state_put(&s, root, "c", pt_state_tensor(&s, "c", 3));
    cr_assert_eq(pt_state_write(&s, root, path, &err), FSDPCK_OK);
    coverage c = {.nbytes = catalogue_file(&s.t.cat, 0)->nbytes};
    c.seen = calloc(c.nbytes, 1);
    for (size_t i = 0; i < s.t.literals.count; i++) {
        const target_constant *l = VEC_AT(&s.t.literals, const target_constant, i);
        cover(&c, l->offset_bytes, l->nbytes);
        cr_expect(i == 0 || l->offset_bytes >
                                VEC_AT(&s.t.literals, const target_constant, i - 1)->offset_bytes);
    }
    for (uint64_t i = 0; i < catalogue_chunk_count(&s.t.cat); i++)
        if (catalogue_chunk(&s.t.cat, i)->place == LOCATION_ROWS)
            cover(&c, catalogue_chunk(&s.t.cat, i)->offset_bytes,
                  catalogue_chunk(&s.t.cat, i)->nbytes);
    for (size_t i = 0; i < s.t.lates.count; i++) {
        const target_deferred *l = VEC_AT(&s.t.lates, const target_deferred, i);
        cover(&c, l->offset_bytes, l->nbytes);
    }
    cr_assert_eq(pt_writer.seal(&s.t, cover_late, &c, &err), FSDPCK_OK);
    for (uint64_t i = 0; i < c.nbytes; i++)
        cr_assert_eq(c.seen[i], 1, "byte %zu: %d times", (size_t)i, c.seen[i]);
    free(c.seen);
    pt_state_end(&s);
}

Test(pt_writer, views_share_the_storage_that_carries_them)
{
    pt_state s;
    pt_checkpoint o;
    fsdpck_error err;
    uint64_t nbytes;

    pt_state_begin(&s);
    const value root = pt_state_dict(&s);
    pt_state_put(&s, root, "every_second", pt_state_tensor(&s, "every_second", 3));
    pt_state_put(&s, root, "tail", pt_state_tensor(&s, "tail", 2));
    (void)pt_state_tensor(&s, "carrier", 6);
    catalogue_tensor(&s.t.cat, 2)->flags |= CAT_TENSOR_STORAGE;
    for (uint32_t i = 0; i < 2; i++) {
        catalogue_tensor(&s.t.cat, i)->alias = i;
        target_alias *view = vec_push(&s.t.views, NULL);
        uint64_t *stride = vec_push(&s.t.strides, NULL);
        *view = (target_alias){.storage = 2, .offset_nelems = i == 0 ? 1 : 4, .strides_at = i};
        *stride = i == 0 ? 2 : 1;
    }
    cr_assert_eq(pt_state_write(&s, root, path, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(catalogue_chunk(&s.t.cat, 0)->place, LOCATION_EMPTY);
    cr_expect_eq(catalogue_chunk(&s.t.cat, 1)->place, LOCATION_EMPTY);
    cr_expect_eq(catalogue_chunk(&s.t.cat, 2)->place, LOCATION_ROWS);
    pt_state_end(&s);

    static const float expected[2][3] = {{1, 3, 5}, {4, 5}};
    cr_assert_eq(pt_checkpoint_open(&o, path, false, &err), FSDPCK_OK, "%s", err.message);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t *bytes = pt_tensor_bytes(&o, i, &nbytes, &err);
        cr_assert_not_null(bytes);
        cr_expect_eq(memcmp(bytes, expected[i], nbytes), 0);
        cr_expect_neq(catalogue_tensor(&o.cat, i)->alias, CAT_NONE);
        free(bytes);
    }
    pt_checkpoint_close(&o);
}

Test(pt_writer, a_tensor_without_a_place_in_the_state_is_an_error)
{
    pt_state s;
    fsdpck_error err;

    pt_state_begin(&s);
    (void)pt_state_tensor(&s, "lost", 5);
    cr_expect_eq(pt_state_write(&s, pt_state_dict(&s), path, &err), FSDPCK_INTERNAL);
    cr_expect_str_eq(err.tensor, "lost");
    pt_state_end(&s);
}
