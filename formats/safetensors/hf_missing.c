#include "formats/safetensors/hf_missing.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/common/renamed_file.h"
#include "formats/safetensors/shard_name.h"

enum { NAME_NBYTES_MAX = 512 };

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name);
    const size_t m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* --- numbered names --- */

/* Its name with another number of the same width; false if too long. */
static bool name_with(const char *entry, const shard_name *parts, uint32_t number, char *name)
{
    const char *digits = entry + parts->prefix_nbytes + 1;
    const int width = (int)strspn(digits, "0123456789");
    const int n = snprintf(name, NAME_NBYTES_MAX, "%.*s-%0*" PRIu32 "%s", (int)parts->prefix_nbytes,
                           entry, width, number, digits + width);
    return n > 0 && n < NAME_NBYTES_MAX;
}

static bool has_number(const probe_input *in, const char *entry, const shard_name *parts,
                       uint32_t number)
{
    char name[NAME_NBYTES_MAX];
    return number == 0 || number > parts->file_count || !name_with(entry, parts, number, name) ||
           probe_has_entry(in, name);
}

/* A family lacks a file if one of its files lacks a neighbor. */
bool hf_missing_family(const probe_input *in, const char *suffix, const char **entry)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        shard_name parts;
        *entry = in->entries[i];
        if (!shard_name_parse_as(*entry, suffix, &parts))
            continue;
        if (!has_number(in, *entry, &parts, parts.file_number - 1) ||
            !has_number(in, *entry, &parts, parts.file_number + 1))
            return true;
    }
    return false;
}

static bool is_numbered_or_other(const void *ctx, const char *entry)
{
    const char *suffix = ctx;
    shard_name parts;
    return !ends_with(entry, suffix) || shard_name_parse_as(entry, suffix, &parts);
}

fsdpck_status hf_missing_family_error(const open_request *req, const char *suffix,
                                      const char *entry, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    shard_name parts;
    text_buf list = {.limit_bytes = 200};
    uint32_t found = 0;
    if (!shard_name_parse_as(entry, suffix, &parts))
        return FAIL(err, INTERNAL, NONE, "name has no numbers");
    for (uint32_t n = 1; n <= parts.file_count; n++) {
        if (has_number(in, entry, &parts, n)) {
            found++;
            continue;
        }
        char name[NAME_NBYTES_MAX];
        (void)name_with(entry, &parts, n, name);
        log_missing_file(&req->log, in->path, name);
        text_printf(&list, "%s%s", list.nbytes > 0 ? ", " : "", name);
    }
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, FILE_MISSING,
                  ("files of the model are missing: %s%s", list.text != NULL ? list.text : "",
                   list.failed ? ", ..." : ""),
                  (path, in->path), (expected, "%" PRIu32 " files", parts.file_count),
                  (found, "%" PRIu32, found));
    text_release(&list);
    const char *other = renamed_file_find(in, RENAMED_FILE_ANY_SIZE, is_numbered_or_other, suffix);
    if (other != NULL)
        error_next(err, "rename '%s' if it is one of them; otherwise copy or download them", other);
    return st;
}

/* --- names in an index --- */

typedef struct indexed_names {
    const char *const *names;
    size_t count;
    const char *suffix;
} indexed_names;

static bool is_indexed_or_other(const void *ctx, const char *entry)
{
    const indexed_names *n = ctx;
    return !ends_with(entry, n->suffix) ||
           bsearch(&entry, n->names, n->count, sizeof *n->names, text_compare) != NULL;
}

fsdpck_status hf_missing_check(const open_request *req, const char *const *names, size_t count,
                               const char *suffix, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    text_buf list = {.limit_bytes = 300};
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        path_kind kind;
        const fsdpck_status st = path_probe(&in->dir, names[i], &kind, NULL, err);
        if (st != FSDPCK_OK) {
            text_release(&list);
            return st;
        }
        if (kind != PATH_ABSENT)
            continue;
        missing++;
        log_missing_file(&req->log, in->path, names[i]);
        text_printf(&list, "%s%s", missing > 1 ? ", " : "", names[i]);
    }
    fsdpck_status st = FSDPCK_OK;
    if (missing > 0) {
        const indexed_names n = {names, count, suffix};
        st = FAIL_WITH(err, BADINPUT, FILE_MISSING,
                       ("files in the index are missing: %s%s", list.text != NULL ? list.text : "",
                        list.failed ? ", ..." : ""),
                       (path, in->path), (expected, "%zu files", count),
                       (found, "%zu", count - missing));
        const char *other = renamed_file_find(in, RENAMED_FILE_ANY_SIZE, is_indexed_or_other, &n);
        if (other != NULL)
            error_next(err, "rename '%s' if it is one of them; otherwise copy or download them",
                       other);
        else
            error_next(err, "copy or download the missing files");
    }
    text_release(&list);
    return st;
}
