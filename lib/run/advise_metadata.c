/* Texts of the source's safetensors files and of their index that the output does not contain. */
#include <inttypes.h>

#include "base/text.h"
#include "run/run.h"

enum { NAMED_MOST = 3 };

/* Which texts are left out, of m. */
typedef bool (*left_out_fn)(const run *r, const cat_metadata *m, uint32_t key);

static bool is_any(const run *r, const cat_metadata *m, uint32_t key)
{
    size_t nbytes;
    const char *name = cat_metadata_key(m, key, &nbytes);
    (void)r;
    return !text_is(name, nbytes, "format");
}

static bool is_different(const run *r, const cat_metadata *m, uint32_t key)
{
    size_t nbytes;
    (void)r;
    return cat_metadata_text(m, key, &nbytes) == NULL;
}

/* The number of parameters follows from the tensors. */
static bool is_of_index(const run *r, const cat_metadata *m, uint32_t key)
{
    size_t nbytes;
    const char *name = cat_metadata_key(m, key, &nbytes);
    if (text_is(name, nbytes, "format") || text_is(name, nbytes, "total_parameters"))
        return false;
    return !r->to.has_index || cat_metadata_text(m, key, &nbytes) == NULL;
}

static uint64_t list(const run *r, const cat_metadata *m, left_out_fn left_out, text_buf *names)
{
    uint64_t count = 0;
    for (uint32_t key = 0; m != NULL && key < cat_metadata_count(m); key++) {
        char text[64];
        size_t nbytes;
        const char *name = cat_metadata_key(m, key, &nbytes);
        if (!left_out(r, m, key) || count++ >= NAMED_MOST)
            continue;
        text_printf(names, "%s'%s'", count > 1 ? ", " : "",
                    escape_text(text, sizeof text, name, nbytes));
    }
    if (count > NAMED_MOST)
        text_puts(names, ", ...");
    return count;
}

void run_advise_metadata(const run *r)
{
    const cat_origin *o = &r->src->cat.origin;
    const bool holds = r->writer->takes == STATE_NAMES_ONLY && !r->writer->flat;
    text_buf names = {.limit_bytes = 240}, of_index = {.limit_bytes = 240};
    uint64_t count = list(r, o->metadata, holds ? is_different : is_any, &names);
    const char *text = names.text == NULL ? "?" : names.text;
    if (count > 0 && holds)
        log_warn(&r->ctx->log, FSDPCK_FINDING_ST_LEFT_OUT,
                 r->src->average != NULL
                     ? "give --objects-from N to keep those of input N"
                     : "convert the files one at a time to keep the texts of each",
                 "left out: %" PRIu64 " text%s of '__metadata__' that differ%s between files: %s",
                 count, text_plural(count), count == 1 ? "s" : "", text);
    else if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_ST_LEFT_OUT, "",
                 "left out: %" PRIu64 " text%s of '__metadata__', which '%s' cannot hold: %s",
                 count, text_plural(count), r->writer->name, text);
    count = list(r, o->index_metadata, is_of_index, &of_index);
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_ST_LEFT_OUT, "",
                 "left out: %" PRIu64 " member%s of 'metadata' of the index, which the output has "
                 "no place for: %s",
                 count, text_plural(count), of_index.text == NULL ? "?" : of_index.text);
    text_release(&names);
    text_release(&of_index);
}
