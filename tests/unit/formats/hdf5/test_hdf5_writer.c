#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_write_internal.h"
#include "tests/support/target_case.h"

TestSuite(hdf5_writer, .init = setup, .fini = teardown);

static fsdpck_status lay_out(bool groups)
{
    const writer_options opt = {.hdf5_groups = groups};
    cr_assert_eq(catalogue_seal(&t.cat, &err), FSDPCK_OK, "%s", err.message);
    return hdf5_writer.layout(&t, &opt, &err);
}

static bool is_built(void)
{
    return strcmp(hdf5_built_state(), "built without HDF5") != 0;
}

/* Only with the library; otherwise the request is refused, by its name. */
static bool laid_out(bool groups)
{
    const fsdpck_status st = lay_out(groups);
    if (is_built()) {
        cr_assert_eq(st, FSDPCK_OK, "%s", err.message);
        return true;
    }
    cr_expect_eq(st, FSDPCK_UNSUPPORTED);
    cr_expect(strstr(err.message, "built without HDF5") != NULL, "%s", err.message);
    return false;
}

static const cat_chunk *chunk_of(const target *of, uint32_t tensor)
{
    return catalogue_chunk(&of->cat, catalogue_tensor(&of->cat, tensor)->first_chunk);
}

static void add_some(void)
{
    static const uint64_t shape[] = {3, 5000};
    static const uint64_t empty[] = {0, 7};
    add_bytes("small", 7);
    (void)add("rows", DTYPE_FLOAT32, 2, shape);
    (void)add("scalar", DTYPE_INT64, 0, NULL);
    (void)add("empty", DTYPE_BOOL, 2, empty);
    add_bytes("page", 4096);
    for (int d = 1; d < DTYPE_COUNT; d++)
        (void)add(dtype_get((dtype)d)->name, (dtype)d, 2, shape);
}

Test(hdf5_writer, every_tensor_has_a_place)
{
    add_some();
    if (!laid_out(false))
        return;
    const uint64_t file_nbytes = catalogue_file(&t.cat, 0)->nbytes;
    for (uint32_t i = 0; i < catalogue_tensor_count(&t.cat); i++) {
        const cat_chunk *c = chunk_of(&t, i);
        const uint64_t nbytes = catalogue_tensor_nbytes(&t.cat, i);
        cr_expect_eq(c->nbytes, nbytes);
        cr_expect_eq(c->place, nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY);
        cr_expect(c->offset_bytes + nbytes <= file_nbytes);
        if (nbytes >= 4096)
            cr_expect_eq(c->offset_bytes % 4096, 0);
        for (uint32_t k = 0; k < i && nbytes > 0; k++) {
            const cat_chunk *o = chunk_of(&t, k);
            cr_expect(o->nbytes == 0 || o->offset_bytes + o->nbytes <= c->offset_bytes ||
                          c->offset_bytes + nbytes <= o->offset_bytes,
                      "%" PRIu32 " and %" PRIu32, i, k);
        }
    }
}

Test(hdf5_writer, literals_are_in_order_and_apart_from_the_data)
{
    add_some();
    if (!laid_out(false))
        return;
    uint64_t end = 0;
    cr_assert(t.literals.count > 0);
    for (size_t i = 0; i < t.literals.count; i++) {
        const target_constant *lit = VEC_AT(&t.literals, const target_constant, i);
        cr_expect(lit->offset_bytes >= end && lit->nbytes > 0);
        end = lit->offset_bytes + lit->nbytes;
        cr_expect(lit->text_at + lit->nbytes <= t.text.nbytes);
        for (uint32_t k = 0; k < catalogue_tensor_count(&t.cat); k++) {
            const cat_chunk *c = chunk_of(&t, k);
            cr_expect(c->nbytes == 0 || end <= c->offset_bytes ||
                      c->offset_bytes + c->nbytes <= lit->offset_bytes);
        }
    }
    const target_constant *first = VEC_AT(&t.literals, const target_constant, 0);
    cr_expect_eq(first->offset_bytes, 0);
    cr_expect_arr_eq(t.text.text + first->text_at, "\x89HDF\r\n\x1a\n\x02", 9, "superblock 2");
}

Test(hdf5_writer, terabytes_take_no_memory)
{
    const uint64_t wide = (uint64_t)1 << 40;
    (void)add("wide", DTYPE_FLOAT64, 1, &wide);
    add_bytes("after", 9);
    if (!laid_out(false))
        return;
    cr_expect(catalogue_file(&t.cat, 0)->nbytes > 8 * wide);
    cr_expect(t.text.nbytes < 65536);
}

Test(hdf5_writer, thirty_two_dims_are_the_most)
{
    uint64_t shape[33];
    for (size_t i = 0; i < 33; i++)
        shape[i] = 1;
    (void)add("most", DTYPE_INT8, 32, shape);
    if (!laid_out(false))
        return;
    target_release(&t);
    target_init(&t, &owner);
    (void)add("more", DTYPE_INT8, 33, shape);
    cr_expect_eq(lay_out(false), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(err.tensor, "more");
}

/* --- names --- */

static fsdpck_status name_all(bool dots_too, hdf5_names *names)
{
    cr_assert_eq(catalogue_seal(&t.cat, &err), FSDPCK_OK, "%s", err.message);
    return hdf5_names_make(&t.cat, dots_too, names, &err);
}

Test(hdf5_writer, names_are_paths)
{
    hdf5_names names;
    add_bytes("a.b/c.d", 1);
    add_bytes("..", 1);
    cr_assert_eq(name_all(false, &names), FSDPCK_OK, "%s", err.message);
    cr_expect_str_eq(strtab_text(&names.paths, 0), "a.b/c.d");
    cr_expect_eq(strtab_count(&names.groups), 1);
    cr_expect_str_eq(strtab_text(&names.groups, 0), "a.b");
    hdf5_names_release(&names);
}

Test(hdf5_writer, dots_begin_groups_where_that_is_asked_for)
{
    hdf5_names names;
    add_bytes("a.b/c.d", 1);
    add_bytes("a.b.e", 1);
    cr_assert_eq(name_all(true, &names), FSDPCK_OK, "%s", err.message);
    cr_expect_str_eq(strtab_text(&names.paths, 0), "a/b/c/d");
    cr_assert_eq(strtab_count(&names.groups), 3);
    cr_expect_str_eq(strtab_text(&names.groups, 0), "a");
    cr_expect_str_eq(strtab_text(&names.groups, 1), "a/b");
    cr_expect_str_eq(strtab_text(&names.groups, 2), "a/b/c");
    cr_expect(hdf5_name_is_implied("a/b/e", "a.b.e"));
    cr_expect(!hdf5_name_is_implied("a/b/c/d", "a.b/c.d"));
    cr_expect(!hdf5_name_is_implied("a/b", "a.bc") && !hdf5_name_is_implied("a/bc", "a.b"));
    hdf5_names_release(&names);
}

/* What the reader enters, and no more (HDF5_DEPTH_MAX, HDF5_NAME_NBYTES_MAX). */
Test(hdf5_writer, names_are_what_can_be_read)
{
    static char name[HDF5_NAME_NBYTES_MAX + 2];
    static const struct {
        unsigned groups, nbytes;
        const char *separator, *next;
        bool dots_too, is_refused;
    } cases[] = {
        {255, 511, ".", "", true, false},         {256, 513, ".", "omit --hdf5-groups", true, true},
        {256, 513, "/", "rename it", true, true}, {256, 513, "/", "rename it", false, true},
        {256, 513, ".", "", false, false},        {0, 65536, "", "", false, false},
        {0, 65537, "", "rename it", false, true}, {1, 65537, "/", "rename it", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdf5_names names;
        memset(name, 'n', cases[i].nbytes);
        name[cases[i].nbytes] = '\0';
        for (unsigned k = 0; k < cases[i].groups; k++)
            name[2 * k + 1] = *cases[i].separator;
        add_bytes(name, 1);
        const fsdpck_status st = name_all(cases[i].dots_too, &names);
        cr_expect_eq(st, cases[i].is_refused ? FSDPCK_UNSUPPORTED : FSDPCK_OK, "%zu", i);
        if (cases[i].is_refused)
            cr_expect(strstr(err.next, cases[i].next) == err.next, "%zu: %s", i, err.next);
        hdf5_names_release(&names);
        target_release(&t);
        target_init(&t, &owner);
    }
}

/* --hdf5-groups is advised against where it makes the difference. */
Test(hdf5_writer, what_is_in_the_way_is_told)
{
    static const struct {
        const char *other, *next;
        bool dots_too;
    } cases[] = {
        {"a/b", "rename it", false},
        {"a/b", "rename it", true},
        {"a.b", "omit --hdf5-groups", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdf5_names names;
        add_bytes("a", 1);
        add_bytes(cases[i].other, 1);
        cr_expect_eq(name_all(cases[i].dots_too, &names), FSDPCK_UNSUPPORTED);
        cr_expect(strstr(err.next, cases[i].next) == err.next, "%zu: %s", i, err.next);
        hdf5_names_release(&names);
        target_release(&t);
        target_init(&t, &owner);
    }
}

static void check_refused(bool dots_too, const char *tensor)
{
    hdf5_names names;
    cr_expect_eq(name_all(dots_too, &names), FSDPCK_UNSUPPORTED, "%s", tensor);
    cr_expect_str_eq(err.tensor, tensor);
    hdf5_names_release(&names);
    target_release(&t);
    target_init(&t, &owner);
}

Test(hdf5_writer, names_that_cannot_be_are_refused)
{
    static const char *const bad[] = {"", "/a", "a/", "a//b", "a/./b", "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        add_bytes(bad[i], 1);
        check_refused(false, bad[i]);
    }
    add_bytes("a..b", 1);
    check_refused(true, "a..b");
    add_bytes("a\xFF", 1);
    check_refused(false, "a\\xFF");
    add_bytes("a", 1);
    add_bytes("a/b", 1);
    check_refused(false, "a");
    add_bytes("a.b", 1);
    add_bytes("a/b", 1);
    check_refused(true, "a/b");
}
