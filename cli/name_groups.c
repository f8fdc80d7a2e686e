/* name_groups.c: the parts of a module, where those that differ in their number only are one group. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "name_tree.h"

#define NAME_CAPACITY 1024u

static bool same_leaf(const name_tree *tree, const name_node *a, const name_node *b)
{
    if (a->kind != NAME_TENSOR)
        return a->objects == b->objects;
    fsdpck_tensor s = FSDPCK_INIT(fsdpck_tensor), t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_get_tensor(tree->ckpt, a->first, &s);
    fsdpck_get_tensor(tree->ckpt, b->first, &t);
    return strcmp(s.dtype, t.dtype) == 0 && s.ndim == t.ndim &&
           (s.ndim == 0 || memcmp(s.shape, t.shape, s.ndim * sizeof *s.shape) == 0);
}

/* Whether two nodes are equal except for their own names. */
static bool same_contents(const name_tree *tree, size_t a, size_t b)
{
    const name_node *const p = &tree->nodes[a], *const q = &tree->nodes[b];
    if (p->end - a != q->end - b || p->hash != q->hash)
        return false;
    for (size_t k = 0; k < p->end - a; k++) {
        if (p[k].kind != q[k].kind || (p[k].kind != NAME_MODULE && !same_leaf(tree, &p[k], &q[k])))
            return false;
        if (k > 0 && (p[k].parent - a != q[k].parent - b || p[k].name_nbytes != q[k].name_nbytes ||
                      memcmp(p[k].name, q[k].name, p[k].name_nbytes) != 0))
            return false;
    }
    return true;
}

/* A part of a module. Only indices can be equal. */
typedef struct part {
    size_t node;
    uint64_t hash;
    bool is_index;
} part;

static int by_contents(const void *left, const void *right)
{
    const part *a = left, *b = right;
    if (a->is_index != b->is_index)
        return a->is_index ? -1 : 1;
    if (a->is_index && a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

/* ---- order ---- */

typedef struct keyed_group {
    uint64_t key; /* ascending */
    name_group group;
} keyed_group;

static int by_key(const void *left, const void *right)
{
    const keyed_group *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->group.node > b->group.node) - (a->group.node < b->group.node);
}

static uint64_t lowest_index(const name_tree *tree, const name_groups *g, const name_group *group)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < group->count; i++) {
        const uint64_t at = tree->nodes[g->members[group->begin + i]].first;
        first = at < first ? at : first;
    }
    return first;
}

static bool sort_groups(const name_tree *tree, name_order order, name_groups *g)
{
    keyed_group *keyed = calloc(g->count + 1, sizeof *keyed);
    if (keyed == NULL)
        return false;
    for (size_t i = 0; i < g->count; i++) {
        keyed[i].group = g->groups[i];
        if (order == NAME_ORDER_SIZE)
            keyed[i].key = UINT64_MAX - g->groups[i].nbytes;
        else if (order == NAME_ORDER_STORED)
            keyed[i].key = lowest_index(tree, g, &g->groups[i]);
    }
    qsort(keyed, g->count, sizeof *keyed, by_key);
    for (size_t i = 0; i < g->count; i++)
        g->groups[i] = keyed[i].group;
    free(keyed);
    return true;
}

bool name_groups_make(const name_tree *tree, size_t node, name_order order, name_groups *out)
{
    const name_node *const nodes = tree->nodes;
    size_t count = 0;
    *out = (name_groups){0};
    for (size_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
        count++;
    part *parts = calloc(count + 1, sizeof *parts);
    out->groups = calloc(count + 1, sizeof *out->groups);
    out->members = calloc(count + 1, sizeof *out->members);
    bool ok = parts != NULL && out->groups != NULL && out->members != NULL;
    for (size_t i = node + 1, k = 0; ok && i < nodes[node].end; i = nodes[i].end)
        parts[k++] = (part){i, nodes[i].hash, name_is_index(nodes[i].name, nodes[i].name_nbytes)};
    if (ok)
        qsort(parts, count, sizeof *parts, by_contents);
    for (size_t k = 0; ok && k < count; k++) {
        name_group *const last = &out->groups[out->count == 0 ? 0 : out->count - 1];
        out->members[k] = parts[k].node;
        if (out->count > 0 && parts[k].is_index && same_contents(tree, last->node, parts[k].node)) {
            last->count++;
            last->nbytes += nodes[parts[k].node].nbytes;
        } else {
            out->groups[out->count++] =
                (name_group){parts[k].node, k, 1, nodes[parts[k].node].nbytes};
        }
    }
    free(parts);
    return ok && sort_groups(tree, order, out);
}

void name_groups_release(name_groups *g)
{
    free(g->groups);
    free(g->members);
    *g = (name_groups){0};
}

/* ---- labels ---- */

static uint64_t index_of(const name_tree *tree, size_t node)
{
    uint64_t index = 0;
    for (size_t i = 0; i < tree->nodes[node].name_nbytes; i++)
        index = 10 * index + (uint64_t)(tree->nodes[node].name[i] - '0');
    return index;
}

/* Number of members from the first on whose indices have one distance, *step; at least 3, else 1. */
static size_t run_length(const name_tree *tree, const size_t *members, size_t count, uint64_t *step)
{
    size_t n = 2;
    if (count < 3)
        return 1;
    *step = index_of(tree, members[1]) - index_of(tree, members[0]);
    while (n < count && index_of(tree, members[n]) - index_of(tree, members[n - 1]) == *step)
        n++;
    return n < 3 ? 1 : n;
}

static void put_ranges(const name_tree *tree, const size_t *members, size_t count, text_buf *out)
{
    text_puts(out, "{");
    for (size_t i = 0; i < count;) {
        uint64_t step = 0;
        const size_t n = run_length(tree, members + i, count - i, &step);
        text_printf(out, "%s%" PRIu64, i > 0 ? "," : "", index_of(tree, members[i]));
        if (n > 1)
            text_printf(out, "..%" PRIu64, index_of(tree, members[i + n - 1]));
        if (n > 1 && step != 1)
            text_printf(out, "..%" PRIu64, step);
        i += n;
    }
    text_puts(out, "}");
}

char *name_group_label(const name_tree *tree, const name_groups *g, const name_group *group)
{
    text_buf text = {0};
    char name[NAME_CAPACITY];
    const name_node *const node = &tree->nodes[group->node];
    if (group->count > 1)
        put_ranges(tree, g->members + group->begin, group->count, &text);
    else
        text_puts(&text, fsdpck_escape(name, sizeof name, node->name, node->name_nbytes));
    text_append(&text, "", 1); /* for an empty name */
    if (!text.failed)
        return text.text;
    text_release(&text);
    return NULL;
}
