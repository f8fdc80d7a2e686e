/* pt_flatten.h: names for the tensors and objects of a nested state.
 *
 *     pt_flat f;
 *     pt_flat_init(&f, cat, archive);
 *     st = pt_flatten(&f, err);   // adds objects to the catalogue; tensors are only named
 *     for (i = 0; i < archive->tensors.count; i++)
 *         VEC_AT(&f.names, pt_name, i)
 *     pt_flat_release(&f);
 *
 * A tensor or container with a second path gets a separate copy there (new index in
 * archive->tensors, same storage), so that each value of catalogue.root has one name and one index.
 */
#ifndef FSDPCK_FORMATS_PT_FLATTEN_H
#define FSDPCK_FORMATS_PT_FLATTEN_H

#include "formats/common/torch_archive.h"
#include "state/catalogue.h"
#include "state/value_map.h"

typedef struct pt_name {
    uint32_t flat; /* in pt_flat.flat; STRTAB_NONE: not reached by opening dicts and lists */
    value path;
    bool inner; /* inside an object; path None: not reachable through dicts, lists, tuples */
    uint64_t
        other_keys; /* bit i % 64: key i is neither text nor int, and the path has it as text */
} pt_name;

/* An object that may hold tensors: the location of its content. */
typedef struct pt_object_place {
    uint32_t object; /* of the catalogue */
    bool is_root;
    value items; /* DICT or LIST that holds it */
    size_t at;
    uint64_t other_keys; /* as in pt_name */
} pt_object_place;

/* An attachment of a container, such as an attribute of an OrderedDict: it may also hold tensors.
 */
typedef struct pt_attributes {
    value name; /* STR: the container's */
    value state;
} pt_attributes;

typedef struct pt_flat {
    catalogue *cat;
    torch_archive *archive;
    strtab flat;     /* flat keys, tensors' and objects' */
    vec paths;       /* value, of each flat key */
    vec names;       /* pt_name of each archive tensor */
    vec frames;      /* containers that are open */
    vec path;        /* value: keys of the current value */
    value_map seen;  /* containers that already have a path */
    value_map lists; /* whether a list is opened */
    vec list_frames;
    vec objects;    /* pt_object_place */
    vec attributes; /* pt_attributes */
    text_buf name;
    uint64_t steps, steps_limit;
    /* DTensors and ShardedTensors (calls of _rebuild_from_type_v2) count as tensors and become
     * objects whose content is the call; otherwise they are an error. Set after pt_flat_init. */
    bool keep_sharded;
    /* Called with each dict that has keys, and its name, which the root lacks; NULL: nothing is. */
    fsdpck_status (*on_dict)(void *ctx, const char *name, size_t nbytes, value v,
                             fsdpck_error *err);
    void *ctx;
    bool keep_empty; /* a dict without keys becomes an object; otherwise it is dropped, as in DCP */
} pt_flat;

/* Whether a value is such a call. */
bool pt_is_sharded(const value_pool *pool, value v);
/* PT-TENSOR-KIND if v is or contains one. */
fsdpck_status pt_refuse_sharded(const value_pool *pool, value v,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

void pt_flat_init(pt_flat *f, catalogue *cat, torch_archive *archive);
void pt_flat_release(pt_flat *f);
/* Errors: KEY-DUP, PKL-CYCLE, PKL-DEPTH, PKL-EXPAND, PT-TENSOR-KIND (DTensor, ShardedTensor). */
fsdpck_status pt_flatten(pt_flat *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* pt_inner.c: also names the tensors inside objects. Call after pt_flatten, whose names take
 * precedence. PT-TENSOR-KIND for a DTensor or ShardedTensor inside, unless keep_sharded. */
fsdpck_status pt_flatten_inner(pt_flat *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
