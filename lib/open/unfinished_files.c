/* Refuses files that are not complete although their format may be valid: downloads with a control
 * file beside them, saves of NeMo with a marker, and outputs of fsdpck before their commit. */
#include <string.h>

#include "base/text.h"
#include "io/unfinished_file.h"
#include "open/checkpoint.h"

enum { PATH_NBYTES_MAX = 4096 };

/* In any folder of the path: also a file inside of such an output. */
fsdpck_status checkpoint_check_partial(const char *path, fsdpck_error *err)
{
    for (const char *at = path; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        if (unfinished_is_partial_output(at, n))
            return FAIL_WITH(err, BADINPUT, FILE_UNFINISHED,
                             ("output of a run of fsdpck that did not complete"), (path, path),
                             (found, "'%.*s'", (int)n, at),
                             (next, "repeat the run, and remove its leftovers"));
        at += n + (at[n] == '/');
    }
    char marker[PATH_NBYTES_MAX];
    if (unfinished_has_marker(path, marker, sizeof marker))
        return FAIL_WITH(err, BADINPUT, FILE_UNFINISHED,
                         ("checkpoint is marked as unfinished: its save did not complete"),
                         (path, path), (found, "'%s'", marker),
                         (next, "use an older checkpoint; remove the marker only if this one is "
                                "known to be complete"));
    return FSDPCK_OK;
}

static fsdpck_status refuse(const char *path, const char *control, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, FILE_UNFINISHED,
                     ("file is not completely downloaded: the control file of the download lies "
                      "beside it"),
                     (path, path), (found, "'%s'", control),
                     (next, "complete the download; remove the control file only if the file is "
                            "known to be complete"));
}

/* Files that are read, and those that describe them. */
static bool is_read(const fsdpck_checkpoint *c, const catalogue *read, const char *name)
{
    return strcmp(name, ".metadata") == 0 || catalogue_has_file(read, name) ||
           (c->format->owns != NULL && c->format->owns(&c->probe, &read->origin, name, 0));
}

static fsdpck_status check_entries(const fsdpck_checkpoint *c, const catalogue *read,
                                   fsdpck_error *err)
{
    for (size_t i = 0; i < c->probe.entry_count; i++) {
        const char *entry = c->probe.entries[i];
        char name[PATH_NBYTES_MAX];
        const size_t n = unfinished_stem_nbytes(&c->probe.dir, entry);
        if (n == 0 || n >= sizeof name)
            continue;
        memcpy(name, entry, n);
        name[n] = '\0';
        if (probe_has_entry(&c->probe, name) && is_read(c, read, name))
            return refuse(c->path, entry, err);
    }
    return FSDPCK_OK;
}

fsdpck_status checkpoint_check_downloads(const fsdpck_checkpoint *c, const catalogue *read,
                                         fsdpck_error *err)
{
    char control[PATH_NBYTES_MAX];
    /* aria2 writes one for a whole folder. */
    if (unfinished_has_control(NULL, c->path, control, sizeof control) &&
        (!c->probe.is_folder || text_ends_with(control, strlen(control), ".aria2")))
        return refuse(c->path, text_file_name(control), err);
    if (!c->probe.is_folder)
        return FSDPCK_OK;
    for (size_t i = 0; i < catalogue_file_count(read); i++) {
        const char *path = catalogue_name(read, catalogue_file(read, i)->path);
        if (strchr(path, '/') != NULL &&
            unfinished_has_control(&c->probe.dir, path, control, sizeof control))
            return refuse(c->path, control, err);
    }
    return check_entries(c, read, err);
}
