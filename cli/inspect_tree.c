/* fsdpck inspect --tree: modules with their tensors, bytes and dtypes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect_print.h"
#include "report.h"
#include "table.h"

#define TEXT_CAPACITY 512u
#define INDENTS_MAX   40u

/* A line to print. A module with a single part is on the line of that part: "layers.{0..31}". */
typedef struct line {
    size_t node;
    char *label;
    uint64_t times; /* modules that the line stands for */
    unsigned depth;
} line;

/* Lines to print, the next one last. */
typedef struct lines {
    line *items;
    size_t count, capacity;
} lines;

static bool push(lines *pending, line item)
{
    if (item.label == NULL)
        return false;
    if (pending->count == pending->capacity) {
        const size_t more = pending->capacity + pending->capacity / 2 + 64;
        line *moved = realloc(pending->items, more * sizeof *moved);
        if (moved == NULL) {
            free(item.label);
            return false;
        }
        pending->items = moved;
        pending->capacity = more;
    }
    pending->items[pending->count++] = item;
    return true;
}

/* Appends ".label", which is freed. */
static bool extend_label(line *at, char *label)
{
    if (label == NULL)
        return false;
    const size_t n = strlen(at->label), more = strlen(label);
    char *moved = realloc(at->label, n + more + 2);
    if (moved != NULL) {
        moved[n] = '.';
        memcpy(moved + n + 1, label, more + 1);
        at->label = moved;
    }
    free(label);
    return moved != NULL;
}

/* "float32, int64, 2 objects"; "object" of one without parts. */
static void put_types(const name_tree *tree, const name_node *n, char *text, size_t capacity)
{
    size_t used = 0;
    char count[40];
    text[0] = '\0';
    for (size_t i = 0; i < tree->dtype_count && used < capacity; i++)
        if (n->dtypes >> i & 1)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "",
                                     tree->dtypes[i]);
    if (n->kind == NAME_OBJECT && n->objects == 1)
        snprintf(text, capacity, "object");
    else if (n->objects > 0 && used < capacity)
        snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "",
                 report_count(count, sizeof count, n->objects, "object"));
}

static void add_row(const name_tree *tree, const line *at, table *rows)
{
    const name_node *const n = &tree->nodes[at->node];
    char times[40] = "", number[40], tensors[96], bytes[40], nbytes[96], types[TEXT_CAPACITY],
         shape[TEXT_CAPACITY] = "";
    if (at->times > 1)
        snprintf(times, sizeof times, "%" PRIu64 " x ", at->times);
    snprintf(tensors, sizeof tensors, "%s%s", times,
             report_number(number, sizeof number, n->tensors));
    snprintf(nbytes, sizeof nbytes, "%s%s", times, report_bytes(bytes, sizeof bytes, n->nbytes));
    put_types(tree, n, types, sizeof types);
    if (n->kind == NAME_TENSOR) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(tree->ckpt, n->first, &t);
        report_shape(shape, sizeof shape, t.shape, t.ndim);
    }
    const size_t indent = 2 * (at->depth < INDENTS_MAX ? at->depth : INDENTS_MAX);
    char *name = malloc(indent + strlen(at->label) + 1);
    if (name != NULL) {
        memset(name, ' ', indent);
        memcpy(name + indent, at->label, strlen(at->label) + 1);
    }
    const bool has_tensors = n->tensors > 0;
    const char *const cells[] = {name, has_tensors ? tensors : "-", has_tensors ? nbytes : "-",
                                 types, shape};
    table_add(rows, name == NULL ? NULL : cells);
    free(name);
}

/* Adds the lines of the parts of `at`, the first one last. */
static bool push_parts(const name_tree *tree, const name_groups *parts, const line *at,
                       lines *pending)
{
    bool ok = true;
    for (size_t i = parts->count; ok && i-- > 0;)
        ok = push(pending, (line){.node = parts->groups[i].node,
                                  .label = name_group_label(tree, parts, &parts->groups[i]),
                                  .times = parts->groups[i].count,
                                  .depth = at->depth + (at->label != NULL)});
    return ok;
}

/* Follows single parts from the line, prints it, and adds the lines of the parts at the end. */
static bool print_line(const name_tree *tree, name_order order, line *at, lines *pending,
                       table *rows)
{
    name_groups parts;
    bool ok = name_groups_make(tree, at->node, order, &parts);
    while (ok && parts.count == 1 && at->label != NULL) {
        at->node = parts.groups[0].node;
        at->times *= parts.groups[0].count;
        ok = extend_label(at, name_group_label(tree, &parts, &parts.groups[0]));
        name_groups_release(&parts);
        ok = ok && name_groups_make(tree, at->node, order, &parts);
    }
    if (ok && at->label != NULL)
        add_row(tree, at, rows);
    ok = ok && push_parts(tree, &parts, at, pending);
    name_groups_release(&parts);
    return ok;
}

int inspect_print_tree(const cli *c, const fsdpck_checkpoint *ckpt, name_order order)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},
                                           {"TENSORS", TABLE_NUMBER},
                                           {"BYTES", TABLE_NUMBER},
                                           {"DTYPE", TABLE_TEXT},
                                           {"SHAPE", TABLE_TEXT}};
    name_tree tree;
    lines pending = {0};
    table *rows = table_new(&c->out, columns, 5);
    bool ok = name_tree_build(&tree, ckpt);
    line at = {0}; /* the root, which has no line */
    ok = ok && print_line(&tree, order, &at, &pending, rows);
    while (pending.count > 0) {
        at = pending.items[--pending.count];
        ok = ok && print_line(&tree, order, &at, &pending, rows);
        free(at.label);
    }
    free(pending.items);
    name_tree_release(&tree);
    ok = table_print(rows) && ok;
    return ok ? 0 : report_no_memory(c);
}
