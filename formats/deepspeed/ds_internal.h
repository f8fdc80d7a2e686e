/* ds_internal.h: shared by the ds_*.c readers: a folder of one step of a training with DeepSpeed's ZeRO
 * optimizers, as one checkpoint.
 *
 *     mp_rank_00_model_states.pt                        ZeRO 1, 2: the module, names and shapes
 *     zero_pp_rank_R_mp_rank_00_model_states.pt         ZeRO 3: the same, of rank R
 *     [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt  partitions of rank R
 *
 * A partition is a 1-dim tensor: a part of the flat tensor of a group of parameters. The optimizer
 * has one such tensor for the master weights, and one for each slot of its state, such as exp_avg.
 *
 *     ds_names.c          selects the files by their names
 *     ds_archive.c        opens one file; compares pieces
 *     ds_value.c          values of a pickle
 *     ds_optim.c          one optimizer file -> ds_partition, ds_scalar
 *     ds_model.c          one file of model states -> ds_param
 *     ds_check.c          compares the files of all ranks
 *     ds_copies.c         copies of one rank's file under another rank's name
 *     ds_flat.c           lays out flat tensors; the interval of a flat tensor -> chunks
 *     ds_chunks.c         tensors, objects and chunks -> catalogue
 *     ds_build.c          parameters, buffers and frozen parameters -> catalogue
 *     ds_groups.c         optimizer state and param_groups -> catalogue
 *     ds_other.c          other values of the model states -> catalogue
 *     ds_universal.c      the files of a universal checkpoint
 *     ds_reader.c         the readers' tables; locating chunks
 *     torch_folder.h      locations of the tensors of all files; reading bytes
 *
 * The catalogue has the outer keys `model` and `optim`, with names of the module's parameters, and
 * the other keys of the model states under their own names.
 *
 * ZeRO 1 and 2: the partitions of all ranks, one after the other, are the flat tensor of a group. Its
 * parameters follow each other, each with its `param_alignment_paddings`. ZeRO 3: a parameter of n
 * elements is divided into parts of p = ceil(n / ranks) elements; each rank has one part of each
 * parameter, in order, in the concatenation of its partitions.
 */
#ifndef FSDPCK_FORMATS_DEEPSPEED_DS_INTERNAL_H
#define FSDPCK_FORMATS_DEEPSPEED_DS_INTERNAL_H

#include "formats/common/pt_flatten.h"
#include "formats/torch_folder/torch_folder.h"

/* --- names --- */

typedef enum ds_kind {
    DS_NONE,    /* no file of DeepSpeed */
    DS_MODEL,   /* mp_rank_00_model_states.pt */
    DS_MODEL_3, /* zero_pp_rank_0_mp_rank_00_model_states.pt */
    DS_OPTIM,   /* zero_pp_rank_0_mp_rank_00_optim_states.pt */
    DS_FOREIGN, /* of experts or pipeline stages */
    DS_SLOT,    /* zero/NAME/fp32.pt of a universal checkpoint */
    DS_GROUPS   /* zero/optimizer_state.pt */
} ds_kind;

typedef struct ds_file {
    const char *name; /* borrowed from the probe */
    uint64_t rank;    /* data-parallel */
    uint64_t model_rank;
    uint32_t index; /* in the file_set and the catalogue */
    uint32_t path;  /* of a universal checkpoint: in ds_state.paths */
    ds_kind kind;
    bool has_bf16; /* of DS_OPTIM: its name begins with bf16_ */
} ds_file;

ds_kind ds_name_parse(const char *name, ds_file *f);
/* Files of the folder, by kind, then rank. UNSUPPORTED (SRC-FOREIGN) for experts, pipeline stages and
 * several model-parallel ranks. BADINPUT: RANK-MIXED, FILE-MISSING. */
fsdpck_status ds_list_files(const open_request *req, vec *files,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- while files are read --- */

/* One partition of a slot: rank, group (of parameters, for ZeRO 3 a sub-group) and piece. */
typedef struct ds_partition {
    uint32_t slot; /* in ds_state.slots; 0: master weights */
    uint32_t rank, group;
    uint32_t piece;
    uint64_t nelems;
    uint64_t begin; /* in its flat tensor (ds_flat.c) */
} ds_partition;

/* State of one dim that is no partition of its group. */
typedef struct ds_misfit {
    uint32_t slot, rank, group;
    uint32_t file;
    uint64_t nelems, expected;
    bool fits_other; /* it has the size of another group's partition */
} ds_misfit;

/* State of a group that is no partition: a step. */
typedef struct ds_scalar {
    uint32_t slot, group, rank;
    bool of_param;  /* `group` is the number of one parameter */
    uint32_t piece; /* CAT_NONE: a value */
    value content;  /* in cat->pool */
} ds_scalar;

typedef struct ds_param {
    uint32_t name;  /* in ds_state.names */
    uint32_t group; /* in param_shapes */
    uint32_t ndim;
    uint64_t shape_at; /* ds_state.shapes */
    uint64_t nelems;
    uint64_t offset;      /* in the flat tensor of its group; ZeRO 3: in each rank's partitions */
    uint64_t part_nelems; /* ZeRO 3: elements of each rank */
} ds_param;

/* A tensor of the module, a frozen parameter or a part of one. */
typedef struct ds_whole {
    uint32_t name; /* in ds_state.names */
    uint32_t rank;
    uint32_t piece;
} ds_whole;

/* A name in the module, CAT_NONE where it is not one of a kind. */
typedef struct ds_name {
    uint32_t param;  /* in ds_state.params */
    uint32_t frozen; /* in ds_state.frozen_shapes */
    uint32_t shared; /* the name whose data it has */
    uint32_t piece;  /* of rank 0's module; ZeRO 3: an empty placeholder of a parameter */
    bool is_buffer;
    bool is_built;
} ds_name;

/* What the files of one kind must agree on. */
typedef struct ds_facts {
    const char *file; /* first; NULL: none yet */
    int64_t step, world;
    char version[48];
} ds_facts;

typedef struct ds_state {
    const open_request *req;
    torch_folder *reader;
    catalogue *cat;
    vec files; /* ds_file */
    bool is_universal;
    strtab paths; /* of files in folders */
    strtab names;
    strtab slots;
    vec partitions;    /* ds_partition, by slot, then by flat tensor */
    vec scalars;       /* ds_scalar */
    vec params;        /* ds_param, in the order of the flat tensors */
    vec shapes;        /* uint64_t */
    vec paddings;      /* ds_padding: after each parameter, of ZeRO 1 and 2; empty: none recorded */
    vec by_name;       /* ds_name */
    vec frozen;        /* ds_whole: fragments, of all ranks for ZeRO 3 */
    vec frozen_shapes; /* ds_param */
    vec slices;        /* ds_slice: the slices that a rank's file records */
    vec misfits;       /* ds_misfit */
    vec group_params;  /* uint32_t: of all param_groups, sub-groups by number */
    vec group_first;   /* uint32_t: start of each param_group's */
    value groups;      /* param_groups of rank 0, in cat->pool; or None */
    uint32_t group_count;       /* of param_shapes */
    uint64_t world;             /* ranks; 0: not known yet */
    unsigned stage;             /* 0: not known yet; 1 for the optimizer that records none */
    bool slices_in_other_order; /* than that of the parameters */
    ds_facts model_facts, optim_facts;
    uint64_t left_out;
    text_buf left_out_names;
    bool knows_frozen; /* the model states record which parameters are frozen */
    uint64_t
        unmastered; /* weights of the module that are neither buffers, frozen nor master weights */
    text_buf unmastered_names;
    uint64_t stateless; /* slots of groups that should have them, as other groups do */
    text_buf stateless_names;
    uint64_t differing; /* values of other ranks that differ from rank 0's */
    text_buf differing_names;
    char form[48]; /* origin.torch_version */
} ds_state;

/* A key of a path: a text, or with text NULL the index of a list. */
typedef struct ds_key {
    const char *text;
    size_t nbytes;
    uint64_t index;
} ds_key;

typedef struct ds_padding {
    uint32_t group;
    uint64_t nelems;
} ds_padding;

typedef struct ds_slice {
    uint32_t name, rank, group;
    uint64_t begin, nelems; /* in the partition */
} ds_slice;

/* One file, its archive open. */
typedef struct ds_open {
    ds_state *s;
    const ds_file *file;
    catalogue scratch; /* its pool has the values */
    torch_archive archive;
} ds_open;

/* ds_archive.c */
fsdpck_status ds_open_file(ds_state *s, const ds_file *f, ds_open *o,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `keep`: as torch_folder_end_read. */
void ds_close_file(ds_open *o, bool keep);
/* The piece of an archive tensor; PT-TENSOR-KIND without data. */
fsdpck_status ds_piece_of(ds_open *o, uint64_t tensor, uint32_t *piece,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
uint64_t ds_piece_nelems(const torch_folder *r, const torch_shard *p);
/* Whether the recorded checksums show that two pieces differ, or that they are equal; DS_UNKNOWN
 * without checksums. */
typedef enum ds_compared { DS_EQUAL, DS_DIFFERENT, DS_UNKNOWN } ds_compared;
ds_compared ds_pieces_compare(const torch_folder *r, const torch_shard *a, const torch_shard *b);

/* ds_value.c */
/* Item of a dict (also an OrderedDict), or None. */
value ds_item(ds_open *o, value dict, const char *key);
bool ds_is_dict(value_pool *pool, value v, value *dict);
bool ds_is_sequence(value v);
/* An int, or the member of an enum. */
bool ds_number(const value_pool *pool, value v, uint64_t *number);
/* Attribute of an object that was pickled with its state. */
bool ds_attribute_number(const value_pool *pool, value v, const char *name, uint64_t *number);
bool ds_shape(const value_pool *pool, value v, uint64_t *dims, unsigned *ndim);
/* The id of a str. */
fsdpck_status ds_intern(ds_open *o, value name, uint32_t *id, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* BADINPUT (RANK-SHAPE): the file is not in the form that DeepSpeed writes. */
fsdpck_status ds_fail_form(const char *what, fsdpck_error *err);
void ds_leave_out(ds_state *s, const char *name, size_t nbytes);
/* A value that differs from that of rank 0, which is used. */
void ds_note_differing(ds_state *s, const char *name, size_t nbytes);

/* ds_optim.c, ds_model.c */
fsdpck_status ds_read_optim(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The first: of rank 0; the second: of any other. */
fsdpck_status ds_read_model(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status ds_read_model_of_rank(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares step, number of ranks and version with those of the first file. RANK-MIXED. */
fsdpck_status ds_agree(ds_state *s, ds_facts *facts, const ds_file *f, int64_t step, int64_t world,
                       const char *version, size_t version_nbytes,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;

/* zero/optimizer_state.pt of a universal checkpoint. */
fsdpck_status ds_read_groups(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* State of one group, or of one parameter, that is no partition. */
fsdpck_status ds_add_scalar(ds_open *o, uint32_t slot, uint64_t group, bool of_param, value v,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_check.c */
/* After the optimizer files are read. RANKS-STATED, FILE-MISSING, RANK-MIXED. */
fsdpck_status ds_check_files(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares the steps in the optimizers of all ranks (RANK-MIXED), and keeps the scalars of rank 0. */
fsdpck_status ds_check_scalars(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_copies.c */
/* RANK-COPIED for ranks with equal partitions: a warning if only their master weights are known to be
 * equal, BADINPUT if also their optimizer state is. */
fsdpck_status ds_check_copies(const ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* RANK-COPIED for ranks of ZeRO 3 with equal fragments of all frozen parameters: a warning. After
 * ds_sort_frozen. */
fsdpck_status ds_check_frozen_copies(const ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_flat.c: after all optimizer files and the first file of model states are read. RANK-SHAPE,
 * RANK-DISAGREE. */
fsdpck_status ds_flat_lay_out(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the chunks of a parameter in a slot. */
fsdpck_status ds_flat_add(const ds_state *s, uint32_t slot, const ds_param *p, uint32_t tensor,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
/* DTYPE_NONE: the slot has no partition with this parameter. */
dtype ds_flat_dtype(const ds_state *s, uint32_t slot, const ds_param *p);

/* ds_universal.c */
/* Adds the files in the folder zero. FILE-MISSING. */
fsdpck_status ds_universal_list(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The files, after the model states are read. */
fsdpck_status ds_read_slot(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After all of them. FILE-MISSING. */
fsdpck_status ds_universal_check(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* As ds_flat_add and ds_flat_dtype, which call them. */
fsdpck_status ds_universal_add(const ds_state *s, uint32_t slot, const ds_param *p, uint32_t tensor,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
dtype ds_universal_dtype(const ds_state *s, uint32_t slot, const ds_param *p);

/* ds_chunks.c */
/* Adds a tensor under a name of keys, with the path of these keys. */
fsdpck_status ds_add_tensor(ds_state *s, const ds_key *keys, size_t count, dtype d, unsigned ndim,
                            const uint64_t *shape, uint32_t *tensor,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for an object. */
fsdpck_status ds_add_object(ds_state *s, const ds_key *keys, size_t count, value content,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A key of the text with this id. */
ds_key ds_key_of(const strtab *t, uint32_t id);
/* Adds a tensor of a file as the only chunk. */
fsdpck_status ds_add_piece(const ds_state *s, uint32_t tensor, uint32_t piece,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Elements [begin, end) of a tensor, which begin at element `at` of a 1-dim piece. RANK-DISAGREE for
 * another dtype. */
fsdpck_status ds_add_interval(const ds_state *s, uint32_t tensor, uint64_t begin, uint64_t end,
                              uint32_t piece, uint64_t at, uint32_t rank,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_build.c */
/* Before the next two functions. */
void ds_sort_frozen(ds_state *s);
/* Adds the tensor of this name in the module; after the last one, the others. */
fsdpck_status ds_build_name(ds_state *s, uint32_t name, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status ds_build_rest(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_groups.c: optimizer state of each parameter, and param_groups. */
fsdpck_status ds_build_optimizer(ds_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ds_other.c: module and other values of rank 0's model states. */
fsdpck_status ds_build_state(ds_open *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
