/* ranks_internal.h: shared by the ranks_*.c readers: a folder of torch.save files, one per rank, as
 * one checkpoint.
 *
 *     ranks_file_names.c     selects the files by their names
 *     ranks_save_names.c     finds names of two saves
 *     ranks_reader.c         the reader's table; locating chunks
 *     torch_folder.h         locations of the tensors of all files; reading bytes
 *     ranks_parse.c          one file: its pickle -> the merge
 *     ranks_keys.c           keys and containers of one value in the files of several ranks
 *     ranks_value.c          torch's classes in a pickle
 *     ranks_dtensor.c        a DTensor's pickle -> ranks_declared (mesh, own coordinate, placements)
 *     ranks_sharded.c        a ShardedTensor's pickle -> ranks_declared (boxes)
 *     ranks_boxes.c          ranks_declared -> the box that one rank's file holds
 *     ranks_inner.c          names of objects and of the tensors inside them
 *     ranks_meta.c           Meta's model-parallel files: which dim the ranks share
 *     ranks_state.c          members that a file adds to the state of all files
 *     ranks_frame.c          containers of all ranks' states
 *     ranks_frame_keys.c     keys of such containers that contradict each other
 *     ranks_classes.c        classes of dicts that differ between ranks
 *     ranks_missing.c        checks that the files of all ranks exist
 *     ranks_suspect_files.c  warns about files that are not read, and copies of another rank's file
 *     ranks_kinds.c          warns about files of another kind than those of other ranks
 *     ranks_stages.c         finds numbered optimizer state of several pipeline stages
 *     ranks_partial.c        warns about values that only some ranks hold
 *     ranks_lacking.c        warns about tensors of a model that some ranks lack
 *     ranks_differing.c      warns about objects that differ between ranks
 *     ranks_equal_optim.c    finds optimizer state that may be equal shards of flat parameters
 *     ranks_beside_flat.c    finds shards of parameters beside the flat parameter that has them
 *     ranks_merge.c          one tensor of all ranks -> catalogue
 *     ranks_objects.c        the same for one object
 *     ranks_trainer_files.c  a trainer's other files
 *
 * A folder may hold several families of files (model, optim, extra_state): then each has an outer
 * key, the first element of every path and the prefix of every name. With one family there is none.
 *
 * Each file is parsed once, in the order of families, then ranks, and only the necessary parts are
 * kept: a torch_shard for each tensor that a chunk or object uses.
 */
#ifndef FSDPCK_FORMATS_PT_RANKS_INTERNAL_H
#define FSDPCK_FORMATS_PT_RANKS_INTERNAL_H

#include "formats/common/pt_flatten.h"
#include "formats/torch_folder/torch_folder.h"
#include "state/meta_params.h"

/* --- names --- */

/* ranks_trainer_files.c: one kind of rank files that a trainer writes. */
typedef struct ranks_trainer_family {
    const char *trainer; /* as in cat_origin.trainer */
    const char *key;
    const char *pattern; /* {W} number of ranks, {r} rank, {i} one of several models of a run */
    bool is_written;     /* by the writer too, with 0 for {i}; else only read */
} ranks_trainer_family;

enum { RANKS_TRAINER_FAMILIES = 8 };
extern const ranks_trainer_family ranks_trainer_families[RANKS_TRAINER_FAMILIES];

/* A trainer's files beside its rank files. */
typedef struct ranks_trainer {
    const char *name;
    const char *settings_name; /* JSON with "world_size"; NULL: none */
    const char *side_folder;   /* NULL: none */
} ranks_trainer;

/* The trainer of Meta's model-parallel files. */
#define RANKS_META "meta"

/* NULL: not known. */
const ranks_trainer *ranks_trainer_find(const char *name);

typedef struct ranks_family {
    char key[64]; /* "model", "optim" ... */
    char *prefix; /* name of a file: prefix, rank, suffix */
    char *suffix;
    unsigned digits; /* number of digits of ranks, 0: no leading zeros */
    uint64_t world;  /* number of ranks in the names, 0: none */
    const char *trainer;
    char stem[128]; /* without a trainer: of ranks_save_stem */
} ranks_family;

typedef struct ranks_file {
    uint32_t family;
    uint32_t rank;
    uint32_t index;   /* in the file_set and the catalogue */
    const char *name; /* borrowed from the probe */
} ranks_file;

typedef struct ranks_list {
    vec families; /* ranks_family, in the order of the table, then as found */
    vec files;    /* ranks_file, by family, then rank */
    budget *owner;
} ranks_list;

/* ranks_torch_names.c: a name as 'rank_0_replica_partner_4.pt'. */
typedef struct ranks_replica {
    uint64_t rank, world;        /* whose state it is; the number of ranks */
    size_t rank_at, rank_nbytes; /* its digits in the name */
} ranks_replica;
#define RANKS_REPLICA_PREFIX "rank_{i}_replica_partner_"
bool ranks_replica_name(const char *name, ranks_replica *replica);
bool ranks_bytes_hold(const uint8_t *bytes, size_t nbytes, const char *word);
/* The pattern of files that torch's _experimental wrote; NULL: it did not. */
const char *ranks_experimental_pattern(const probe_input *in);

/* Whether the names resemble rank files; *sample is one of them. */
bool ranks_names_any(char *const *entries, size_t count, const char **sample);
/* Whether a trainer writes rank files of this name. */
bool ranks_name_is_known(const char *name);
/* Whether it is a name that contains a rank, but not one of a known trainer. */
bool ranks_name_is_generic(const char *name);
/* pattern: --source-rank-pattern, or NULL. BADINPUT: RANK-MIXED (two saves in one folder),
 * RANK-DOUBLE (two files of one rank), RANK-NONE. USAGE: a pattern without {r}. */
fsdpck_status ranks_list_make(ranks_list *l, char *const *entries, size_t count,
                              const char *pattern, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Pattern of the file names with "{r}" for the rank and "{W}" for the number of ranks; `given` as
 * above. false, and "", if no single pattern matches all names. */
bool ranks_family_pattern(const ranks_family *f, const char *given, char *pattern, size_t capacity);
void ranks_list_release(ranks_list *l);
/* ranks_save_names.c: the words of a key that are equal in all saves: "model_" of "model_step_100". */
void ranks_save_stem(const char *key, char *stem, size_t capacity);
/* BADINPUT (RANK-MIXED) if two families have one stem. */
fsdpck_status ranks_check_saves(const ranks_list *l, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Name of the file of a rank, whether it exists or not. */
void ranks_file_name(const ranks_family *f, uint64_t rank, char *name, size_t capacity);

/* --- reading pickled objects --- */

/* A call of a torch class, in any module below `torch.` (torch moves classes). */
bool ranks_is_class(const value_pool *pool, value v, const char *name);
/* Attribute of an object that was pickled with a state: a dict, or (dict or None, dict of slots). */
bool ranks_attribute(const value_pool *pool, value v, const char *name, value *item);
bool ranks_state_find(const value_pool *pool, value state, const char *name, value *item);
/* The tuple inside a torch.Size; any other value as it is. */
value ranks_unwrap_size(const value_pool *pool, value v);
/* A tuple or a list. */
bool ranks_is_sequence(value v);
/* Counts of a tuple, list or torch.Size; false where it is none, too long, or holds other things. */
bool ranks_dims(const value_pool *pool, value v, uint64_t *dims, unsigned max, unsigned *count);

/* --- one tensor of one rank --- */

typedef enum ranks_kind { RANKS_PLAIN, RANKS_DTENSOR, RANKS_SHARDED, RANKS_OBJECT } ranks_kind;

/* A mesh as one file describes it. */
typedef struct ranks_mesh {
    mesh m;
    uint64_t coord[MESH_NDIM_MAX]; /* the writing rank's own */
    bool has_coord;                /* false: the rank is not a member */
    bool has_rank;
    uint64_t rank; /* the writing rank's number, if recorded in the mesh */
} ranks_mesh;

typedef struct ranks_declared {
    ranks_kind kind;
    dtype dtype;
    unsigned ndim;
    uint64_t shape[NDIM_MAX]; /* global */
    bool requires_grad;
    uint8_t python; /* CAT_PYTHON_... */
    /* DTENSOR */
    const ranks_mesh *mesh;
    placement placements[MESH_NDIM_MAX];
    bool of_old_module; /* torch.distributed._tensor: torch 2.1 to 2.4 */
    bool has_order;     /* `shard_order` was not left to right; now part of the placements */
    value local;        /* DTENSOR: TENSOR */
    /* SHARDED */
    value shards;         /* list of Shard */
    value all_shards;     /* list of ShardMetadata, of all ranks */
    uint64_t group_ranks; /* ranks that share the tensor; 0 unknown */
    uint64_t world;       /* of the process group of all; 0 unknown */
    bool has_spec_dim;
    unsigned spec_dim; /* of ChunkShardingSpec */
} ranks_declared;

/* Flags of a torch_shard. */
enum {
    RANKS_SHARD_PLAIN = TORCH_SHARD_OF_READER, /* a whole tensor of its rank: no chunk yet; its
                                                  `tensor` is in ranks_state.tensors */
    RANKS_SHARD_FLAT = 512,    /* part of an FSDP1 flat parameter: locating it is an error */
    RANKS_SHARD_SHAPES = 1024, /* shapes differ between ranks: locating it is an error */
    RANKS_SHARD_STAGES = 2048, /* of several parameters with one number: locating it is an error */
    RANKS_SHARD_EQUAL = 4096   /* with FLAT: equal on all ranks, so it may be a copy instead */
};

/* --- the merge --- */

typedef struct ranks_tensor {
    uint8_t kind; /* ranks_kind; RANKS_OBJECT: `index` counts ranks_state.objects */
    uint8_t dropped;
    uint8_t in_optimizer; /* path has `state`, then a number: an optimizer's own numbering */
    uint8_t in_rng;       /* state of a random generator, by its path */
    uint8_t is_partial;   /* plain, of a model, and not on all ranks */
    uint8_t is_own;       /* not on all ranks: not of a model, or some rank lacks it */
    uint8_t of_model;     /* an object of a model or its optimizer */
    uint8_t is_single;    /* a plain tensor of one element, and not of these */
    uint8_t is_filled;    /* an empty container or None, where other ranks have values below */
    uint32_t index;       /* in the catalogue's tensors */
    uint32_t first_file;
    uint32_t rank_count;
    uint64_t other_keys; /* in the first file, as in pt_name */
} ranks_tensor;

/* Values of one object that differ. */
typedef struct ranks_variant {
    value content;      /* in ranks_state.pool; TENSOR leaves are numbered from 0 in order */
    uint64_t pieces_at; /* ranks_state.leaves: their shards */
    uint32_t piece_count;
    bool is_placed;
    value placed; /* content in cat->pool */
} ranks_variant;

typedef struct ranks_object {
    uint32_t entry; /* ranks_state.tensors */
    uint32_t first_variant, last_variant;
    uint32_t rank_count;
    value path; /* in cat->pool */
    bool differs;
    bool
        is_of_stages; /* param_groups of an optimizer whose numbers mean other parameters by rank */
    bool is_joined;   /* of the values of several ranks */
    rank_copies_use use; /* from ranks_merge_objects on */
} ranks_object;

typedef struct ranks_occurrence {
    uint32_t object, variant;
    uint16_t rank;
} ranks_occurrence;

/* A rank's numbered optimizer state that contradicts the state of an earlier rank: an error, unless
 * the ranks are different pipeline stages. */
typedef struct ranks_conflict {
    uint32_t entry, rank;
} ranks_conflict;

/* Meta's model-parallel files. */
typedef struct ranks_meta {
    uint32_t family; /* index of the family in the list */
    uint64_t world;  /* 0: the folder has no such files */
    meta_params params;
} ranks_meta;

/* The merged containers of all files: ranks_frame.h. */
typedef struct ranks_frame {
    strtab keys;      /* a container's number and the text of a key; id: index in `slots` */
    vec slots;        /* ranks_slot */
    vec containers;   /* ranks_container; 0 holds the root, or one dict for each family */
    strtab numbers;   /* the same, one text for keys that are equal in Python */
    vec number_slots; /* uint32_t, by id in `numbers`: slot */
    strtab modules;   /* a container's number and a module in its _metadata */
    vec place;        /* value: keys above the current one, in the pool of the current file */
    strtab dicts;     /* names of dicts; id: index in `dict_classes` */
    vec dict_classes; /* uint32_t, in `classes`: the lowest rank's; see ranks_classes.c */
    strtab classes;
    uint64_t class_count; /* dicts of other ranks with another class */
    text_buf first_class; /* the first of them */
} ranks_frame;

/* State while files are parsed. */
typedef struct ranks_state {
    const open_request *req;
    torch_folder *reader;
    catalogue *cat;
    const ranks_list *list;
    strtab names;    /* flat names; id: index in `tensors` */
    vec tensors;     /* ranks_tensor */
    vec objects;     /* ranks_object */
    vec variants;    /* ranks_variant */
    vec occurrences; /* ranks_occurrence, by file */
    vec leaves;      /* uint32_t shards of variants */
    value_pool pool; /* contents of variants */
    ranks_frame frame;
    vec members;            /* uint8_t by rank: some file lists it as a member */
    uint64_t group_world;   /* size of the process group in ShardedTensors, 0: none */
    vec name_sums;          /* uint64_t by rank: hash of the names of its sharded parameters */
    vec plain_sums;         /* likewise, of the plain parameters that not all ranks have */
    vec contents;           /* ranks_content, by ranks_file.index: ranks_kinds.h */
    vec conflicts;          /* ranks_conflict */
    fsdpck_error conflict;  /* the first of them */
    vec own_ranks;          /* uint32_t by list file: the rank recorded in the file, or CAT_NONE */
    strtab inner_names;     /* of tensors of objects */
    uint64_t partial_count; /* plain tensors that only some ranks hold */
    text_buf partial;       /* the first of them, with their ranks */
    uint64_t dropped_count; /* tensors left out because they differ */
    uint64_t beside_count;  /* left out: possibly shards of the existing flat parameters */
    uint64_t flat_count;    /* shards of flat parameters, in tensors */
    uint64_t equal_count;   /* of these, equal on all ranks: possibly copies */
    ranks_meta meta;
    bool
        file_unread; /* the last file's zip or pickle was invalid: this state contains none of it */
    bool any_dtensor;
    /* The first file that records another rank than that of its name; or NULL. */
    const ranks_file *renamed;
    bool tp_order_suspect; /* the order of rows may be that of TP first */
    char form[48];         /* origin.torch_version, from the forms of DTensors */
    char archive_form[48]; /* from those of the zip */
} ranks_state;

/* One file, its archive open. */
typedef struct ranks_parse {
    ranks_state *s;
    const ranks_file *file;
    catalogue scratch;
    torch_archive archive;
    pt_flat flat;
    value_map mesh_of;   /* DeviceMesh value: index in meshes + 1 */
    vec meshes;          /* ranks_mesh * */
    uint64_t other_keys; /* of the current value, as in pt_name */
    bool is_fresh;       /* some value has a name that no earlier file has */
} ranks_parse;

/* ranks_state.c */
/* The piece of an archive tensor, made where there is none yet. */
fsdpck_status ranks_shard_of(ranks_parse *p, uint64_t tensor, uint32_t *piece,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status ranks_note_member(ranks_state *s, uint64_t rank, fsdpck_error *err) FSDPCK_MUST_CHECK;
const char *ranks_path(const ranks_state *s, uint32_t file);
/* Whether its lowest rank lacks the value (cat_tensor.joined). */
bool ranks_is_joined(const ranks_state *s, const ranks_tensor *t);
/* ranks_dtensor.c */
fsdpck_status ranks_dtensor_read(ranks_parse *p, value call, ranks_declared *c,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Ints of a small tensor (a mesh's ranks): at most MESH_RANKS_MAX; budget_free(*ranks, *count * 8). */
fsdpck_status ranks_read_ints(ranks_parse *p, const torch_tensor *t, uint64_t **ints,
                              uint64_t *count, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_sharded.c */
fsdpck_status ranks_sharded_read(ranks_parse *p, value call, ranks_declared *c,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* One ShardMetadata: offsets and sizes, ndim each; *rank CAT_NONE if absent. */
fsdpck_status ranks_shard_box(const value_pool *pool, value metadata, unsigned ndim,
                              uint64_t *offsets, uint64_t *sizes, uint64_t *rank,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_meta.c */
/* Fills s->meta. UNSUPPORTED (SRC-FOREIGN) for more ranks than key heads. */
fsdpck_status ranks_meta_begin(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A plain tensor of such a file. If ranks share it, fills *c as for a DTensor and *m; otherwise leaves
 * c->kind RANKS_PLAIN. UNSUPPORTED (SRC-FOREIGN) for a name that is not known. */
fsdpck_status ranks_meta_declare(const ranks_parse *p, uint64_t tensor, const char *name,
                                 ranks_declared *c, ranks_mesh *m,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares the number of ranks with the shapes of all files. BADINPUT (FILE-MISSING). */
fsdpck_status ranks_meta_check(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_parse.c */
fsdpck_status ranks_parse_file(ranks_state *s, const ranks_file *f,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_keys.c: KEY-NEST if an earlier rank has the value under other keys or in other containers,
 * unless the rule for copies takes those of the lowest rank. `path`: in the file. */
fsdpck_status ranks_check_keys(const ranks_parse *p, uint32_t entry, value path,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_frame.c: merges the file's containers into catalogue.like. KEY-NEST if they contradict those of
 * earlier ranks. */
void ranks_frame_init(ranks_frame *f, budget *owner);
void ranks_frame_release(ranks_frame *f);
fsdpck_status ranks_take_frame(ranks_parse *p, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_boxes.c: chunks of one rank's DTensor or ShardedTensor. */
fsdpck_status ranks_add_boxes(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_suspect_files.c */
/* Warns about files with a rank in their names that belong to no family. */
void ranks_warn_beside(const open_request *req, const ranks_list *l);
/* A fingerprint of a file's shards that differ between ranks, from their recorded CRCs. */
typedef struct ranks_copy {
    uint64_t hash, nbytes;
    uint32_t family, rank;
    const char *name;
} ranks_copy;
typedef struct ranks_copies {
    ranks_copy *files; /* by ranks_file.index */
    size_t count;
} ranks_copies;
void ranks_copies_see(ranks_copies *c, const ranks_state *s, uint32_t entry, const uint32_t *pieces,
                      size_t count);
/* Warns about files of one family with equal fingerprints, unless all are replicas. */
void ranks_copies_warn(ranks_copies *c, const ranks_state *s);

/* The rank that is recorded in the file being read. */
void ranks_note_own_rank(const ranks_parse *p, uint64_t rank);
/* RANK-DOUBLE if two files record one rank: one is a copy under another name. Sets s->renamed. */
fsdpck_status ranks_check_own_ranks(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_missing.c */
fsdpck_status ranks_check_complete(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether names, contents and options all lack the number of ranks. Call after parsing. */
bool ranks_is_count_unknown(const ranks_state *s);
/* ranks_partial.c: also fills is_partial, is_own, of_model, is_single and is_filled. Call before ranks_merge, which moves tensors. */
fsdpck_status ranks_warn_partial(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Warns about `count` values of some ranks, the first at `entry`, unless they stay with their ranks.
 * BADINPUT: RANK-DIFFER, if the rule refuses them. */
fsdpck_status ranks_report_partial(const ranks_state *s, uint32_t entry, uint64_t count,
                                   const char *what, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_lacking.c: marks such tensors as is_own. Call after ranks_mark_stages, before ranks_merge. */
fsdpck_status ranks_warn_lacking(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_stages.c */
/* Notes that a rank has a sharded tensor. */
fsdpck_status ranks_note_name(ranks_state *s, uint32_t rank, uint32_t entry,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Notes a conflict, which the caller does not return. */
fsdpck_status ranks_note_conflict(ranks_state *s, const ranks_file *f, uint32_t entry,
                                  const fsdpck_error *what, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Marks the shards of numbered optimizer state that ranks of different parameters share, so that
 * locating them is an error. The error of a conflict between ranks of equal parameters. Call after
 * ranks_warn_partial and before ranks_merge. */
fsdpck_status ranks_mark_stages(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_equal_optim.c: optimizer state that is equal on all ranks. Copies have the shapes of the
 * model's parameters; shards of flat parameters have one dim. */
enum { RANKS_NOT_FLAT, RANKS_FLAT, RANKS_FLAT_OR_COPIES };
typedef struct ranks_equal_optim {
    vec sizes;         /* of 1-dim state, by family */
    value_map whole;   /* sizes of the 1-dim tensors of models, plus 1 */
    uint8_t *is_other; /* by family: some state has another form than that of shards */
    size_t families;
} ranks_equal_optim;
fsdpck_status ranks_equal_begin(ranks_equal_optim *x, const ranks_state *s,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Notes a plain tensor, `count` ranks have it. Call for all. */
fsdpck_status ranks_equal_see(ranks_equal_optim *x, const ranks_state *s, uint32_t entry,
                              uint32_t piece, size_t count, bool differs,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets FLAT_OR_COPIES for families of such state, unless the model has parameters of these sizes. */
fsdpck_status ranks_equal_decide(ranks_equal_optim *x, const ranks_state *s, uint8_t *is_flat,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void ranks_equal_release(ranks_equal_optim *x, const ranks_state *s);
/* ranks_beside_flat.c: LOCAL state dicts of FSDP1 with use_orig_params also hold each rank's shards of the parameters,
 * under their names, beside the complete flat parameter. For a tensor of one dim. */
bool ranks_is_beside_flat(const ranks_state *s, uint32_t entry);
/* ranks_merge.c */
fsdpck_status ranks_merge(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_tidy.c: removes the tensors that the merge left out, and converts the specs on slices of a
 * mesh to the mesh. Call before other code depends on the numbers of tensors. */
fsdpck_status ranks_tidy(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_objects.c */
fsdpck_status ranks_add_object(ranks_parse *p, uint32_t entry, value path, value content,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The variant in the catalogue's pool: created once and shared by its ranks, unless it holds
 * tensors, which belong to one rank's object. */
fsdpck_status ranks_variant_value(ranks_state *s, uint32_t variant, const ranks_object *o,
                                  uint16_t rank, value *content,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status ranks_merge_objects(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Before it, after ranks_mark_stages: param_groups with the numbers of several pipeline stages differ
 * between ranks, even if they are equal. */
fsdpck_status ranks_part_stages(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After it: 'params' of a group that lists names, others in each stage, becomes one list, as names in the flattened state of
 * torch are. Stages may share some names, such as that of a tied embedding. Lists differ where one has no name of its own,
 * which another save explains too, or where two groups have one name. */
fsdpck_status ranks_join_params(ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A plain tensor that is local state of each rank becomes an object of each. Call before
 * ranks_merge_objects. */
fsdpck_status ranks_tensor_to_object(ranks_state *s, uint32_t entry, const uint32_t *pieces,
                                     size_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A chunk without dims: file, location and aux of a shard. */
cat_chunk ranks_chunk(const torch_folder *r, uint32_t piece);
/* Whether two shards hold the same elements: compares CRCs, otherwise bytes. Different shapes or
 * dtypes differ. */
fsdpck_status ranks_shards_equal(const torch_folder *r, uint32_t a, uint32_t b, bool *equal,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ranks_differing.c: call after ranks_merge. states_units: the checkpoint describes its flat
 * parameters. */
void ranks_report_differing(const ranks_state *s, bool states_units);
/* ranks_trainer_files.c: a trainer's other files. */
/* Fills origin.trainer, rank_pattern and rank_families, after all files are read. */
void ranks_describe_families(const ranks_state *s, cat_origin *o);
/* Fills origin.side_folder and settings from the folder of a known trainer. */
void ranks_describe_folder(const open_request *req, cat_origin *o);
/* Whether a folder is a checkpoint of the package torch_checkpointing. */
bool ranks_is_torch_checkpointing(const probe_input *in);
/* The settings of verl's folder (fsdp_config.json) for another number of ranks: all other keys are
 * kept. BADINPUT if `text` is not a JSON object. "": as verl writes them for FSDP2. */
fsdpck_status ranks_settings_put(const char *text, uint64_t world_size, text_buf *out,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The number of ranks that such settings record; 0: none, or they are no settings. */
uint64_t ranks_settings_count(const char *text);

#endif
