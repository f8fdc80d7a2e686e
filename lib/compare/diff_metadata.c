#include "compare/diff_metadata.h"

#include <inttypes.h>

#include "base/text.h"

enum { NAMED_MOST = 3, SHOWN_NBYTES = 40, LINE_NBYTES = 700 };

typedef struct texts {
    const cat_metadata *of_a, *of_b; /* NULL: none */
    uint64_t differing;
    text_buf names;
} texts;

/* Which framework wrote the file, and sizes that follow from the tensors. */
static bool is_by_program(const char *key, size_t nbytes)
{
    return text_is(key, nbytes, "format") || text_is(key, nbytes, "total_size") ||
           text_is(key, nbytes, "total_parameters");
}

static uint32_t find_key(const cat_metadata *m, const char *key, size_t nbytes)
{
    return m == NULL ? STRTAB_NONE : strtab_find(&m->keys, key, nbytes);
}

static void put_text(text_buf *out, const cat_metadata *m, uint32_t key)
{
    char shown[4 * SHOWN_NBYTES + 1];
    size_t nbytes = 0;
    const char *text = key == STRTAB_NONE ? NULL : cat_metadata_text(m, key, &nbytes);
    if (text == NULL) {
        text_puts(out, key == STRTAB_NONE ? "absent" : "several texts");
        return;
    }
    const bool is_long = nbytes > SHOWN_NBYTES;
    escape_text(shown, sizeof shown, text, is_long ? SHOWN_NBYTES : nbytes);
    text_printf(out, "'%s%s'", shown, is_long ? "..." : "");
}

static void compare_key(texts *t, const char *key, size_t nbytes)
{
    char name[64];
    const uint32_t a = find_key(t->of_a, key, nbytes), b = find_key(t->of_b, key, nbytes);
    const bool is_tie = (a != STRTAB_NONE && cat_metadata_is_tie(t->of_a, a)) ||
                        (b != STRTAB_NONE && cat_metadata_is_tie(t->of_b, b));
    const bool is_same =
        a != STRTAB_NONE && b != STRTAB_NONE && cat_metadata_is_same(t->of_a, a, t->of_b, b);
    if (is_by_program(key, nbytes) || is_tie || is_same)
        return;
    if (t->differing++ >= NAMED_MOST)
        return;
    text_printf(&t->names, "%s'%s' (", t->differing > 1 ? ", " : "",
                escape_text(name, sizeof name, key, nbytes));
    put_text(&t->names, t->of_a, a);
    text_puts(&t->names, " in A, ");
    put_text(&t->names, t->of_b, b);
    text_puts(&t->names, " in B)");
}

static void compare(texts *t)
{
    size_t nbytes;
    for (uint32_t k = 0; t->of_a != NULL && k < cat_metadata_count(t->of_a); k++) {
        const char *key = cat_metadata_key(t->of_a, k, &nbytes);
        compare_key(t, key, nbytes);
    }
    for (uint32_t k = 0; t->of_b != NULL && k < cat_metadata_count(t->of_b); k++) {
        const char *key = cat_metadata_key(t->of_b, k, &nbytes);
        if (find_key(t->of_a, key, nbytes) == STRTAB_NONE)
            compare_key(t, key, nbytes);
    }
}

static void report(const cat_metadata *a, const cat_metadata *b, const char *where,
                   const logger *log)
{
    texts t = {.of_a = a, .of_b = b, .names = {.limit_bytes = LINE_NBYTES}};
    compare(&t);
    if (t.differing > 0)
        log_warn(log, FSDPCK_FINDING_STATE_BESIDE,
                 "compare the headers of both files, if these texts are needed",
                 "%" PRIu64 " text%s of %s differ%s, which is not counted as a difference: %s%s",
                 t.differing, text_plural(t.differing), where, t.differing == 1 ? "s" : "",
                 t.names.text == NULL ? "?" : t.names.text,
                 t.differing > NAMED_MOST || t.names.failed ? ", ..." : "");
    text_release(&t.names);
}

static const fsdpck_checkpoint *first_of(const fsdpck_checkpoint *c)
{
    while (c->base != NULL)
        c = c->base;
    return c;
}

static bool is_safetensors(const fsdpck_checkpoint *c)
{
    return c->format->id == FSDPCK_FORMAT_SAFETENSORS || c->format->id == FSDPCK_FORMAT_HF ||
           c->format->id == FSDPCK_FORMAT_DCP_SAFETENSORS;
}

static const cat_origin *origin_of(const fsdpck_checkpoint *c)
{
    return c->adapter == NULL ? &c->cat.origin : &c->read.origin;
}

/* Only sets of numbered files have an index. */
void diff_metadata_warn(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b, const logger *log)
{
    a = first_of(a);
    b = first_of(b);
    if (!is_safetensors(a) || !is_safetensors(b))
        return;
    const cat_origin *of_a = origin_of(a), *of_b = origin_of(b);
    report(of_a->metadata, of_b->metadata, "'__metadata__'", log);
    if (of_a->index_metadata != NULL && of_b->index_metadata != NULL)
        report(of_a->index_metadata, of_b->index_metadata, "'metadata' of the index", log);
}
