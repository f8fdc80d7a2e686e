#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/platform.h"
#include "base/table_file.h"

enum { COUNT = 5000 };

typedef struct thing {
    vec numbers; /* uint64_t */
    vec none;    /* uint32_t */
    strtab names;
    uint64_t last;
} thing;

static budget owner;
static fsdpck_error err;

static void thing_init(thing *t)
{
    *t = (thing){.numbers = VEC_OF(uint64_t, &owner), .none = VEC_OF(uint32_t, &owner)};
    strtab_init(&t->names, &owner);
}

static void thing_release(thing *t)
{
    VEC_RELEASE_ALL(&t->numbers, &t->none);
    strtab_release(&t->names);
}

static fsdpck_status thing_tables(thing *t, table_file *f)
{
    RETURN_IF(table_file_vec(f, &t->numbers, &err));
    RETURN_IF(table_file_vec(f, &t->none, &err));
    RETURN_IF(table_file_strtab(f, &t->names, &err));
    return table_file_bytes(f, &t->last, sizeof t->last, &err);
}

static void thing_fill(thing *t)
{
    thing_init(t);
    for (uint64_t i = 0; i < COUNT; i++) {
        char name[32];
        uint32_t id;
        const int n = snprintf(name, sizeof name, "name %d", (int)i);
        cr_assert_eq(vec_add(&t->numbers, &i, &err), FSDPCK_OK);
        cr_assert_eq(strtab_intern(&t->names, name, (size_t)n, &id, &err), FSDPCK_OK);
    }
    t->last = COUNT - 1;
}

static bool thing_is_filled(const thing *t)
{
    bool is = t->numbers.count == COUNT && t->none.count == 0 && t->last == COUNT - 1 &&
              strtab_count(&t->names) == COUNT && strtab_find(&t->names, "name", 4) == STRTAB_NONE;
    for (uint32_t i = 0; is && i < COUNT; i++) {
        char name[32];
        const int n = snprintf(name, sizeof name, "name %u", i);
        is = *VEC_AT(&t->numbers, const uint64_t, i) == i &&
             strtab_find(&t->names, name, (size_t)n) == i;
    }
    return is;
}

static void write_thing(thing *t, table_file *f, table_file_address *address)
{
    cr_assert_eq(table_file_create(f, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(thing_tables(t, f), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(table_file_finish(f, address, &err), FSDPCK_OK, "%s", err.message);
}

static void setup(void)
{
    budget_init(&owner, 1u << 30, "metadata", NULL);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    cr_expect_eq(owner.used_bytes, 0, "everything is given back");
}

TestSuite(table_file, .init = setup, .fini = teardown);

/* Whether this platform lets a process open the file of another. */
static bool is_supported(void)
{
    int fd, other;
    cr_assert_eq(platform_memory_file(&fd), 0);
    const bool is = platform_open_memory_file((uint64_t)getpid(), fd, &other) == 0;
    if (is)
        close(other);
    close(fd);
    return is;
}

Test(table_file, writer_maps_its_own_pages)
{
    table_file f;
    table_file_address address;
    thing t;
    thing_fill(&t);
    const uint64_t before = owner.used_bytes;
    write_thing(&t, &f, &address);
    cr_expect_eq(owner.used_bytes, before);
    cr_assert_eq(table_file_map(&f, &owner, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(thing_tables(&t, &f), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(owner.used_bytes, f.used_nbytes, "the copy of its own is freed");
    cr_expect(t.numbers.borrowed);
    cr_expect(thing_is_filled(&t));
    table_file_withdraw(&f);
    cr_expect(thing_is_filled(&t));
    thing_release(&t);
    table_file_release(&f);
    table_file_release(&f);
}

Test(table_file, tables_that_grow_or_change_are_this_process_own)
{
    table_file f;
    table_file_address address;
    uint32_t id;
    thing t, other;
    table_file g;
    if (!is_supported())
        cr_skip("no other process can open it");
    thing_fill(&t);
    write_thing(&t, &f, &address);
    thing_init(&other);
    cr_assert_eq(table_file_open(&g, &address, &owner, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(thing_tables(&other, &g), FSDPCK_OK, "%s", err.message);
    *VEC_AT(&other.numbers, uint64_t, 3) = 7;
    const void *const borrowed = other.numbers.items;
    cr_assert_eq(vec_add(&other.numbers, &(uint64_t){1}, &err), FSDPCK_OK);
    cr_expect_eq(other.numbers.items, borrowed, "there is room for some");
    cr_assert_not_null(vec_push_n(&other.numbers, COUNT, &err));
    cr_expect_neq(other.numbers.items, borrowed);
    cr_expect_eq(*VEC_AT(&other.numbers, uint64_t, 3), 7);
    cr_expect_eq(*VEC_AT(&other.numbers, uint64_t, COUNT), 1);
    vec_trim(&other.none);
    for (unsigned i = 0; i < COUNT; i++) {
        char name[32];
        const int n = snprintf(name, sizeof name, "new %u", i);
        cr_assert_eq(strtab_intern(&other.names, name, (size_t)n, &id, &err), FSDPCK_OK);
        cr_expect_eq(id, COUNT + i);
    }
    cr_expect_eq(strtab_find(&other.names, "name 17", 7), 17);
    cr_expect(thing_is_filled(&t));
    thing_release(&other);
    table_file_release(&g);
    thing_init(&other);
    cr_assert_eq(table_file_open(&g, &address, &owner, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(thing_tables(&other, &g), FSDPCK_OK);
    cr_expect(thing_is_filled(&other), "the file is as it was written");
    thing_release(&other);
    table_file_release(&g);
    table_file_release(&f);
    thing_release(&t);
}

Test(table_file, another_process_reads_the_same)
{
    table_file f;
    table_file_address address;
    thing t;
    int status = -1;
    if (!is_supported())
        cr_skip("no other process can open it");
    thing_fill(&t);
    write_thing(&t, &f, &address);
    const pid_t child = fork();
    if (child == 0) {
        thing other;
        table_file g;
        thing_init(&other);
        table_file_withdraw(&f);
        const bool is = table_file_open(&g, &address, &owner, &err) == FSDPCK_OK &&
                        thing_tables(&other, &g) == FSDPCK_OK && thing_is_filled(&other);
        _exit(is ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    table_file_withdraw(&f);
    table_file g;
    cr_expect_neq(table_file_open(&g, &address, &owner, &err), FSDPCK_OK, "it is withdrawn");
    table_file_release(&f);
    thing_release(&t);
}

Test(table_file, other_files_and_other_tables_are_refused)
{
    table_file f, g;
    table_file_address address;
    thing t;
    vec bytes = VEC_OF(uint8_t, &owner);
    if (!is_supported())
        cr_skip("no other process can open it");
    thing_fill(&t);
    write_thing(&t, &f, &address);
    table_file_address wrong = address;
    wrong.nonce++;
    cr_expect_eq(table_file_open(&g, &wrong, &owner, &err), FSDPCK_INTERNAL);
    wrong = address;
    wrong.nbytes -= 64;
    cr_expect_eq(table_file_open(&g, &wrong, &owner, &err), FSDPCK_INTERNAL);
    wrong = address;
    wrong.process = 1u << 30;
    cr_expect_neq(table_file_open(&g, &wrong, &owner, &err), FSDPCK_OK);
    cr_assert_eq(table_file_open(&g, &address, &owner, &err), FSDPCK_OK);
    cr_expect_eq(table_file_vec(&g, &bytes, &err), FSDPCK_INTERNAL, "items of another size");
    cr_expect_eq(table_file_bytes(&g, &(char[8]){0}, 8, &err), FSDPCK_INTERNAL, "not one item");
    table_file_release(&g);
    budget small;
    budget_init(&small, 1000, "metadata", NULL);
    cr_expect_eq(table_file_open(&g, &address, &small, &err), FSDPCK_LIMIT);
    cr_expect_eq(small.used_bytes, 0);
    table_file_release(&g);
    table_file_release(&f);
    thing_release(&t);
}

Test(table_file, counts_are_checked)
{
    table_file f, g;
    table_file_address address;
    thing t, other;
    uint64_t head[3];
    if (!is_supported())
        cr_skip("no other process can open it");
    thing_fill(&t);
    write_thing(&t, &f, &address);
    for (unsigned word = 1; word < 3; word++) {
        cr_assert_eq(pread(f.fd, head, sizeof head, 64), (ssize_t)sizeof head);
        uint64_t changed[3] = {head[0], head[1], head[2]};
        changed[word] = word == 1 ? head[2] + 1 : UINT64_MAX / 4;
        cr_assert_eq(pwrite(f.fd, changed, sizeof changed, 64), (ssize_t)sizeof changed);
        thing_init(&other);
        cr_assert_eq(table_file_open(&g, &address, &owner, &err), FSDPCK_OK);
        cr_expect_eq(thing_tables(&other, &g), FSDPCK_INTERNAL);
        thing_release(&other);
        table_file_release(&g);
        cr_assert_eq(pwrite(f.fd, head, sizeof head, 64), (ssize_t)sizeof head);
    }
    table_file_release(&f);
    thing_release(&t);
}
