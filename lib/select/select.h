/* select.h: what the user asked for, applied to what there is: source catalogue -> target catalogue.
 *
 *     checkpoint_parts parts;
 *     RETURN_IF(checkpoint_parts_find(&cat, &parts, err));
 *     target to;
 *     target_init(&to, &budget);
 *     select_result result;
 *     RETURN_IF(select_build_target(&cat, &parts, &request, &to, &result, err));
 *     select_result_release(&result);
 *     target_release(&to);
 *     checkpoint_parts_release(&parts);
 *
 * Applied in this order: part, clean, keys and exclude (on cleaned names), strip-prefix, renames in
 * order, collision check, ties, dtype (on final names). The target's tensors keep the order of the
 * source, each with one chunk that is the whole tensor, or, resharding, with what each rank holds
 * (state/target.h); places are the writer's to give.
 *
 * Tensors that view one storage keep doing so where the writer keeps nesting and every view of it
 * is taken, uncast; else each becomes compact.
 *
 * Where the writer keeps nesting, to->root becomes the nested state: the source's own (its dict
 * types, its order, its _metadata) where everything is taken under its own name, else rebuilt from the
 * paths, tensors first in each container; a container has the class, the key types and the _metadata of
 * the source's under the same keys. A renamed tensor keeps the outer keys that its new name still
 * begins with.
 *
 * An object that is written has all of its tensors, in their own dtype. One that also has a name of
 * its own is the same tensor in both places where the writer keeps nesting and the name is written
 * uncast and whole, or cast and of the object's own part; else the object gets a copy of its own.
 *
 * A list keeps the positions of its items: a run that would leave out one before the last, and keep
 * a later one, is refused (KEY-LIST).
 */
#ifndef FSDPCK_SELECT_SELECT_H
#define FSDPCK_SELECT_SELECT_H

#include "layout/layout.h"
#include "model/unit.h"
#include "select/checkpoint_parts.h"
#include "select/select_rules.h"
#include "state/source.h"
#include "state/target.h"

typedef enum select_objects {
    SELECT_OBJECTS_KEEP,
    SELECT_OBJECTS_DROP,
    SELECT_OBJECTS_OPAQUE,
    SELECT_OBJECTS_ERROR
} select_objects;

/* What becomes of several names of one tensor. */
typedef enum select_tied {
    SELECT_TIED_KEEP,  /* all are written; linked where the source linked them and the writer can */
    SELECT_TIED_FIRST, /* the first alone; target.dropped has the others */
    SELECT_TIED_LINK   /* one tensor of the target under all of them */
} select_tied;

/* Two names of one parameter as a model description says: tensors of the source. Those with the
 * same `first` follow each other. */
typedef struct tied_pair {
    uint32_t first, alias;
} tied_pair;

/* Brings an object's content into the catalogue; may add tensors that lie inside it. */
typedef fsdpck_status (*select_load_fn)(void *ctx, uint32_t object, fsdpck_error *err);

/* How the target is cut over ranks. */
typedef struct shard_request {
    layout *layout;  /* rules are counted in it */
    bool every_rank; /* of the writer: one chunk a rank, else each box once */
    bool any_size;   /* of the writer: dims > 0 need not divide evenly */
    bool no_chunks;  /* specs alone: nothing will be written */
    /* --like: a catalogue with specs on the layout's mesh, whose tensors' placements are taken by
     * name; NULL: none. */
    const catalogue *like;
    const char *like_model_key; /* outer key of its model, "" where it has none */
    /* Of a flat writer: the units over the ranks of the layout's mesh, by which parameters are cut;
     * all else is whole on every rank. Borrowed, also by the target. NULL: by the layout. */
    const unit_list *units;
} shard_request;

typedef struct select_request {
    const source *src; /* of the source catalogue: tells which tensors view the same bytes */
    select_options options;
    checkpoint_part part;
    /* Nothing is written: the optimizer part alone goes without its outer key, as the model's does,
     * and objects go by the names that the rules make. */
    bool bare_optimizer, names_objects;
    bool clean;
    select_tied tied;
    const tied_pair *ties; /* besides those that the source's storages tell */
    size_t tie_count;
    bool nested;    /* the writer takes target.root */
    bool flat_keys; /* the writer takes objects by flat key and path; neither: names alone */
    bool has_paths; /* the writer keeps the path of each tensor and object */
    bool (*holds)(dtype d); /* of the writer */
    /* Of the writer: what it does not hold is left out; NULL: it holds any object. */
    bool (*holds_object)(const value_pool *pool, value content);
    const char *format; /* of the writer, for messages */
    select_objects objects;
    select_load_fn load_object;
    void *load_ctx;
    const shard_request *cut; /* NULL: every tensor whole, one rank */
} select_request;

/* Gives the tensors of a catalogue that does not say how it is cut the simplest specs that explain
 * their chunks, where there are some (layout/mesh_infer.h). Once, before specs are asked for.
 * *otherwise: tensors without one though others have it, being cut by no mesh or another. */
fsdpck_status select_infer_specs(catalogue *c, uint64_t *otherwise,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#define SELECT_NAMES_MAX 20u

typedef struct name_list {
    char **list;
    size_t count, capacity;
} name_list;

typedef struct select_result {
    uint64_t tensors_in, tensors_out, objects_out;
    uint64_t cast, renamed, tied, tied_dropped;
    uint64_t left_out_tensors, left_out_objects, left_out_nbytes;
    /* All of them, tensors before objects; escaped; free()d by select_result_release. */
    name_list left_out_names;
    /* Bytes of elements before a cast: nbytes_in is the sum of the others and left_out_nbytes. */
    uint64_t nbytes_in, nbytes_out, tied_dropped_nbytes;
    uint64_t merged, merged_nbytes; /* optimizer state that is one tensor for all of a flat unit */
    char *tied_names[SELECT_NAMES_MAX]; /* "b = a" */
    size_t tied_names_count;
    uint64_t not_in_like; /* tensors cut by the rules though there is a `like` */
    uint32_t moved_first; /* target tensor: the first of layout.moved */
    /* Tensors that are left out under their own names, and are written inside objects. */
    uint64_t carried, carried_nbytes;
    name_list carried_names; /* "model.w in 'ema'" */
    /* Of the tensors left out: floating ones of one dim or more that are neither the model's nor the
     * optimizer's. Somebody may have taken them for the model's. */
    uint64_t other_params, other_params_nbytes;
    char *other_params_first; /* escaped name; free()d by select_result_release */
    uint64_t left_out_inside; /* of left_out_tensors: inside objects, without a name of their own */
} select_result;

/* tensors_in == tensors_out + tied_dropped + merged + left_out_tensors, those inside objects among them. */
fsdpck_status select_build_target(catalogue *from, const checkpoint_parts *parts,
                                  const select_request *request, target *to, select_result *result,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
void select_result_release(select_result *result);

#endif
