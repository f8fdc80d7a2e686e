/* dcp_part_kinds.c: folders of parts that contain another part than those of their names, as a copy from the wrong folder
 * leaves them. */
#include <string.h>

#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_part_folders.h"

/* What a folder of a part contains. */
typedef struct part_content {
    uint64_t items, own; /* pieces of tensors and objects; with the key of this part, */
    uint64_t copied;     /* of tensors that are in the folder of another part too, */
    uint64_t of[DCP_PARTS_MAX]; /* and with the key of each part */
} part_content;

static uint32_t part_of_file(const catalogue *cat, const dcp_part_folders *f, uint32_t number)
{
    for (uint32_t part = 0; number < catalogue_file_count(cat) && part < dcp_part_count(f); part++) {
        const char *path = catalogue_name(cat, catalogue_file(cat, number)->path);
        const size_t n = strlen(f->parts[part].folder);
        if (strncmp(path, f->parts[part].folder, n) == 0 && path[n] == '/')
            return part;
    }
    return DCP_PARTS_MAX;
}

static void count_item(part_content *list, uint32_t part, uint32_t of, bool copied)
{
    if (part == DCP_PARTS_MAX)
        return;
    list[part].items++;
    list[part].own += of == part;
    list[part].copied += copied;
    if (of < DCP_PARTS_MAX)
        list[part].of[of]++;
}

static void count_tensor(const catalogue *cat, const dcp_part_folders *f, size_t tensor,
                         part_content *list)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint32_t of = dcp_part_of(f, catalogue_name(cat, t->name));
    uint32_t first = DCP_PARTS_MAX;
    bool copied = false;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const uint32_t part = part_of_file(cat, f, catalogue_chunk(cat, k)->file);
        copied = copied || (first != DCP_PARTS_MAX && part != DCP_PARTS_MAX && part != first);
        first = part != DCP_PARTS_MAX ? part : first;
    }
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        count_item(list, part_of_file(cat, f, catalogue_chunk(cat, k)->file), of, copied);
}

/* The part that a folder contains in place of its own; DCP_PARTS_MAX: none. */
static uint32_t other_part(const dcp_part_folders *f, const part_content *c, uint32_t part)
{
    if (c->items == 0 || c->own > 0)
        return DCP_PARTS_MAX;
    for (uint32_t of = 0; of < dcp_part_count(f); of++)
        if (c->of[of] == c->items)
            return of;
    return part > 0 && c->copied == c->items ? 0 : DCP_PARTS_MAX; /* a model without an outer key */
}

void dcp_warn_part_kinds(const dcp_folder *d, const dcp_marks *marks)
{
    part_content list[DCP_PARTS_MAX] = {{0}};
    const catalogue *cat = d->cat;
    if (marks->part_folders == 0)
        return;
    const dcp_part_folders *f = dcp_part_folders_get(marks->part_folders);
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        count_tensor(cat, f, i, list);
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        count_item(list, part_of_file(cat, f, o->file),
                   dcp_part_of(f, catalogue_name(cat, o->name)), false);
    }
    for (uint32_t part = 0; part < dcp_part_count(f); part++) {
        const uint32_t of = other_part(f, &list[part], part);
        if (of != DCP_PARTS_MAX)
            log_warn(&d->log, FSDPCK_FINDING_RANK_KIND,
                     "copy the folder again from where it was saved",
                     "'%s' contains the part of the state that belongs in '%s'",
                     f->parts[part].folder, f->parts[of].folder);
    }
}
