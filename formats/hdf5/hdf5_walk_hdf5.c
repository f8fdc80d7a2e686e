/* The walk over groups, in the child. Each group is visited once, so a cycle of links ends. Hard
 * links come first, whatever their order: the target of a soft link then already has its name. */
#define H5_USE_110_API
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_driver.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_report.h"

#define LINKS_MAX       ((uint64_t)1 << 22)
#define SOFT_NBYTES_MAX ((size_t)256 << 20)
#define NOT_A_DATASET   UINT64_MAX
#define A_GROUP         (UINT64_MAX - 1)

/* Of a link, before its name with its NUL. */
typedef struct link_head {
    uint64_t address; /* of a hard one's object */
    H5L_type_t type;
} link_head;

/* Of a soft link that is resolved at the end, before its path. */
typedef struct soft_head {
    uint64_t group; /* its address */
    uint32_t path_nbytes, name_nbytes;
} soft_head;

/* A group's links. */
typedef struct frame {
    hid_t group;
    uint64_t address;
    char *links;
    size_t nbytes, capacity, at;
    size_t path_nbytes; /* of the group's own */
} frame;

typedef struct seen {
    uint64_t address; /* 0: free, since the superblock is there */
    uint64_t dataset; /* its number, NOT_A_DATASET or A_GROUP */
} seen;

typedef struct walk {
    hdf5_record_writer put;
    hid_t file;
    hdf5_driver driver;
    raw_extent place;
    bool by_fsdpck;
    frame stack[HDF5_DEPTH_MAX];
    unsigned depth;
    seen *seen;
    size_t seen_count, seen_capacity; /* power of two */
    uint64_t links;
    char *soft;
    size_t soft_nbytes, soft_capacity;
    char path[HDF5_NAME_NBYTES_MAX];
    size_t path_nbytes;
} walk;

static bool fail(walk *w, hdf5_fail why)
{
    return report_fail(&w->put, why, w->path, w->path_nbytes);
}

static bool report_left(walk *w, hdf5_left why)
{
    put_u8(&w->put, why);
    put_text(&w->put, w->path, w->path_nbytes);
    put_record(&w->put, HDF5_LEFT);
    return !w->put.failed;
}

/* ---- visited objects ---- */

static seen *seen_place(seen *table, size_t capacity, uint64_t address)
{
    size_t i = (size_t)(address * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (capacity - 1);
    while (table[i].address != 0 && table[i].address != address)
        i = (i + 1) & (capacity - 1);
    return &table[i];
}

static bool seen_grow(walk *w)
{
    if (4 * w->seen_count < 3 * w->seen_capacity)
        return true;
    const size_t capacity = w->seen_capacity == 0 ? 1024 : 2 * w->seen_capacity;
    seen *grown = calloc(capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    for (size_t i = 0; i < w->seen_capacity; i++)
        if (w->seen[i].address != 0)
            *seen_place(grown, capacity, w->seen[i].address) = w->seen[i];
    free(w->seen);
    w->seen = grown;
    w->seen_capacity = capacity;
    return true;
}

/* An object cannot have address 0, but a damaged file may contain it. */
static uint64_t key_of(uint64_t address)
{
    return address == 0 ? UINT64_MAX : address;
}

/* NULL: not visited. */
static const seen *met_before(const walk *w, uint64_t address)
{
    if (w->seen_capacity == 0)
        return NULL;
    const seen *s = seen_place(w->seen, w->seen_capacity, key_of(address));
    return s->address != 0 ? s : NULL;
}

/* The entry of an object; *is_new: not visited before. NULL: no memory. */
static seen *meet(walk *w, uint64_t address, bool *is_new)
{
    if (!seen_grow(w))
        return NULL;
    seen *s = seen_place(w->seen, w->seen_capacity, key_of(address));
    *is_new = s->address == 0;
    if (*is_new) {
        w->seen_count++;
        *s = (seen){key_of(address), NOT_A_DATASET};
    }
    return s;
}

/* ---- groups ---- */

static herr_t add_link(hid_t group, const char *name, const H5L_info_t *info, void *ctx)
{
    frame *f = ctx;
    const link_head head = {info->type == H5L_TYPE_HARD ? info->u.address : 0, info->type};
    const size_t nname = strlen(name) + 1, n = sizeof head + nname;
    (void)group;
    if (f->capacity - f->nbytes < n) {
        const size_t capacity = 2 * (f->nbytes + n) + 1024;
        char *grown = realloc(f->links, capacity);
        if (grown == NULL)
            return -1;
        f->links = grown;
        f->capacity = capacity;
    }
    memcpy(f->links + f->nbytes, &head, sizeof head);
    memcpy(f->links + f->nbytes + sizeof head, name, nname);
    f->nbytes += n;
    return 0;
}

static void pop(walk *w)
{
    frame *f = &w->stack[--w->depth];
    H5Gclose(f->group);
    free(f->links);
}

/* In creation order if the group tracks it, otherwise by name. */
static H5_index_t order_of(hid_t group)
{
    unsigned flags = 0;
    const hid_t create = H5Gget_create_plist(group);
    if (create < 0)
        return H5_INDEX_NAME;
    (void)H5Pget_link_creation_order(create, &flags);
    H5Pclose(create);
    return flags & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

/* Takes ownership of the group. */
static bool push(walk *w, hid_t group, uint64_t address)
{
    if (w->depth == HDF5_DEPTH_MAX) {
        H5Gclose(group);
        return fail(w, HDF5_FAIL_DEPTH);
    }
    frame *f = &w->stack[w->depth++];
    *f = (frame){.group = group, .address = address, .path_nbytes = w->path_nbytes};
    if (H5Literate(group, order_of(group), H5_ITER_INC, NULL, add_link, f) < 0)
        return fail(w, HDF5_FAIL_OBJECT);
    return f->nbytes > 0 || w->depth == 1 || report_left(w, HDF5_LEFT_EMPTY);
}

static bool set_path(walk *w, const frame *f, const char *name)
{
    const size_t n = strlen(name), slash = f->path_nbytes > 0;
    const bool fits = n + slash <= sizeof w->path - f->path_nbytes;
    w->path_nbytes = f->path_nbytes;
    if (!fits && slash)
        return fail(w, HDF5_FAIL_NAME);
    if (slash)
        w->path[w->path_nbytes++] = '/';
    const size_t kept = fits ? n : sizeof w->path;
    memcpy(w->path + w->path_nbytes, name, kept);
    w->path_nbytes += kept;
    return fits || fail(w, HDF5_FAIL_NAME);
}

/* ---- links ---- */

typedef struct dead_end {
    bool loops, leaves;
} dead_end;

static herr_t find_why(unsigned n, const H5E_error2_t *e, void *ctx)
{
    dead_end *why = ctx;
    (void)n;
    why->loops = why->loops || e->min_num == H5E_NLINKS;
    why->leaves = why->leaves || e->min_num == H5E_NOTREGISTERED;
    return 0;
}

/* A soft link without a target is harmless. A loop, or a link out of the file (a kind that this
 * library no longer supports), is an error. */
static bool no_object(walk *w)
{
    dead_end why = {0};
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_why, &why);
    if (why.loops)
        return fail(w, HDF5_FAIL_LINK_LOOP);
    if (why.leaves)
        return fail(w, HDF5_FAIL_EXTERNAL_LINK);
    return report_left(w, HDF5_LEFT_DANGLING);
}

static bool report_link(walk *w, uint64_t dataset)
{
    put_u64(&w->put, dataset);
    put_text(&w->put, w->path, w->path_nbytes);
    put_record(&w->put, HDF5_LINK);
    return !w->put.failed;
}

/* An object that was visited under another name. */
static bool visit_again(walk *w, const seen *met)
{
    if (met->dataset == A_GROUP)
        return report_left(w, HDF5_LEFT_GROUP);
    return met->dataset == NOT_A_DATASET || report_link(w, met->dataset);
}

static bool visit_dataset(walk *w, hid_t object, seen *met, uint64_t address)
{
    const uint64_t before = w->put.datasets;
    if (!report_dataset(&w->put, object, address, &w->place, w->by_fsdpck, w->path, w->path_nbytes))
        return false;
    if (w->put.datasets > before)
        met->dataset = before;
    return true;
}

/* Takes ownership of the object. */
static bool visit_object(walk *w, hid_t object)
{
    H5O_info_t info;
    bool is_new, ok = true;
    if (H5Oget_info2(object, &info, H5O_INFO_BASIC) < 0) {
        H5Oclose(object);
        return fail(w, HDF5_FAIL_OBJECT);
    }
    seen *met = meet(w, info.addr, &is_new);
    if (met == NULL) {
        H5Oclose(object);
        return fail(w, HDF5_FAIL_MEMORY);
    }
    if (info.type == H5O_TYPE_GROUP && is_new) {
        met->dataset = A_GROUP;
        if (!report_attributes(&w->put, object, w->by_fsdpck)) {
            H5Oclose(object);
            return false;
        }
        return push(w, object, info.addr);
    }
    if (!is_new)
        ok = visit_again(w, met);
    else if (info.type == H5O_TYPE_DATASET)
        ok = visit_dataset(w, object, met, info.addr) &&
             report_attributes(&w->put, object, w->by_fsdpck);
    H5Oclose(object);
    return ok;
}

/* The target of a hard link is not opened again. */
static bool visit_hard(walk *w, hid_t group, uint64_t address)
{
    const seen *met = met_before(w, address);
    if (met != NULL)
        return visit_again(w, met);
    const hid_t object = H5Oopen_by_addr(group, address);
    return object < 0 ? fail(w, HDF5_FAIL_OBJECT) : visit_object(w, object);
}

/* By its path and name, for visit_soft_links(). */
static bool keep_soft(walk *w, uint64_t group, const char *name)
{
    const soft_head head = {group, (uint32_t)w->path_nbytes, (uint32_t)strlen(name)};
    const size_t n = sizeof head + w->path_nbytes;
    if (n > SOFT_NBYTES_MAX - w->soft_nbytes)
        return fail(w, HDF5_FAIL_COUNT);
    if (w->soft_capacity - w->soft_nbytes < n) {
        const size_t capacity = 2 * (w->soft_nbytes + n) + 1024;
        char *grown = realloc(w->soft, capacity);
        if (grown == NULL)
            return fail(w, HDF5_FAIL_MEMORY);
        w->soft = grown;
        w->soft_capacity = capacity;
    }
    memcpy(w->soft + w->soft_nbytes, &head, sizeof head);
    memcpy(w->soft + w->soft_nbytes + sizeof head, w->path, w->path_nbytes);
    w->soft_nbytes += n;
    return true;
}

static bool visit_link(walk *w, const frame *f, const link_head *link, const char *name)
{
    if (++w->links > LINKS_MAX)
        return fail(w, HDF5_FAIL_COUNT);
    if (link->type == H5L_TYPE_EXTERNAL)
        return fail(w, HDF5_FAIL_EXTERNAL_LINK);
    if (link->type == H5L_TYPE_HARD)
        return visit_hard(w, f->group, link->address);
    if (link->type != H5L_TYPE_SOFT)
        return fail(w, HDF5_FAIL_LINK_KIND);
    return keep_soft(w, f->address, name);
}

static bool walk_down(walk *w)
{
    while (w->depth > 0) {
        frame *f = &w->stack[w->depth - 1];
        if (f->at == f->nbytes) {
            pop(w);
            continue;
        }
        const char *name = f->links + f->at + sizeof(link_head);
        link_head link;
        memcpy(&link, f->links + f->at, sizeof link);
        f->at += sizeof link + strlen(name) + 1;
        if (!set_path(w, f, name) || !visit_link(w, f, &link, name))
            return false;
    }
    return true;
}

/* The link that the path is of, in a group of that address. */
static bool visit_soft(walk *w, uint64_t address, const char *name)
{
    const hid_t group = H5Oopen_by_addr(w->file, address);
    if (group < 0)
        return fail(w, HDF5_FAIL_OBJECT);
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    const bool ok = object < 0 ? no_object(w) : visit_object(w, object);
    H5Oclose(group);
    return ok;
}

/* Their targets were visited, except in a damaged file, which may add more. */
static bool visit_soft_links(walk *w)
{
    for (size_t at = 0; at < w->soft_nbytes;) {
        soft_head head;
        char name[HDF5_NAME_NBYTES_MAX + 1];
        memcpy(&head, w->soft + at, sizeof head);
        memcpy(w->path, w->soft + at + sizeof head, head.path_nbytes);
        w->path_nbytes = head.path_nbytes;
        memcpy(name, w->path + head.path_nbytes - head.name_nbytes, head.name_nbytes);
        name[head.name_nbytes] = '\0';
        at += sizeof head + head.path_nbytes;
        if (!visit_soft(w, head.group, name) || !walk_down(w))
            return false;
    }
    return true;
}

/* Whether fsdpck wrote the file: then datasets have the attribute "fqn". */
static bool find_writer(walk *w, hid_t root)
{
    char *text;
    size_t n;
    if (!report_attribute(root, "format", HDF5_OBJECTS_NBYTES_MAX, &text, &n))
        return report_fail(&w->put, HDF5_FAIL_OBJECT, "format", strlen("format"));
    w->by_fsdpck = text != NULL && strcmp(text, HDF5_FORMAT_NAME) == 0;
    free(text);
    return true;
}

static bool walk_groups(walk *w)
{
    const hid_t root = H5Oopen(w->file, "/", H5P_DEFAULT);
    if (root < 0)
        return fail(w, HDF5_FAIL_OBJECT);
    return find_writer(w, root) && visit_object(w, root) && walk_down(w) && visit_soft_links(w);
}

/* ---- the file ---- */

/* Only those of the root group are used. */
static bool report_root_attribute(walk *w, hid_t root, const char *name)
{
    size_t n;
    char *text;
    if (!report_attribute(root, name, HDF5_OBJECTS_NBYTES_MAX, &text, &n))
        return report_fail(&w->put, HDF5_FAIL_OBJECT, name, strlen(name));
    if (text == NULL)
        return true;
    put_text(&w->put, name, strlen(name));
    put_bytes(&w->put, text, n);
    put_record(&w->put, HDF5_ATTR);
    free(text);
    return !w->put.failed;
}

static void take_place(void *ctx, uint64_t offset_bytes, uint64_t nbytes)
{
    raw_extent *place = ctx;
    place->count++;
    place->offset_bytes = offset_bytes;
    place->nbytes = nbytes;
}

static bool open_file(walk *w, int in_fd)
{
    w->driver = (hdf5_driver){
        .fd = in_fd, .nowhere = w->place.nowhere, .raw = take_place, .ctx = &w->place};
    const hid_t access = (hid_t)hdf5_driver_access(&w->driver);
    w->file = access < 0 ? -1 : H5Fopen(HDF5_DRIVER_PATH, H5F_ACC_RDONLY, access);
    return w->file >= 0 || fail(w, HDF5_FAIL_OPEN);
}

static bool report_hello(walk *w)
{
    hsize_t user_block = 0;
    const hid_t create = H5Fget_create_plist(w->file);
    if (create < 0 || H5Pget_userblock(create, &user_block) < 0)
        return fail(w, HDF5_FAIL_OPEN);
    H5Pclose(create);
    put_u32(&w->put, HDF5_PROTOCOL_VERSION);
    put_u64(&w->put, user_block);
    put_record(&w->put, HDF5_HELLO);
    return true;
}

static bool look(walk *w, int in_fd)
{
    /* No shared object is loaded, nothing is printed, no other file is opened. */
    if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0 ||
        H5Lunregister(H5L_TYPE_EXTERNAL) < 0)
        return fail(w, HDF5_FAIL_OPEN);
    if (!open_file(w, in_fd) || !report_hello(w) || !walk_groups(w))
        return false;
    const hid_t root = H5Gopen2(w->file, "/", H5P_DEFAULT);
    if (root < 0)
        return fail(w, HDF5_FAIL_OBJECT);
    if (!report_root_attribute(w, root, "format") ||
        !report_root_attribute(w, root, HDF5_OBJECTS_ATTRIBUTE))
        return false;
    put_u64(&w->put, w->put.datasets);
    put_record(&w->put, HDF5_END);
    return true;
}

bool hdf5_child_built(void)
{
    return true;
}

bool hdf5_child_run(void *ctx, int in_fd, int out_fd)
{
    walk *w = calloc(1, sizeof *w);
    (void)ctx;
    if (w == NULL)
        return false;
    w->put.fd = out_fd;
    const bool done = look(w, in_fd);
    /* The process exit releases open objects and the driver: closing damaged ones may crash. */
    return put_finish(&w->put) && done;
}
