#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pt_checkpoint.h"
#include "tests/support/scratch.h"
#include "text_lines.h"

/* The names of a folder's entries that begin with `begin` and end with `end`. */
static size_t list(const char *path, const char *begin, const char *end, char names[][256],
                   size_t capacity)
{
    size_t count = 0;
    DIR *dir = opendir(path);

    cr_assert_not_null(dir, "no folder '%s'", path);
    for (const struct dirent *e = readdir(dir); e != NULL && count < capacity; e = readdir(dir)) {
        const size_t n = strlen(e->d_name), m = strlen(end);
        if (strncmp(e->d_name, begin, strlen(begin)) == 0 && n >= m &&
            strcmp(e->d_name + n - m, end) == 0 && n < 256)
            memcpy(names[count++], e->d_name, n + 1);
    }
    closedir(dir);
    return count;
}

static void expect_digests(const char *path, const char *digests)
{
    pt_checkpoint o;
    fsdpck_error err;
    char text[PT_DIGEST_BYTES];
    size_t without_names = 0;

    fsdpck_error_init(&err);
    cr_assert_eq(pt_checkpoint_open(&o, path, false, &err), FSDPCK_OK, "%s: %s %s", path,
                 fsdpck_finding_name(err.finding), err.message);
    for (uint32_t i = 0; i < catalogue_tensor_count(&o.cat); i++) {
        if (catalogue_tensor(&o.cat, i)->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) {
            without_names++;
            continue;
        }
        cr_assert_eq(pt_digest(&o, i, text, &err), FSDPCK_OK, "%s: %s", path, err.message);
        cr_expect(line_is_in(digests, text), "%s: %s", path, text);
    }
    cr_expect_eq(catalogue_tensor_count(&o.cat) - without_names, count_lines(digests), "%s", path);
    pt_checkpoint_close(&o);
}

static void copy_and_expect(const char *path, const char *digests, const char *scratch)
{
    pt_checkpoint o;
    fsdpck_error err;
    char copy[SCRATCH_BYTES], again[SCRATCH_BYTES];
    char *first, *second;
    size_t first_nbytes, second_nbytes;

    fsdpck_error_init(&err);
    cr_assert_eq(pt_checkpoint_open(&o, path, false, &err), FSDPCK_OK);
    cr_assert_eq(pt_copy(&o, scratch_path(copy, scratch, "copy.pt"), false, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(pt_copy(&o, scratch_path(again, scratch, "again.pt"), false, &err), FSDPCK_OK);
    expect_digests(copy, digests);
    cr_assert_eq(file_read_whole(NULL, copy, 1 << 20, &first, &first_nbytes, &err), FSDPCK_OK);
    cr_assert_eq(file_read_whole(NULL, again, 1 << 20, &second, &second_nbytes, &err), FSDPCK_OK);
    cr_expect(first_nbytes == second_nbytes && memcmp(first, second, first_nbytes) == 0,
              "two copies differ");
    free(first);
    free(second);
    cr_assert_eq(pt_copy(&o, copy, true, &err), FSDPCK_OK, "%s", err.message);
    expect_digests(copy, digests);
    pt_checkpoint_close(&o);
}

/* Every file of torch.save in the fixtures: read, copied with and without its nesting, and read
 * again. */
Test(pt, fixtures_of_all_releases)
{
    static char releases[32][256], cases[64][256];
    const char *fixtures = getenv("FIXTURES");
    char release[1024], path[2048], scratch[SCRATCH_BYTES];
    fsdpck_error err;
    size_t tried = 0;

    cr_assert_not_null(fixtures, "FIXTURES is not set");
    scratch_make(scratch);
    const size_t release_count = list(fixtures, "torch-", "", releases, 32);
    for (size_t r = 0; r < release_count; r++) {
        snprintf(release, sizeof(release), "%s/%s", fixtures, releases[r]);
        if (strchr(releases[r], '_') != NULL || strstr(releases[r], ".sh") != NULL)
            continue;
        const size_t case_count = list(release, "pt-", ".digests", cases, 64);
        for (size_t c = 0; c < case_count; c++) {
            char *digests;
            size_t nbytes;
            if (strncmp(cases[c], "pt-ranks", 8) == 0)
                continue;
            snprintf(path, sizeof(path), "%s/%s", release, cases[c]);
            cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &digests, &nbytes, &err), FSDPCK_OK);
            snprintf(path, sizeof(path), "%s/%.*s/checkpoint.pt", release,
                     (int)(strlen(cases[c]) - 8), cases[c]);
            path_kind kind;
            if (path_probe(NULL, path, &kind, NULL, &err) == FSDPCK_OK && kind == PATH_FILE) {
                expect_digests(path, digests);
                copy_and_expect(path, digests, scratch);
                tried++;
            }
            free(digests);
        }
    }
    scratch_remove(scratch);
    cr_assert_geq(tried, 13, "only %zu fixtures", tried);
}
