/* select.h: applies the user's request to the source catalogue, which gives the target catalogue.
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
 * source, each with one chunk that is the whole tensor, or in a reshard with the shards of the
 * ranks (state/target.h). The writer sets their locations.
 *
 * Tensors that share a storage still share it if the writer keeps nesting and all of them are
 * selected uncast; otherwise each becomes compact, but names of the same view in the same dtype
 * share a storage.
 *
 * If the writer keeps nesting, to->root becomes the nested state. If everything keeps its name,
 * this is the source's own, with its dict types, order and _metadata. Otherwise it is rebuilt from
 * the paths, with tensors first in each container. A container gets the class, key types and
 * _metadata of the source's container under the same keys. Renames change keys of
 * dicts and names of parameters, and leave the rest of the path (name_marks.h).
 *
 * An object is written with all of its tensors, in their own dtype. A tensor that also has its own
 * name stays one tensor if the writer keeps nesting and the name is written uncast and whole, or
 * cast and in the object's own part. Otherwise the object gets its own copy.
 *
 * A list keeps the positions of its items: a run that would omit an item and keep a later one is
 * refused (KEY-LIST).
 */
#ifndef FSDPCK_SELECT_SELECT_H
#define FSDPCK_SELECT_SELECT_H

#include "base/pool.h"
#include "layout/layout.h"
#include "model/optim_groups.h"
#include "model/unit.h"
#include "select/checkpoint_parts.h"
#include "select/glob_forms.h"
#include "select/select_rules.h"
#include "state/source.h"
#include "state/target.h"

typedef enum select_objects {
    SELECT_OBJECTS_KEEP,
    SELECT_OBJECTS_DROP,
    SELECT_OBJECTS_OPAQUE,
    SELECT_OBJECTS_ERROR
} select_objects;

/* How several names of one tensor are written. */
typedef enum select_tied {
    SELECT_TIED_KEEP,  /* all are written; linked if the source linked them and the writer can */
    SELECT_TIED_FIRST, /* only the first; target.dropped lists the others */
    SELECT_TIED_LINK   /* one tensor of the target under all of them */
} select_tied;

/* Two names of one parameter by the model description: tensors of the source. Pairs with the same
 * `first` are consecutive. */
typedef struct tied_pair {
    uint32_t first, alias;
} tied_pair;

/* Loads an object into the catalogue; may add the tensors inside it. */
typedef fsdpck_status (*select_load_fn)(void *ctx, uint32_t object, fsdpck_error *err);

/* How the target is sharded over ranks. */
typedef struct shard_request {
    layout *layout;  /* counts the uses of its rules */
    bool every_rank; /* from the writer: one chunk per rank; else each box once */
    bool any_size;   /* from the writer: dims > 0 need not divide evenly */
    bool no_chunks;  /* only specs: nothing will be written */
    /* --like: a catalogue with specs on the layout's mesh; tensors get its placements by name.
     * NULL: none. */
    const catalogue *like;
    const char *like_model_key; /* outer key of its model, or "" */
    /* For a flat writer: the units over the ranks of the layout's mesh, which determine the shards
     * of parameters; all else is whole on every rank. Borrowed, also by the target. NULL: use the
     * layout. */
    const unit_list *units;
    /* Likewise: 'optimizers' of the model description, and the names of its parameters in the order
     * of model.parameters(); NULL: unknown. Borrowed. */
    const optim_groups *optimizers;
    const strtab *param_order;
} shard_request;

/* By number: whether a tensor or object of the source is selected, instead of keys and exclude. Borrowed. */
typedef struct select_only {
    const uint8_t *tensors, *objects;
} select_only;

typedef struct select_request {
    const source *src; /* of the source catalogue: shows which tensors share bytes */
    select_options options;
    /* Patterns may also have this outer key: that of a checkpoint to compare with; NULL. */
    const char *key_beside;
    const select_only *only; /* NULL: by the options; else these have neither keys nor exclude */
    checkpoint_part part;
    /* For runs without output: the optimizer part alone loses its outer key, as the model part
     * does, and objects get the names that the rules make. */
    bool bare_optimizer, names_objects;
    bool may_be_empty; /* a part without tensors is no error */
    bool attributes; /* likewise: tensors inside attributes of dicts are selected by their names */
    bool clean;
    bool
        trainer_keys; /* 'model' becomes 'state_dict', and 'optimizer_0' the item of a list 'optimizer_states' */
    select_tied tied;
    const tied_pair *ties; /* in addition to those that share storage in the source */
    size_t tie_count;
    bool nested;            /* the writer takes target.root */
    bool flat_keys;         /* the writer takes objects by flat key and path; neither: names only */
    bool has_paths;         /* the writer keeps the path of each tensor and object */
    bool (*holds)(dtype d); /* of the writer */
    /* From the writer: objects that it cannot hold are omitted; NULL: it holds any object. */
    bool (*holds_object)(const value_pool *pool, value content);
    const char *format; /* of the writer, for messages */
    select_objects objects;
    select_load_fn load_object;
    void *load_ctx;
    const shard_request *sharding; /* NULL: every tensor whole, one rank */
    /* A model whose dtypes tensors of the same name get, where both are fp64, fp32, fp16 or bf16; NULL:
     * none. --dtype without a glob casts neither its integers nor those that are wider than
     * like_usual, the dtype of most of its elements. */
    const catalogue *like_model;
    dtype like_usual;
    /* Omit lm_head.weight if like_model lacks it and this embedding, a tensor of it, has the same shape. */
    bool omits_tied_head;
    uint32_t like_embedding;
    /* Likewise aliases that like_model lacks: source tensors with the elements of `first`, a different one for each
     * alias or the same. */
    const tied_pair *like_ties;
    size_t like_tie_count;
    /* Leave out tensors with these names if like_model lacks them: its model makes them. */
    const char *const *like_made;
    size_t like_made_count;
} select_request;

/* For a catalogue that does not record its sharding: infers the simplest specs that explain the
 * chunks of each tensor (layout/mesh_infer.h). Call it once, before specs are read. *otherwise:
 * tensors without a spec though others have one, as no mesh or a different mesh explains them. */
fsdpck_status select_infer_specs(catalogue *c, unsigned nthreads, const cancel_token *cancel,
                                 uint64_t *otherwise, fsdpck_error *err) FSDPCK_MUST_CHECK;

typedef struct name_list {
    char **list;
    size_t count, capacity;
} name_list;

typedef struct select_result {
    uint64_t tensors_in, tensors_out, objects_out;
    uint64_t cast, renamed, tied, tied_dropped;
    uint64_t left_out_tensors, left_out_objects, left_out_nbytes;
    /* All names, tensors before objects; escaped; freed by select_result_release. */
    name_list left_out_names;
    /* Bytes of elements before a cast: nbytes_in is the sum of the others and left_out_nbytes. */
    uint64_t nbytes_in, nbytes_out, tied_dropped_nbytes;
    uint64_t merged, merged_nbytes; /* optimizer state that is one tensor for a whole flat unit */
    name_list tied_names;           /* "b = a" */
    bool unordered;                 /* numbers of optimizer state follow a list of unknown order */
    uint64_t not_in_like;           /* tensors sharded by the rules despite a `like` */
    uint32_t moved_first;           /* target tensor: the first of layout.moved */
    /* Tensors omitted under their own names but written inside objects. */
    uint64_t carried, carried_nbytes;
    name_list carried_names; /* "model.w in 'ema'" */
    /* Omitted floating tensors of one dim or more that belong neither to the model nor to the
     * optimizer. Users may mistake them for the model's. */
    uint64_t other_params, other_params_nbytes;
    char *other_params_first; /* escaped name; freed by select_result_release */
    /* With omits_tied_head: source tensors, the omitted one and the embedding. Their elements have not
     * been compared. CAT_NONE: none was omitted. */
    uint32_t omitted_head, head_embedding;
    /* "b = a": tied in the source, but the target has them in different dtypes. */
    name_list parted_names;
    /* "b overlaps a": views of one storage in the source, which options separate in a target that can
     * share storages. */
    name_list overlap_names;
    name_list lost_attributes; /* dicts of the source with attributes that the target lacks */
    glob_forms forms;          /* the options as they were applied */
    uint64_t left_out_inside;  /* of left_out_tensors: inside objects, without their own name */
} select_result;

/* tensors_in == tensors_out + tied_dropped + merged + left_out_tensors, including those inside
 * objects. */
fsdpck_status select_build_target(catalogue *from, const checkpoint_parts *parts,
                                  const select_request *request, target *to, select_result *result,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
void select_result_release(select_result *result);

#endif
