#include "formats/safetensors/hf_missing.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/common/renamed_file.h"
#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st_lost.h"
#include "io/dead_link.h"

enum { NAME_NBYTES_MAX = 512, PADDED_DIGITS = 5, VARIANTS_MOST = 8, MISSING_MOST = 1 << 16 };

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name);
    const size_t m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* --- numbered names --- */

/* Its name with another number, of the same width if it has zeros in front or `padded`; false if
 * too long. */
static bool name_with(const char *entry, const shard_name *parts, uint32_t number, bool padded,
                      char *name)
{
    const char *digits = entry + parts->number_at;
    const int width = (int)strspn(digits, "0123456789");
    const int n = snprintf(name, NAME_NBYTES_MAX, "%.*s%0*" PRIu32 "%s", (int)parts->number_at,
                           entry, padded || digits[0] == '0' ? width : 1, number, digits + width);
    return n > 0 && n < NAME_NBYTES_MAX;
}

static bool is_there(const probe_input *in, const char *entry, const shard_name *parts,
                     uint32_t number, bool if_too_long)
{
    char name[NAME_NBYTES_MAX];
    if (!name_with(entry, parts, number, true, name))
        return if_too_long;
    return probe_has_entry(in, name) ||
           (name_with(entry, parts, number, false, name) && probe_has_entry(in, name));
}

/* Numbers begin with 1, or with 0. */
static uint32_t first_number(const probe_input *in, const char *entry, const shard_name *parts)
{
    return parts->from_zero || is_there(in, entry, parts, 0, false) ? 0 : 1;
}

static bool has_number(const probe_input *in, const char *entry, const shard_name *parts,
                       uint64_t number)
{
    const uint32_t first = first_number(in, entry, parts);
    return number < first || number >= (uint64_t)first + parts->file_count ||
           is_there(in, entry, parts, (uint32_t)number, true);
}

/* A family lacks a file if one of its files lacks a neighbor. */
bool hf_missing_family_of(const probe_input *in, const char *const *names, size_t count,
                          const char *suffix, const char **entry)
{
    for (size_t i = 0; i < count; i++) {
        shard_name parts;
        *entry = names[i];
        if (!shard_name_parse_as(*entry, suffix, &parts))
            continue;
        if ((parts.file_number > 0 && !has_number(in, *entry, &parts, parts.file_number - 1)) ||
            !has_number(in, *entry, &parts, (uint64_t)parts.file_number + 1))
            return true;
    }
    return false;
}

bool hf_missing_family(const probe_input *in, const char *suffix, const char **entry)
{
    return hf_missing_family_of(in, (const char *const *)in->entries, in->entry_count, suffix,
                                entry);
}

static fsdpck_status error_mixed(const probe_input *in, const char *first, uint32_t file_count,
                                 const char *entry, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, RANK_MIXED, ("folder holds numbered files of two saves"), (path, in->path),
        (expected, "%" PRIu32 " file%s, as in '%s'", file_count, text_plural(file_count), first),
        (found, "also '%s'", entry), (next, "keep the files of one save"));
}

/* Two counts with the same text around the numbers. */
fsdpck_status hf_missing_check_mixed(const probe_input *in, const char *suffix, fsdpck_error *err)
{
    const char *firsts[VARIANTS_MOST];
    shard_name of_firsts[VARIANTS_MOST];
    size_t count = 0;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        shard_name parts;
        if (!shard_name_parse_as(entry, suffix, &parts))
            continue;
        /* Names are sorted: those with the same text before follow one another. */
        if (count > 0 && (parts.number_at != of_firsts[0].number_at ||
                          memcmp(entry, firsts[0], parts.number_at) != 0))
            count = 0;
        size_t k = 0;
        while (k < count && !shard_name_same_text(entry, &parts, firsts[k], &of_firsts[k]))
            k++;
        if (k < count && parts.file_count != of_firsts[k].file_count)
            return error_mixed(in, firsts[k], of_firsts[k].file_count, entry, err);
        if (k == count && count < VARIANTS_MOST) {
            firsts[count] = entry;
            of_firsts[count++] = parts;
        }
    }
    return FSDPCK_OK;
}

static bool is_numbered_or_other(const void *ctx, const char *entry)
{
    const char *suffix = ctx;
    shard_name parts;
    return !ends_with(entry, suffix) || shard_name_parse_as(entry, suffix, &parts);
}

/* "00010-of-00012" has zeros in front of other numbers, "10-of-12" has not. */
static bool has_all_digits(const char *entry, const shard_name *parts)
{
    return strspn(entry + parts->number_at, "0123456789") >= PADDED_DIGITS;
}

/* Files with the same text and count as this one. */
static uint32_t count_family(const probe_input *in, const char *entry, const shard_name *of,
                             const char *suffix)
{
    uint32_t count = 0;
    for (size_t i = 0; i < in->entry_count; i++) {
        shard_name parts;
        count += shard_name_parse_as(in->entries[i], suffix, &parts) &&
                 shard_name_same_set(in->entries[i], &parts, entry, of);
    }
    return count;
}

fsdpck_status hf_missing_family_error(const open_request *req, const char *suffix,
                                      const char *entry, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    shard_name parts;
    text_buf list = {.limit_bytes = 200};
    uint32_t missing = 0;
    if (!shard_name_parse_as(entry, suffix, &parts))
        return FAIL(err, INTERNAL, NONE, "name has no numbers");
    const uint32_t first = first_number(in, entry, &parts);
    /* A count in a name may be any number. */
    for (uint64_t n = first; n < (uint64_t)first + parts.file_count && missing < MISSING_MOST;
         n++) {
        if (has_number(in, entry, &parts, n))
            continue;
        missing++;
        char name[NAME_NBYTES_MAX];
        (void)name_with(entry, &parts, (uint32_t)n, has_all_digits(entry, &parts), name);
        log_missing_file(&req->log, in->path, name);
        text_printf(&list, "%s%s", list.nbytes > 0 ? ", " : "", name);
    }
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, FILE_MISSING,
                  ("files of the model are missing: %s%s", list.text != NULL ? list.text : "",
                   list.failed ? ", ..." : ""),
                  (path, in->path),
                  (expected, "%" PRIu32 " file%s", parts.file_count, text_plural(parts.file_count)),
                  (found, "%" PRIu32, count_family(in, entry, &parts, suffix)));
    text_release(&list);
    const char *other = renamed_file_find(in, RENAMED_FILE_ANY_SIZE, is_numbered_or_other, suffix);
    if (other != NULL)
        error_next(
            err,
            "rename '%s' if it is a missing file; otherwise copy or download the missing files",
            other);
    else if (!parts.is_slice && strstr(entry, "-of-") == NULL &&
             count_family(in, entry, &parts, suffix) == 1) /* "epoch_1_of_3" may be whole */
        error_next(err, "copy or download the missing files; to read only one file, give %s/%s",
                   in->path, entry);
    return st;
}

fsdpck_status hf_missing_check_slices(const open_request *req, const char *entry, fsdpck_error *err)
{
    shard_name parts;
    if (!shard_name_parse(entry, &parts) || !parts.is_slice || parts.file_count == 1)
        return FSDPCK_OK;
    return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                     ("files of tensor-parallel ranks, which hold slices of tensors"),
                     (path, req->path), (found, "'%s'", entry),
                     (next, "give the folder that they were converted from"));
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

/* "10", or "10 files: 26 of 29 tensors are whole (1234 bytes), 3 tensors are lost: ..." */
static void set_found(const open_request *req, const hf_index *ix, size_t there, fsdpck_error *err)
{
    text_buf lost = {.limit_bytes = 65536};
    if (ix != NULL)
        st_lost_describe_missing(req, ix, &lost);
    if (lost.nbytes > 0 && !lost.failed)
        error_found(err, "%zu file%s: %s", there, text_plural(there), lost.text);
    else
        error_found(err, "%zu", there);
    text_release(&lost);
}

static fsdpck_status check_present(const open_request *req, const char *const *names, size_t count,
                                   const char *suffix, const hf_index *ix, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    text_buf list = {.limit_bytes = 300};
    char link_to[200] = "", link[300] = "";
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
        if (link[0] == '\0' && dead_link_target(&in->dir, names[i], link_to, sizeof link_to))
            snprintf(link, sizeof link, "%.80s", names[i]);
        log_missing_file(&req->log, in->path, names[i]);
        text_printf(&list, "%s%s", missing > 1 ? ", " : "", names[i]);
    }
    fsdpck_status st = FSDPCK_OK;
    if (missing > 0) {
        const indexed_names n = {names, count, suffix};
        st = FAIL_WITH(err, BADINPUT, FILE_MISSING,
                       ("files in the index are missing: %s%s", list.text != NULL ? list.text : "",
                        list.failed ? ", ..." : ""),
                       (path, in->path), (expected, "%zu file%s", count, text_plural(count)));
        set_found(req, ix, count - missing, err);
        const char *other = renamed_file_find(in, RENAMED_FILE_ANY_SIZE, is_indexed_or_other, &n);
        if (other != NULL)
            error_next(
                err,
                "rename '%s' if it is a missing file; otherwise copy or download the missing files",
                other);
        else if (link[0] != '\0')
            error_next(
                err,
                "'%s' is a link to '%s', which does not exist: restore the target (of a cache "
                "of the Hub, the folder 'blobs'), or copy or download the missing files",
                link, link_to);
        else
            error_next(err, "copy or download the missing files");
    }
    text_release(&list);
    return st;
}

fsdpck_status hf_missing_check(const open_request *req, const char *const *names, size_t count,
                               const char *suffix, const hf_index *ix, fsdpck_error *err)
{
    const char *entry;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status st = check_present(req, names, count, suffix, ix, &what);
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    if (open_request_tolerate(req, st, &what))
        return FSDPCK_OK;
    RETURN_IF(st);
    if (hf_missing_family_of(req->probe, names, count, suffix, &entry))
        return hf_missing_family_error(req, suffix, entry, err);
    return FSDPCK_OK;
}
