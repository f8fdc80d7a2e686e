#include "formats/dcp/dcp_lost.h"

#include "base/checked.h"
#include "formats/common/lost_text.h"

typedef struct lost_items {
    const dcp_folder *d;
    const catalogue *cat;
    const dcp_file_state *states; /* NULL: one file */
    uint32_t file_id;
    lost_text text;
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
            lost_text_add(&l->text, catalogue_name(l->cat, catalogue_tensor(l->cat, i)->name));
        if (of_tensor[i] != IS_WHOLE)
            continue;
        lost_text_add_whole(&l->text, catalogue_tensor_nbytes(l->cat, i));
    }
    budget_free(l->cat->owner, of_tensor, n);
    return true;
}

static void see_objects(lost_items *l)
{
    for (size_t i = 0; i < catalogue_object_count(l->cat); i++) {
        const cat_object *o = catalogue_object(l->cat, i);
        if (is_outside(l, o->file, o->offset_bytes, o->nbytes) && is_of_error(l, o->file))
            lost_text_add_object(&l->text, catalogue_name(l->cat, o->name));
    }
    for (size_t i = 0; i < l->d->repeats.count; i++) {
        const dcp_repeat *r = dcp_repeat_at(l->d, i);
        if (is_outside(l, r->file, r->offset_bytes, r->nbytes) && is_of_error(l, r->file))
            lost_text_add_object(&l->text, dcp_object_name(l->cat, r->object));
    }
}

void dcp_lost_describe(const dcp_folder *d, const catalogue *cat, const dcp_file_state *states,
                       uint32_t file_id, text_buf *text)
{
    lost_items l = {
        .d = d, .cat = cat, .states = states, .file_id = file_id, .text = LOST_TEXT_INIT};
    if (see_tensors(&l)) {
        see_objects(&l);
        lost_text_write(&l.text, catalogue_tensor_count(cat), text);
    }
    lost_text_release(&l.text);
}
