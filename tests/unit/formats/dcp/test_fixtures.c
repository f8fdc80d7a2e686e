/* Every DCP fixture of every torch release, tensor by tensor against the digests that torch made.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/formats/dcp/dcp_checkpoint.h"

/* A tensor that lies inside an object has no name before objects are opened. */
static bool is_in_object(const catalogue *c, const char *name)
{
    for (uint32_t i = 0; i < catalogue_object_count(c); i++) {
        const char *object = catalogue_name(c, catalogue_object(c, i)->name);
        const size_t n = strlen(object);
        if (strncmp(name, object, n) == 0 && name[n] == '.')
            return true;
    }
    return false;
}

/* Lines "digest  label  name" of FIXTURE.digests; each must be found and equal. */
static void check_digests(dcp_checkpoint *o, const char *fixture)
{
    char path[4096], line[4096];
    fixture_path(path, sizeof path - 16, fixture);
    strcat(path, ".digests");
    FILE *lines = fopen(path, "r");
    cr_assert_not_null(lines, "%s", path);
    size_t count = 0, kept = 0;
    while (fgets(line, sizeof line, lines) != NULL) {
        char digest[17], label[256];
        line[strcspn(line, "\n")] = '\0';
        char *want_label = strstr(line, "  ");
        cr_assert_not_null(want_label);
        *want_label = '\0';
        want_label += 2;
        char *name = strstr(want_label, "  ");
        cr_assert_not_null(name);
        *name = '\0';
        name += 2;
        const uint32_t tensor = catalogue_find(&o->cat, name, strlen(name));
        if (tensor == CAT_NONE && is_in_object(&o->cat, name))
            continue;
        cr_assert_neq(tensor, CAT_NONE, "%s: no tensor '%s'", fixture, name);
        cr_assert_eq(dcp_checkpoint_digest(o, tensor, digest, label), FSDPCK_OK,
                     "%s: %s: %s %s (%s, %s)", fixture, name, fsdpck_finding_name(o->err.finding),
                     o->err.message, o->err.expected, o->err.found);
        cr_assert_str_eq(label, want_label, "%s: %s", fixture, name);
        cr_assert_str_eq(digest, line, "%s: %s", fixture, name);
        count++;
    }
    fclose(lines);
    for (size_t i = 0; i < catalogue_tensor_count(&o->cat); i++)
        kept += (catalogue_tensor(&o->cat, i)->flags & CAT_TENSOR_IN_OBJECT) == 0;
    cr_assert_eq(kept, count, "%s: %zu tensors, expected %zu", fixture, kept, count);
    cr_assert_gt(count, 0);
}

static void load_objects(dcp_checkpoint *o, const char *fixture)
{
    for (uint32_t i = 0; i < catalogue_object_count(&o->cat); i++) {
        cr_assert_eq(dcp_reader.load_object(o->self, &o->cat, i, &o->err), FSDPCK_OK,
                     "%s: %s: %s %s", fixture, o->err.tensor, fsdpck_finding_name(o->err.finding),
                     o->err.message);
        cr_assert(catalogue_object(&o->cat, i)->loaded);
        cr_assert(!catalogue_object(&o->cat, i)->opaque, "%s: object %u is opaque", fixture, i);
    }
}

static size_t check_release(const char *release)
{
    char path[4096];
    char **names;
    size_t count, checked = 0;
    folder dir;
    fixture_path(path, sizeof path, release);
    cr_assert_eq(folder_open(&dir, path, NULL), FSDPCK_OK);
    cr_assert_eq(folder_list(&dir, NULL, &names, &count, NULL), FSDPCK_OK);
    for (size_t i = 0; i < count; i++) {
        char fixture[1024];
        dcp_checkpoint o;
        if (strncmp(names[i], "dcp-", 4) != 0 || strchr(names[i], '.') != NULL)
            continue;
        snprintf(fixture, sizeof fixture, "%s/%s", release, names[i]);
        cr_assert_eq(dcp_checkpoint_open_path(&o, fixture_path(path, sizeof path, fixture)),
                     FSDPCK_OK, "%s: %s %s (%s, %s)", fixture, fsdpck_finding_name(o.err.finding),
                     o.err.message, o.err.expected, o.err.found);
        load_objects(&o, fixture);
        check_digests(&o, fixture);
        cr_assert_eq(o.src.check_unchanged(o.src.ctx, &o.err), FSDPCK_OK);
        dcp_checkpoint_close(&o);
        checked++;
    }
    free(names);
    folder_close(&dir);
    return checked;
}

Test(fixtures, all_releases_hold_what_torch_says)
{
    char path[4096];
    char **names;
    size_t count, checked = 0;
    folder dir;
    cr_assert_eq(folder_open(&dir, fixture_path(path, sizeof path, "."), NULL), FSDPCK_OK);
    cr_assert_eq(folder_list(&dir, NULL, &names, &count, NULL), FSDPCK_OK);
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], "torch-", 6) == 0)
            checked += check_release(names[i]);
    free(names);
    folder_close(&dir);
    cr_assert_geq(checked, 10);
}

Test(fixtures, quickstart)
{
    char path[4096];
    dcp_checkpoint o;
    cr_assert_eq(dcp_checkpoint_open_path(&o, fixture_path(path, sizeof path, "quickstart")),
                 FSDPCK_OK, "%s", o.err.message);
    check_digests(&o, "quickstart");
    load_objects(&o, "quickstart");
    dcp_checkpoint_close(&o);
}
