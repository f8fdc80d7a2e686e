#include "name_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define INDEX_DIGITS_MAX 18u

bool name_is_index(const char *name, size_t nbytes)
{
    if (nbytes == 0 || nbytes > INDEX_DIGITS_MAX || (name[0] == '0' && nbytes > 1))
        return false;
    for (size_t i = 0; i < nbytes; i++)
        if (name[i] < '0' || name[i] > '9')
            return false;
    return true;
}

static int compare_bytes(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const int order = memcmp(a, b, a_nbytes < b_nbytes ? a_nbytes : b_nbytes);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

/* Indices come first. Without leading zeros, the shorter of two is the smaller. */
static int compare_parts(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const bool a_index = name_is_index(a, a_nbytes), b_index = name_is_index(b, b_nbytes);
    if (a_index != b_index)
        return a_index ? -1 : 1;
    if (a_index && a_nbytes != b_nbytes)
        return a_nbytes < b_nbytes ? -1 : 1;
    return compare_bytes(a, a_nbytes, b, b_nbytes);
}

static size_t part_nbytes(const char *name, size_t nbytes, size_t begin)
{
    const char *dot = begin < nbytes ? memchr(name + begin, '.', nbytes - begin) : NULL;
    return (dot == NULL ? nbytes : (size_t)(dot - name)) - begin;
}

int name_compare(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    size_t begin = 0; /* of the first parts that differ */
    size_t i = 0;
    for (; i < a_nbytes && i < b_nbytes && a[i] == b[i]; i++)
        if (a[i] == '.')
            begin = i + 1;
    const size_t a_part = part_nbytes(a, a_nbytes, begin), b_part = part_nbytes(b, b_nbytes, begin);
    const int order = compare_parts(a + begin, a_part, b + begin, b_part);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

/* ---- names ---- */

typedef struct entry {
    const char *name;
    size_t name_nbytes;
    uint64_t index; /* objects follow the tensors */
    uint64_t nbytes;
} entry;

static int by_name(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    const int order = name_compare(a->name, a->name_nbytes, b->name, b->name_nbytes);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_size(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->nbytes != b->nbytes)
        return a->nbytes > b->nbytes ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Tensors, then objects if they are wanted. */
static entry *list_entries(const fsdpck_checkpoint *ckpt, const fsdpck_info *info, bool objects)
{
    entry *list = calloc(info->tensors + info->objects + 1, sizeof *list);
    if (list == NULL)
        return NULL;
    for (uint64_t i = 0; i < info->tensors; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(ckpt, i, &t);
        list[i] = (entry){t.name, t.name_nbytes, i, t.nbytes};
    }
    for (uint64_t i = 0; objects && i < info->objects; i++) {
        fsdpck_object o = FSDPCK_INIT(fsdpck_object);
        fsdpck_get_object(ckpt, i, &o);
        list[info->tensors + i] = (entry){o.name, o.name_nbytes, info->tensors + i, 0};
    }
    return list;
}

uint64_t *name_order_tensors(const fsdpck_checkpoint *ckpt, name_order order)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(ckpt, &info);
    entry *list = list_entries(ckpt, &info, false);
    uint64_t *indices = list == NULL ? NULL : calloc(info.tensors + 1, sizeof *indices);
    if (indices != NULL && order != NAME_ORDER_STORED)
        qsort(list, info.tensors, sizeof *list, order == NAME_ORDER_NAME ? by_name : by_size);
    for (uint64_t i = 0; indices != NULL && i < info.tensors; i++)
        indices[i] = list[i].index;
    free(list);
    return indices;
}

/* ---- nodes ---- */

/* Length in bytes of the common prefix of a and b that ends with a dot. */
static size_t common_prefix_nbytes(const entry *a, const entry *b)
{
    size_t shared = 0;
    for (size_t i = 0; i < a->name_nbytes && i < b->name_nbytes && a->name[i] == b->name[i]; i++)
        if (a->name[i] == '.')
            shared = i + 1;
    return shared;
}

static bool add_node(name_tree *tree, const name_node *node)
{
    if (tree->count == tree->capacity) {
        const size_t more = tree->capacity + tree->capacity / 2 + 64;
        name_node *moved =
            more > SIZE_MAX / sizeof *moved ? NULL : realloc(tree->nodes, more * sizeof *moved);
        if (moved == NULL)
            return false;
        tree->nodes = moved;
        tree->capacity = more;
    }
    tree->nodes[tree->count] = *node;
    tree->nodes[tree->count].end = tree->count + 1;
    tree->count++;
    return true;
}

/* FNV-1a. A collision only leaves equal modules apart, because groups are compared. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}

#define HASH_BEGIN UINT64_C(0xCBF29CE484222325)

static uint64_t dtype_bit(name_tree *tree, const char *dtype)
{
    size_t i = 0;
    while (i < tree->dtype_count && strcmp(tree->dtypes[i], dtype) != 0)
        i++;
    if (i == NAME_TREE_DTYPES)
        return 0;
    if (i == tree->dtype_count)
        tree->dtypes[tree->dtype_count++] = dtype;
    return UINT64_C(1) << i;
}

static void fill_leaf(name_tree *tree, uint64_t tensors, const entry *e, name_node *node)
{
    node->first = e->index;
    node->hash = HASH_BEGIN;
    if (e->index >= tensors) {
        node->kind = NAME_OBJECT;
        node->objects = 1;
        return;
    }
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_get_tensor(tree->ckpt, e->index, &t);
    node->kind = NAME_TENSOR;
    node->tensors = 1;
    node->nbytes = t.nbytes;
    node->dtypes = dtype_bit(tree, t.dtype);
    node->hash = hash_bytes(node->hash, t.dtype, strlen(t.dtype));
    node->hash = hash_bytes(node->hash, t.shape, t.ndim * sizeof *t.shape);
}

/* An object that differs between ranks has one entry per rank. */
static bool joins_object(const name_tree *tree, const name_node *leaf)
{
    const name_node *last = &tree->nodes[tree->count - 1];
    return leaf->kind == NAME_OBJECT && last->kind == NAME_OBJECT && last->parent == leaf->parent &&
           compare_bytes(last->name, last->name_nbytes, leaf->name, leaf->name_nbytes) == 0;
}

/* Adds the modules of an entry below *module, then its leaf; *module: the module of the leaf. */
static bool add_entry(name_tree *tree, uint64_t tensors, const entry *e, size_t *module)
{
    size_t at = tree->nodes[*module].prefix_nbytes;
    for (size_t n; (n = part_nbytes(e->name, e->name_nbytes, at)) + at < e->name_nbytes &&
                   tree->nodes[*module].depth < NAME_TREE_DEPTH;) {
        const name_node node = {.name = e->name + at,
                                .name_nbytes = n,
                                .prefix_nbytes = at + n + 1,
                                .parent = *module,
                                .depth = tree->nodes[*module].depth + 1,
                                .first = UINT64_MAX,
                                .hash = HASH_BEGIN};
        if (!add_node(tree, &node))
            return false;
        *module = tree->count - 1;
        at += n + 1;
    }
    name_node leaf = {.name = e->name + at, .name_nbytes = e->name_nbytes - at, .parent = *module};
    fill_leaf(tree, tensors, e, &leaf);
    if (joins_object(tree, &leaf)) {
        tree->nodes[tree->count - 1].objects++;
        return true;
    }
    return add_node(tree, &leaf);
}

static void add_totals(name_tree *tree)
{
    name_node *const nodes = tree->nodes;
    for (size_t i = tree->count - 1; i > 0; i--) {
        name_node *const n = &nodes[i], *const p = &nodes[n->parent];
        if (n->kind == NAME_OBJECT)
            n->hash = hash_bytes(n->hash, &n->objects, sizeof n->objects);
        p->tensors += n->tensors;
        p->nbytes += n->nbytes;
        p->objects += n->objects;
        p->dtypes |= n->dtypes;
        p->first = n->first < p->first ? n->first : p->first;
        p->end = n->end > p->end ? n->end : p->end;
        p->hash = hash_bytes(p->hash, n->name, n->name_nbytes);
        p->hash = hash_bytes(p->hash, &n->hash, sizeof n->hash);
    }
}

bool name_tree_build(name_tree *tree, const fsdpck_checkpoint *ckpt)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(ckpt, &info);
    *tree = (name_tree){.ckpt = ckpt};
    const size_t count = info.tensors + info.objects;
    entry *list = list_entries(ckpt, &info, true);
    const name_node root = {.name = "", .first = UINT64_MAX, .hash = HASH_BEGIN};
    bool ok = list != NULL && add_node(tree, &root);
    if (ok)
        qsort(list, count, sizeof *list, by_name);
    size_t module = 0;
    for (size_t i = 0; ok && i < count; i++) {
        const size_t shared = i == 0 ? 0 : common_prefix_nbytes(&list[i - 1], &list[i]);
        while (tree->nodes[module].prefix_nbytes > shared)
            module = tree->nodes[module].parent;
        ok = add_entry(tree, info.tensors, &list[i], &module);
    }
    free(list);
    if (ok)
        add_totals(tree);
    return ok;
}

void name_tree_release(name_tree *tree)
{
    free(tree->nodes);
    *tree = (name_tree){0};
}
