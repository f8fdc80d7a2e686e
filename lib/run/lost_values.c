#include "run/lost_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "run/digest_run.h"
#include "run/tensor_glob.h"

#define NAMES_SHOWN 5u

/* Patterns of the names of some tensors. */
typedef struct glob_list {
    text_buf *texts;
    const char **globs;
    size_t count;
} glob_list;

static void globs_release(glob_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        text_release(&l->texts[i]);
    free(l->texts);
    free(l->globs);
}

static fsdpck_status globs_make(glob_list *l, const fsdpck_checkpoint *base,
                                const uint32_t *tensors, size_t count, fsdpck_error *err)
{
    *l = (glob_list){.texts = calloc(count, sizeof *l->texts),
                     .globs = calloc(count, sizeof *l->globs)};
    if (l->texts == NULL || l->globs == NULL)
        return error_set_nomem(err, count * sizeof *l->texts);
    l->count = count;
    for (size_t i = 0; i < count; i++) {
        RETURN_IF(tensor_glob_make(base, tensors[i], &l->texts[i], err));
        l->globs[i] = l->texts[i].text;
    }
    return FSDPCK_OK;
}

/* Whether the digest is that of zeros. */
static bool is_zero(const fsdpck_digests *d, const digest_row *row)
{
    static const uint8_t zeros[4096];
    const char *type = d->rows.texts.text + row->type_at;
    uint64_t digest = crc64_update(crc64_update(0, type, strlen(type)), "\n", 1);
    for (uint64_t left = catalogue_tensor_nbytes(&d->run.to.cat, row->tensor); left > 0;) {
        const size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        digest = crc64_update(digest, zeros, n);
        left -= n;
    }
    return digest == row->digest;
}

static void warn_of_values(const run *r, const fsdpck_digests *d)
{
    text_buf names = {.limit_bytes = 1024};
    uint64_t count = 0;
    for (uint64_t i = 0; i < d->rows.count; i++)
        if (!is_zero(d, &d->rows.rows[i]) && count++ < NAMES_SHOWN)
            text_printf(&names, "%s'%s'", count > 1 ? ", " : "", d->rows.rows[i].name);
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_MAP_LOST, "",
                 "%" PRIu64 " tensor%s with values other than zero, which the model needs and the "
                 "output lacks: %s%s",
                 count, count == 1 ? "" : "s", names.text == NULL ? "" : names.text,
                 count > NAMES_SHOWN ? ", ..." : "");
    text_release(&names);
}

static fsdpck_status find_digests(run *r, const glob_list *l, fsdpck_digests *d, fsdpck_error *err)
{
    run_options o;
    run_options_init(&o);
    o.work = r->opt.work;
    o.select.part = FSDPCK_PART_MODEL;
    o.select.clean_names = FSDPCK_ON;
    o.select.keys = l->globs;
    o.select.keys_count = l->count;
    o.select.replicas = r->opt.select.replicas;
    return digest_run(d, r->ctx, r->src->base, &o, false, err);
}

fsdpck_status lost_values_check(run *r, fsdpck_error *err)
{
    size_t count = 0;
    const uint32_t *tensors =
        r->src->mapper == NULL ? NULL : map_adapter_lost(r->src->mapper, &count);
    if (count == 0)
        return FSDPCK_OK;
    glob_list l;
    fsdpck_digests d = {0};
    fsdpck_status st = globs_make(&l, r->src->base, tensors, count, err);
    st = group_agree(r->ctx->group, st, err);
    if (st == FSDPCK_OK) {
        /* The output does not need them: it can be written though they are damaged. */
        fsdpck_error unread = {0};
        st = find_digests(r, &l, &d, &unread);
        if (st == FSDPCK_OK)
            warn_of_values(r, &d);
        else if (st == FSDPCK_BADINPUT)
            log_warn(&r->ctx->log, FSDPCK_FINDING_MAP_LOST, "",
                     "%zu tensor%s that the model needs and the output lacks, and whose values are "
                     "unknown: %s",
                     count, count == 1 ? "" : "s", unread.message);
        else if (err != NULL)
            *err = unread;
        st = st == FSDPCK_BADINPUT ? FSDPCK_OK : st;
    }
    digest_run_release(&d);
    globs_release(&l);
    return st;
}
