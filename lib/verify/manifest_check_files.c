/* The files of a checkpoint against its manifest: presence, sizes, checksums. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "run/file_checksums.h"
#include "run/sidecars.h"
#include "verify/manifest_check_internal.h"

/* Files that a partial check reads too: metadata, configurations. */
#define SMALL_NBYTES ((uint64_t)1 << 20)
/* Limit of changed files whose content is searched in the manifest. */
#define HASHES_TRACED 1000u

bool manifest_check_is_folder(const manifest_check *w)
{
    path_kind kind = PATH_FILE;
    if (w->r->src != NULL)
        return w->r->src->probe.is_folder || w->base.is_above;
    return path_probe(NULL, w->r->path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

static const manifest_file *listed(const manifest_check *w, size_t i)
{
    return VEC_AT(&w->m.files, const manifest_file, i);
}

/* A manifest of one file applies to the checked file, even if that was renamed. */
static const char *file_name(const manifest_check *w, size_t i)
{
    return w->only != NULL && w->m.files.count == 1 ? w->only : manifest_file_name(&w->m, i);
}

size_t manifest_check_find_file(const manifest_check *w, const char *name, size_t nbytes)
{
    if (w->only != NULL && w->m.files.count == 1)
        return strlen(w->only) == nbytes && memcmp(w->only, name, nbytes) == 0 ? 0 : SIZE_MAX;
    return manifest_find_file(&w->m, name, nbytes);
}

fsdpck_status manifest_check_find_own(const manifest_check *w, uint32_t i, size_t *at,
                                      fsdpck_error *err)
{
    const fsdpck_checkpoint *src = w->r->src;
    const catalogue *cat = src->adapter == NULL ? &src->cat : &src->read;
    text_buf name = {0};
    const fsdpck_status st = manifest_base_name(
        &w->base,
        src->probe.is_folder ? catalogue_name(cat, catalogue_file(cat, i)->path) : src->probe.name,
        &name, err);
    if (st == FSDPCK_OK)
        *at = manifest_check_find_file(w, name.text, name.nbytes);
    text_release(&name);
    return st;
}

/* A folder's manifest also lists files beside the single checked file; those are not checked. */
static bool is_other(const manifest_check *w, size_t i)
{
    return w->only != NULL && strcmp(file_name(w, i), w->only) != 0;
}

/* As the user would name it. */
void error_manifest_file(fsdpck_error *err, const manifest_check *w, const char *name)
{
    error_path_in(err, strcmp(w->dir->path, ".") == 0 ? NULL : w->dir->path, name);
}

static void report_file(const manifest_check *w, fsdpck_finding_id id, const char *name,
                        const char *message, const char *next)
{
    fsdpck_error what;
    FAIL_AS(&what, FSDPCK_BADINPUT, id, ("%s", message), (manifest_file, w, name),
            (next, "%s", next));
    findings_report(w->r->found, &what);
}

/* The reader has reported all missing files with chunks. A finding with a tensor is about an
 * existing file that lacks the tensor. */
static bool are_lost_reported(const findings *f)
{
    for (size_t i = 0; i < f->kept; i++)
        if (f->list[i].what.finding == FSDPCK_FINDING_FILE_MISSING &&
            f->list[i].what.tensor[0] == '\0')
            return true;
    return false;
}

static fsdpck_status check_listed(manifest_check *w, size_t i, fsdpck_error *err)
{
    const manifest_file *f = listed(w, i);
    const char *name = file_name(w, i);
    fsdpck_error what;
    path_kind kind;
    uint64_t nbytes;
    if (is_other(w, i))
        return FSDPCK_OK;
    RETURN_IF(path_probe(w->dir, name, &kind, &nbytes, err));
    w->good[i] = kind == PATH_FILE && nbytes == f->nbytes;
    w->differs = w->differs || !w->good[i];
    if (kind == PATH_ABSENT && w->lost_are_reported && sidecars_is_weights(name) &&
        !text_ends_with(name, strlen(name), ".json"))
        return FSDPCK_OK;
    if (kind != PATH_FILE) {
        report_file(w, FSDPCK_FINDING_MAN_MISSING, name,
                    kind == PATH_ABSENT ? "file in the manifest is missing"
                                        : "entry in the manifest is not a regular file",
                    "copy the file from where the checkpoint was written");
        return FSDPCK_OK;
    }
    if (w->good[i])
        return FSDPCK_OK;
    FAIL_WITH(&what, BADINPUT, MAN_SIZE, ("file size differs from the manifest"),
              (manifest_file, w, name), (expected, "%" PRIu64 " bytes", f->nbytes),
              (found, "%" PRIu64 " bytes", nbytes));
    findings_report(w->r->found, &what);
    return FSDPCK_OK;
}

/* Bundles of model signing, which fsdpck does not check. */
static bool is_signature(const char *name)
{
    return text_ends_with(name, strlen(name), ".sigstore") ||
           text_ends_with(name, strlen(name), ".sigstore.json") ||
           text_ends_with(name, strlen(name), "model.sig");
}

/* The only missing or changed file of the manifest with this size; NULL if none or several. */
static const char *find_lost_by_size(const manifest_check *w, uint64_t nbytes)
{
    const char *found = NULL;
    for (size_t i = 0; w->differs && i < w->m.files.count; i++) {
        if (w->good[i] || listed(w, i)->nbytes != nbytes)
            continue;
        if (found != NULL)
            return NULL;
        found = manifest_file_name(&w->m, i);
    }
    return found;
}

static void report_renamed(const manifest_check *w, const char *name, const char *lost)
{
    fsdpck_error what;
    FAIL_AS(&what, FSDPCK_BADINPUT,
            sidecars_is_weights(name) ? FSDPCK_FINDING_MAN_EXTRA : FSDPCK_FINDING_MAN_OTHER,
            ("file is not in the manifest"), (manifest_file, w, name),
            (found, "same size as '%s', which the manifest lists", lost),
            (next, "if it is that file, restore its name"));
    findings_report(w->r->found, &what);
}

/* Of a DCP folder. It lists the weights, but holds none. */
static bool is_metadata(const char *name)
{
    return strcmp(text_file_name(name), ".metadata") == 0;
}

static fsdpck_status check_extra(void *arg, const char *name, uint64_t nbytes, fsdpck_error *err)
{
    manifest_check *w = arg;
    (void)err;
    if (manifest_find_file(&w->m, name, strlen(name)) != SIZE_MAX)
        return FSDPCK_OK;
    if (is_signature(name))
        report_file(w, FSDPCK_FINDING_SIG_UNCHECKED, name, "signature is not checked",
                    "check it with the tool that created it");
    else if (find_lost_by_size(w, nbytes) != NULL)
        report_renamed(w, name, find_lost_by_size(w, nbytes));
    else if (sidecars_is_weights(name) || is_metadata(name))
        report_file(w, FSDPCK_FINDING_MAN_EXTRA, name,
                    is_metadata(name) ? "file of a checkpoint is not in the manifest"
                                      : "file with weights is not in the manifest",
                    "remove it if it does not belong to the checkpoint; otherwise make a new "
                    "manifest: fsdpck digest --manifest FILE SRC");
    else
        report_file(w, FSDPCK_FINDING_MAN_OTHER, name, "file is not in the manifest",
                    "ignore this if the file was added on purpose");
    return FSDPCK_OK;
}

/* ---- folders that the manifest does not name ---- */

typedef struct new_folder {
    uint64_t files;
    char first[256]; /* a file with weights, if it has any */
    bool has_weights;
} new_folder;

static fsdpck_status count_file(void *arg, const char *name, uint64_t nbytes, fsdpck_error *err)
{
    new_folder *f = arg;
    const bool is_weights = sidecars_is_weights(name) || is_metadata(name);
    (void)nbytes;
    (void)err;
    if (f->files++ == 0 || (is_weights && !f->has_weights))
        snprintf(f->first, sizeof f->first, "%s", name);
    f->has_weights = f->has_weights || is_weights;
    return FSDPCK_OK;
}

static void report_folder(const manifest_check *w, const char *name, const new_folder *f)
{
    fsdpck_error what;
    FAIL_AS(&what, FSDPCK_BADINPUT,
            f->has_weights ? FSDPCK_FINDING_MAN_EXTRA : FSDPCK_FINDING_MAN_OTHER,
            ("folder%s is not in the manifest", f->has_weights ? " with weights" : ""),
            (manifest_file, w, name),
            (found, "%" PRIu64 " file%s, such as '%s'", f->files, text_plural(f->files), f->first),
            (next, "%s",
             f->has_weights
                 ? "remove it if it does not belong to the checkpoint; otherwise make a new "
                   "manifest: fsdpck digest --manifest FILE SRC"
                 : "ignore this if the folder was added on purpose"));
    findings_report(w->r->found, &what);
}

/* With the folders inside it. An unreadable one has no files. */
static fsdpck_status check_new_folder(const manifest_check *w, const char *name, fsdpck_error *err)
{
    new_folder f = {0};
    strtab inside;
    uint32_t id;
    strtab_init(&inside, NULL);
    fsdpck_status st = strtab_intern(&inside, name, strlen(name), &id, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&inside); i++) {
        char *sub = strdup(strtab_text(&inside, i)); /* the table grows */
        if (sub == NULL)
            st = error_set_nomem(err, strlen(name));
        else if (file_checksums_walk(w->dir, sub, count_file, &f, NULL) == FSDPCK_OK)
            st = file_checksums_list_folders(w->dir, sub, &inside, err);
        free(sub);
    }
    strtab_release(&inside);
    if (st == FSDPCK_OK && f.files > 0)
        report_folder(w, name, &f);
    return st;
}

/* Folders in `sub` that are not among the known ones. */
static fsdpck_status check_new_folders(const manifest_check *w, const char *sub,
                                       const strtab *known, fsdpck_error *err)
{
    strtab here;
    strtab_init(&here, NULL);
    fsdpck_status st = file_checksums_list_folders(w->dir, sub, &here, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&here); i++) {
        const char *name = strtab_text(&here, i);
        if (strtab_find(known, name, strlen(name)) == STRTAB_NONE)
            st = check_new_folder(w, name, err);
    }
    strtab_release(&here);
    return st;
}

/* Checks the folder, inner folders that the manifest names, and finds others. */
static fsdpck_status check_extras(manifest_check *w, fsdpck_error *err)
{
    strtab subs;
    uint32_t id;
    if (!manifest_check_is_folder(w))
        return FSDPCK_OK;
    strtab_init(&subs, NULL);
    fsdpck_status st = strtab_intern(&subs, "", 0, &id, err);
    for (size_t i = 0; st == FSDPCK_OK && i < w->m.files.count; i++) {
        const char *name = manifest_file_name(&w->m, i);
        for (const char *at = strchr(name, '/'); st == FSDPCK_OK && at != NULL;
             at = strchr(at + 1, '/'))
            st = strtab_intern(&subs, name, (size_t)(at - name), &id, err);
    }
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&subs); i++) {
        path_kind kind = PATH_FOLDER;
        if (i > 0)
            st = path_probe(w->dir, strtab_text(&subs, i), &kind, NULL, err);
        if (st == FSDPCK_OK && kind == PATH_FOLDER)
            st = file_checksums_walk(w->dir, strtab_text(&subs, i), check_extra, w, err);
        if (st == FSDPCK_OK && kind == PATH_FOLDER)
            st = check_new_folders(w, strtab_text(&subs, i), &subs, err);
    }
    strtab_release(&subs);
    return st;
}

/* The manifest entry with this content, or NULL. */
static const char *listed_as(const manifest_check *w, const file_checksum *s)
{
    for (size_t i = 0; w->only == NULL && i < w->m.files.count; i++) {
        const manifest_file *f = listed(w, i);
        if (f->crc64 == s->crc64 && f->nbytes == s->nbytes)
            return manifest_file_name(&w->m, i);
    }
    return NULL;
}

static void report_hash(manifest_check *w, const manifest_file *f, const file_checksum *s, bool sha)
{
    const char *other = sha || w->reported_hashes++ > HASHES_TRACED ? NULL : listed_as(w, s);
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, MAN_HASH, ("contents of the file differ from the manifest"),
              (manifest_file, w, s->name));
    if (!sha) {
        error_expected(&what, "CRC-64 %016" PRIx64 " over %" PRIu64 " bytes", f->crc64, f->nbytes);
        if (other == NULL)
            error_found(&what, "%016" PRIx64, s->crc64);
        else
            error_found(&what, "%016" PRIx64 ", which the manifest lists for '%s'", s->crc64,
                        other);
    } else {
        char hex[2][65];
        for (unsigned i = 0; i < 32; i++) {
            snprintf(hex[0] + 2 * i, 3, "%02x", f->sha256[i]);
            snprintf(hex[1] + 2 * i, 3, "%02x", s->sha256[i]);
        }
        error_expected(&what, "SHA-256 %s", hex[0]);
        error_found(&what, "%s", hex[1]);
    }
    error_next(&what, "%s",
               other == NULL ? "copy the file again from where the checkpoint was written"
                             : "restore the file names, or copy the files again");
    findings_report(w->r->found, &what);
    w->differs = true;
}

/* Which of the catalogue's files are read through their indices there. */
static fsdpck_status map_files(manifest_check *w, fsdpck_error *err)
{
    const fsdpck_checkpoint *src = w->r->src;
    w->file_of = malloc((w->m.files.count + 1) * sizeof *w->file_of);
    if (w->file_of == NULL)
        return error_set_nomem(err, w->m.files.count * sizeof *w->file_of);
    for (size_t i = 0; i < w->m.files.count; i++)
        w->file_of[i] = CAT_NONE;
    if (src == NULL || src->adapter != NULL ||
        (!src->probe.is_folder && catalogue_file_count(&src->cat) != 1))
        return FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_file_count(&src->cat); i++) {
        size_t at;
        RETURN_IF(manifest_check_find_own(w, i, &at, err));
        if (at != SIZE_MAX)
            w->file_of[at] = i;
    }
    return FSDPCK_OK;
}

void manifest_check_select_files(const manifest_check *w, check_file *files)
{
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->m.files.count; i++)
        if (w->good[i] && w->file_of[i] != CAT_NONE)
            files[w->file_of[i]].nbytes = listed(w, i)->nbytes;
}

/* The checksum made while its chunks were read, or NULL. */
static const check_file *summed_file(const manifest_check *w, size_t i)
{
    if (w->summed == NULL || w->file_of[i] == CAT_NONE)
        return NULL;
    const check_file *f = &w->summed[w->file_of[i]];
    return f->nbytes > 0 && f->done ? f : NULL;
}

static void compare_checksum(manifest_check *w, const manifest_file *f, const file_checksum *s,
                             unsigned what)
{
    if (what & CHECKSUM_CRC64)
        w->result->bytes_summed += s->nbytes;
    if ((what & CHECKSUM_CRC64) && s->crc64 != f->crc64)
        report_hash(w, f, s, false);
    else if ((what & CHECKSUM_SHA256) && f->has_sha256 &&
             memcmp(s->sha256, f->sha256, sizeof f->sha256) != 0)
        report_hash(w, f, s, true);
}

/* Compares files with known checksums; the others are added to `rest`. */
static fsdpck_status compare_summed(manifest_check *w, file_checksums *rest, fsdpck_error *err)
{
    for (size_t i = 0; i < w->m.files.count; i++) {
        const manifest_file *f = listed(w, i);
        const char *name = file_name(w, i);
        const check_file *had = summed_file(w, i);
        if (!w->good[i])
            continue;
        if (had != NULL) {
            const file_checksum s = {
                .name = (char *)name, .nbytes = f->nbytes, .crc64 = had->crc64};
            compare_checksum(w, f, &s, CHECKSUM_CRC64);
        }
        if (had != NULL && !w->r->sha256)
            continue;
        if (w->partial && f->nbytes > SMALL_NBYTES) {
            w->result->unhashed_files++;
            continue;
        }
        RETURN_IF(file_checksums_add(rest, name, f->nbytes, err));
    }
    return FSDPCK_OK;
}

static void report_without_sha(const manifest_check *w)
{
    uint64_t without = 0;
    fsdpck_error note;
    for (size_t i = 0; i < w->m.files.count; i++)
        without += w->good[i] && !listed(w, i)->has_sha256;
    if (without == 0)
        return;
    FAIL_WITH(&note, BADINPUT, MAN_UNSEEN, ("manifest has no SHA-256 for some files"),
              (found, "%" PRIu64 " file%s", without, without == 1 ? "" : "s"),
              (next, "record them with fsdpck digest --sha256 --manifest FILE SRC, or "
                     "compare only the CRC-64: --level checksum without --sha256"));
    findings_report_as(w->r->found, FINDING_ERROR, &note);
}

/* Every byte of those that have the right size. */
fsdpck_status manifest_check_checksums(manifest_check *w, fsdpck_error *err)
{
    const unsigned what = CHECKSUM_CRC64 | (w->r->sha256 ? CHECKSUM_SHA256 : 0);
    file_checksums sums;
    file_checksums_init(&sums, w->dir, w->r->no_follow && w->only == NULL);
    group *g = w->r->src == NULL ? NULL : w->r->ctx->group; /* else rank 0 is alone */
    fsdpck_status st = group_agree(g, compare_summed(w, &sums, err), err);
    if (g != NULL)
        file_checksums_use_group(&sums, w->r->src);
    if (st == FSDPCK_OK && sums.files.count > 0)
        st = file_checksums_read(&sums, w->r->ctx, w->r->nthreads, what, err);
    for (size_t i = 0; st == FSDPCK_OK && i < sums.files.count; i++) {
        const file_checksum *s = VEC_AT(&sums.files, const file_checksum, i);
        const size_t at = manifest_check_find_file(w, s->name, strlen(s->name));
        compare_checksum(w, listed(w, at), s, summed_file(w, at) != NULL ? CHECKSUM_SHA256 : what);
    }
    if (st == FSDPCK_OK && w->r->sha256)
        report_without_sha(w);
    file_checksums_release(&sums);
    return st;
}

/* No file that it lists exists: it describes another checkpoint. One finding has the cause, so that the files and
 * tensors need none each. */
static fsdpck_status check_is_other(manifest_check *w, fsdpck_error *err)
{
    char name[512];
    fsdpck_error what;
    if (!manifest_check_is_folder(w) || w->m.files.count == 0 || w->lost_are_reported)
        return FSDPCK_OK;
    for (size_t i = 0; i < w->m.files.count; i++) {
        path_kind kind;
        RETURN_IF(path_probe(w->dir, file_name(w, i), &kind, NULL, err));
        if (kind != PATH_ABSENT)
            return FSDPCK_OK;
    }
    w->is_other = w->differs = true;
    fsdpck_escape(name, sizeof name, file_name(w, 0), strlen(file_name(w, 0)));
    FAIL_WITH(&what, BADINPUT, MAN_MISSING, ("no file of the folder is in the manifest"),
              (path, w->r->path),
              (expected, "%zu file%s: '%s'%s", w->m.files.count, text_plural(w->m.files.count),
               name, w->m.files.count > 1 ? ", ..." : ""),
              (next, "give the manifest of this checkpoint; if files were renamed, restore their "
                     "names"));
    findings_report(w->r->found, &what);
    return FSDPCK_OK;
}

fsdpck_status manifest_check_files(manifest_check *w, fsdpck_error *err)
{
    w->good = calloc(w->m.files.count + 1, 1);
    if (w->good == NULL)
        return error_set_nomem(err, w->m.files.count);
    w->lost_are_reported = w->r->src == NULL && are_lost_reported(w->r->found);
    RETURN_IF(check_is_other(w, err));
    for (size_t i = 0; !w->is_other && i < w->m.files.count; i++)
        RETURN_IF(check_listed(w, i, err));
    if (w->only != NULL && w->m.files.count > 0 &&
        manifest_check_find_file(w, w->only, strlen(w->only)) == SIZE_MAX)
        report_file(w, FSDPCK_FINDING_MAN_MISSING, w->only, "file is not in the manifest",
                    "give the manifest of this file, or the folder that contains it");
    if (!w->is_other)
        RETURN_IF(check_extras(w, err));
    return map_files(w, err);
}
