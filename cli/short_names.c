#include "short_names.h"

#include <stdlib.h>
#include <string.h>

typedef struct short_name {
    const text_part *name; /* the whole name */
    size_t at, nbytes;     /* in short_list.text, its short form */
    const char *text;      /* of all short forms, once they are complete */
    size_t index;
} short_name;

typedef struct short_list {
    short_name *items;
    size_t count;
    char *text;
    size_t nbytes, capacity;
} short_list;

static int compare_bytes(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const int order = memcmp(a, b, a_nbytes < b_nbytes ? a_nbytes : b_nbytes);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

static int compare_names(const void *a, const void *b)
{
    const short_name *x = a, *y = b;
    return compare_bytes(x->text + x->at, x->nbytes, y->text + y->at, y->nbytes);
}

static bool add_bytes(short_list *l, const char *text, size_t nbytes)
{
    if (l->nbytes + nbytes > l->capacity) {
        const size_t more = 2 * (l->nbytes + nbytes);
        char *moved = realloc(l->text, more);
        if (moved == NULL)
            return false;
        l->text = moved;
        l->capacity = more;
    }
    if (nbytes > 0)
        memcpy(l->text + l->nbytes, text, nbytes);
    l->nbytes += nbytes;
    return true;
}

static bool add_name(short_list *l, const text_part *name, size_t index, size_t width)
{
    text_part parts[TEXT_PARTS_MAX];
    const size_t count = text_shorten(name->text, name->nbytes, width, parts), at = l->nbytes;
    for (size_t i = 0; i < count; i++)
        if (!add_bytes(l, parts[i].text, parts[i].nbytes))
            return false;
    l->items[l->count++] =
        (short_name){.name = name, .at = at, .nbytes = l->nbytes - at, .index = index};
    return true;
}

/* Marks the names of items [begin, end), which have one short form, unless all are the same name. */
static bool mark_group(const short_list *l, size_t begin, size_t end, bool *alike)
{
    const text_part *first = l->items[begin].name;
    bool differ = false;
    for (size_t i = begin + 1; i < end; i++) {
        const text_part *name = l->items[i].name;
        differ = differ || compare_bytes(first->text, first->nbytes, name->text, name->nbytes) != 0;
    }
    for (size_t i = begin; differ && i < end; i++)
        alike[l->items[i].index] = true;
    return differ;
}

bool short_names_mark(const text_part *names, size_t count, size_t width, bool *alike, bool *any)
{
    short_list l = {.items = calloc(count + 1, sizeof *l.items)};
    bool ok = l.items != NULL;
    *any = false;
    memset(alike, 0, count * sizeof *alike);
    for (size_t i = 0; ok && i < count; i++)
        ok = add_name(&l, &names[i], i, width);
    for (size_t i = 0; ok && i < count; i++)
        l.items[i].text = l.text;
    if (ok && count > 0)
        qsort(l.items, count, sizeof *l.items, compare_names);
    for (size_t begin = 0, end; ok && begin < count; begin = end) {
        for (end = begin + 1; end < count && compare_names(&l.items[begin], &l.items[end]) == 0;)
            end++;
        *any = mark_group(&l, begin, end, alike) || *any;
    }
    free(l.items);
    free(l.text);
    return ok;
}
