#include "formats/dcp/dcp_lost.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

/* Most names, and their bytes: an error has space for the numbers and these. */
#define LOST_NAMED  3u
#define NAMES_BYTES 110u

typedef struct lost_items {
    const dcp_folder *d;
    const catalogue *cat;
    const dcp_file_state *states; /* NULL: one file */
    uint32_t file_id;
    uint64_t whole, whole_nbytes; /* tensors */
    uint64_t lost, named;
    text_buf names; /* of the first ones */
} lost_items;

static bool is_of_error(const lost_items *l, uint32_t file_id)
{
    return l->states != NULL ? dcp_is_missing(l->states, file_id) : file_id == l->file_id;
}

/* By the size of the file, which is 0 if it is missing. */
static bool is_outside(const lost_items *l, uint32_t file_id, uint64_t offset_bytes,
                       uint64_t nbytes)
{
    return file_id != CAT_NONE &&
           !checked_range(offset_bytes, nbytes, catalogue_file(l->cat, file_id)->nbytes);
}

static void add_lost(lost_items *l, const char *name)
{
    const bool fits = l->named == 0 || l->names.nbytes + strlen(name) + 4 <= NAMES_BYTES;
    if (l->lost++ != l->named || l->named == LOST_NAMED || !fits)
        return;
    text_printf(&l->names, "%s'%s'", l->named > 0 ? ", " : "", name);
    l->named++;
}

/* By tensor. Its chunks need not be consecutive yet. */
enum { IS_WHOLE, IS_LOST, IS_LOST_HERE };

static void see_chunks(const lost_items *l, uint8_t *of_tensor)
{
    for (uint64_t i = 0, n = catalogue_chunk_count(l->cat); i < n; i++) {
        const cat_chunk *c = catalogue_chunk(l->cat, i);
        if (c->place == LOCATION_EMPTY || !is_outside(l, c->file, c->offset_bytes, c->nbytes))
            continue;
        if (is_of_error(l, c->file))
            of_tensor[c->tensor] = IS_LOST_HERE;
        else if (of_tensor[c->tensor] == IS_WHOLE)
            of_tensor[c->tensor] = IS_LOST;
    }
}

static bool see_tensors(lost_items *l)
{
    const size_t n = catalogue_tensor_count(l->cat);
    uint8_t *of_tensor = budget_alloc(l->cat->owner, n, NULL);
    if (of_tensor == NULL)
        return false;
    see_chunks(l, of_tensor);
    for (size_t i = 0; i < n; i++) {
        if (of_tensor[i] == IS_LOST_HERE)
            add_lost(l, catalogue_name(l->cat, catalogue_tensor(l->cat, i)->name));
        if (of_tensor[i] != IS_WHOLE)
            continue;
        l->whole++;
        l->whole_nbytes += catalogue_tensor_nbytes(l->cat, i);
    }
    budget_free(l->cat->owner, of_tensor, n);
    return true;
}

static void see_objects(lost_items *l)
{
    for (size_t i = 0; i < catalogue_object_count(l->cat); i++) {
        const cat_object *o = catalogue_object(l->cat, i);
        if (is_outside(l, o->file, o->offset_bytes, o->nbytes) && is_of_error(l, o->file))
            add_lost(l, catalogue_name(l->cat, o->name));
    }
    for (size_t i = 0; i < l->d->repeats.count; i++) {
        const dcp_repeat *r = dcp_repeat_at(l->d, i);
        if (is_outside(l, r->file, r->offset_bytes, r->nbytes) && is_of_error(l, r->file))
            add_lost(l, dcp_object_name(l->cat, r->object));
    }
}

void dcp_lost_describe(const dcp_folder *d, const catalogue *cat, const dcp_file_state *states,
                       uint32_t file_id, text_buf *text)
{
    lost_items l = {.d = d, .cat = cat, .states = states, .file_id = file_id};
    const uint64_t tensors = catalogue_tensor_count(cat);
    l.names.limit_bytes = 65536;
    if (!see_tensors(&l)) {
        text_release(&l.names);
        return;
    }
    see_objects(&l);
    text_printf(text, "%" PRIu64 " of %" PRIu64 " tensor%s %s whole (%" PRIu64 " bytes)", l.whole,
                tensors, text_plural(tensors), l.whole == 1 ? "is" : "are", l.whole_nbytes);
    if (l.lost > 0)
        text_printf(text, ", %" PRIu64 " tensor%s lost or cut: %s", l.lost,
                    l.lost == 1 ? " or object is" : "s and objects are",
                    l.names.text != NULL ? l.names.text : "");
    if (l.lost > l.named)
        text_printf(text, " and %" PRIu64 " more", l.lost - l.named);
    text_release(&l.names);
}
