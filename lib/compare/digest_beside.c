#include "compare/digest_beside.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "open/nested_folders.h"
#include "open/other_files.h"
#include "open/state_files.h"

enum { LIST_NBYTES = 400 };

/* Files and folders without digests. */
typedef struct uncovered {
    uint64_t files, folders;
    text_buf names;
} uncovered;

static void add_name(uncovered *u, const char *name)
{
    char escaped[256];
    text_printf(&u->names, "%s'%s'", u->names.nbytes > 0 ? ", " : "",
                escape_text(escaped, sizeof escaped, name, strlen(name)));
}

/* trainer_state.json is a log. */
static void add_files(uncovered *u, const vec *files)
{
    for (size_t i = 0; i < files->count; i++) {
        const found_state_file *f = VEC_AT(files, const found_state_file, i);
        if (strcmp(f->name, TRAINER_STATE_JSON) == 0)
            continue;
        u->files++;
        add_name(u, f->name);
    }
}

static fsdpck_status add_folders(uncovered *u, const fsdpck_checkpoint *c, fsdpck_error *err)
{
    nested_folders l;
    nested_folders_init(&l);
    const fsdpck_status st = nested_folders_add(&l, c, err);
    for (size_t i = 0; st == FSDPCK_OK && i < l.list.count; i++) {
        const nested_folder *f = VEC_AT(&l.list, const nested_folder, i);
        if (f->is_state || f->of_consolidation)
            continue; /* files that are listed, or the same weights */
        u->folders++;
        add_name(u, text_file_name(f->path));
    }
    nested_folders_warn_unread(&l, &c->ctx->log);
    nested_folders_release(&l);
    return st;
}

/* A list of a selection is none of the whole folder. */
static bool selects(const fsdpck_select_options *s)
{
    return s->keys_count > 0 || s->exclude_count > 0 ||
           (s->part >= 0 && s->part != FSDPCK_PART_ALL);
}

static fsdpck_status find_uncovered(uncovered *u, fsdpck_checkpoint *src, fsdpck_error *err)
{
    RETURN_IF(trainer_state_list(src, err));
    RETURN_IF(other_files_list(src, err));
    add_files(u, &src->state_files);
    add_files(u, &src->other_files);
    u->files += src->other_files_more;
    return add_folders(u, src, err);
}

static void warn_of(const uncovered *u, const logger *log)
{
    char counts[160] = "";
    size_t n = 0;
    if (u->files > 0)
        n = (size_t)snprintf(counts, sizeof counts, "%" PRIu64 " other file%s beside the weights",
                             u->files, text_plural(u->files));
    if (u->folders > 0)
        (void)snprintf(counts + n, sizeof counts - n,
                       "%s%" PRIu64 " folder%s below with checkpoints of their own",
                       n > 0 ? ", " : "", u->folders, text_plural(u->folders));
    log_warn(log, FSDPCK_FINDING_STATE_BESIDE,
             "list the digests of each of them, or all files with: fsdpck digest --manifest FILE "
             "SRC",
             "without digests: %s: %s%s", counts, u->names.text == NULL ? "" : u->names.text,
             u->names.failed ? ", ..." : "");
}

fsdpck_status digest_beside_warn(fsdpck_checkpoint *src, const fsdpck_digest_options *options,
                                 fsdpck_error *err)
{
    fsdpck_digest_options o = FSDPCK_INIT(fsdpck_digest_options);
    fsdpck_select_options select = FSDPCK_INIT(fsdpck_select_options);
    uncovered u = {.names = {.limit_bytes = LIST_NBYTES}};
    select.part = -1;
    RETURN_IF(STRUCT_COPY_IN(&o, options, fsdpck_digest_options, err));
    if (o.select != NULL)
        RETURN_IF(STRUCT_COPY_IN(&select, o.select, fsdpck_select_options, err));
    if (o.ignore_beside || selects(&select) || src->base != NULL ||
        /* of a map */ !(src->probe.is_folder || src->entered_from != NULL))
        return FSDPCK_OK;
    const fsdpck_status st = find_uncovered(&u, src, err);
    if (st == FSDPCK_OK && u.files + u.folders > 0)
        warn_of(&u, &src->ctx->log);
    text_release(&u.names);
    return st;
}
