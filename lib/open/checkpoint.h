/* checkpoint.h: an open checkpoint, and what the files of open/ share:
 *
 *     context.c           what the caller watches and stops a call with; warnings
 *     open_ranks.c        path -> what the ranks of a group see there
 *     probe.c             what a path is, and which reader takes it
 *     open.c              path -> format reader -> sealed catalogue, parts
 *     search_folders.c    checkpoints below a folder
 *     inner_load.c        tensors inside objects
 *     known_names.c       what readers may ask of names
 *     model_adapter.c     flat parameters: the catalogue that a model description makes of them
 *     shard_adapter.c     the same where the checkpoint itself describes them
 *     rekey_adapter.c     optimizer state by number, by name or flattened, each from another
 *     other_weights.c     other weights in the same folder
 *     catalogue_public.c  the catalogue for callers
 *     finding_kinds.c     the table of findings
 */
#ifndef FSDPCK_OPEN_CHECKPOINT_H
#define FSDPCK_OPEN_CHECKPOINT_H

#include <pthread.h>

#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "formats/format.h"
#include "fsdpck.h"
#include "group/group.h"
#include "select/select.h"
#include "statedict/rekey.h"
#include "statedict/unflatten.h"

/* Warnings that a context keeps. */
#define CONTEXT_WARNINGS_MAX 1000u

struct fsdpck_context {
    logger log;
    fsdpck_log_fn user_fn;
    void *user_arg;
    cancel_token cancel;
    progress progress;
    group *group;  /* with whom the work is shared; NULL: alone */
    group *joined; /* by fsdpck_context_join; the same, or work_alone keeps it aside */
    group_watch watch;
    pthread_mutex_t warnings_lock; /* log comes from any thread */
    fsdpck_warning warnings[CONTEXT_WARNINGS_MAX];
    size_t warnings_count;
    bool warnings_more; /* than are kept */
};

struct fsdpck_checkpoint {
    fsdpck_context *ctx;
    char *path;       /* what was really opened */
    char *model_path; /* of the description; NULL where there is none */
    bool entered;
    probe_input probe;
    const format_reader *format;
    void *self; /* the reader's */
    budget metadata;
    catalogue cat; /* what everybody looks at */
    source src;
    /* With a model description: what the reader gave, which the above adapts. */
    catalogue read;
    source read_src;
    unit_list units;
    flat_adapter *adapter; /* NULL: there is no other than cat */
    checkpoint_parts parts;
    vec ties;               /* tied_pair: of the description */
    char *mesh;             /* as text; NULL where none is known */
    uint64_t cut_otherwise; /* tensors that a derived mesh does not explain */
    bool opaque_calls;
    bool inner_loaded;                  /* checkpoint_load_inner was here */
    struct remote_folder *remote_files; /* of files on other hosts; NULL: all see the same */
    format_found_fn found;              /* while it is opened */
    void *found_ctx;
};

/* The mesh that a catalogue's tensors are cut over: the one with most ranks, then most dims (rank
 * files also name meshes that are slices of it). NULL where it has none. */
const mesh *catalogue_largest_mesh(const catalogue *c);

/* fsdpck_open, with somebody who wants to hear of all errors (open_request.found; NULL: nobody). */
fsdpck_status checkpoint_open(fsdpck_context *ctx, const char *path,
                              const fsdpck_open_options *options, format_found_fn found,
                              void *found_ctx, fsdpck_checkpoint **out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Says what weights beside those that were read were not (other_weights.c). */
void checkpoint_warn_other_weights(const fsdpck_checkpoint *c, const catalogue *read);

/* Reads an object that was left until it is wanted. */
fsdpck_status checkpoint_load_object(fsdpck_checkpoint *c, uint32_t object,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* inner_load.c: all of them, once, as they may hold tensors; c->parts are found anew. One that cannot
 * be read is passed over with a warning. */
fsdpck_status checkpoint_load_inner(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_adapter.c: a model description, which is read before the checkpoint is, as readers ask it what
 * names mean. */
typedef struct described_model {
    const char *path; /* NULL: there is none */
    model m;
    agree agree;
} described_model;

fsdpck_status described_model_read(fsdpck_checkpoint *c, const char *path, described_model *d,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
void described_model_release(described_model *d);
flat_ranks flat_ranks_of(format_per_rank per_rank);
/* Notes how many tensors c->adapter left out. */
void checkpoint_log_dropped(const fsdpck_checkpoint *c);
/* From what was read (c->read), c->cat and c->src. */
fsdpck_status model_adapter_apply(fsdpck_checkpoint *c, described_model *d,
                                  format_per_rank per_rank, bool assume_order,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Once c->parts are known: MODEL-MISMATCH where c->cat is not of this model; fills c->ties. */
fsdpck_status model_adapter_check(fsdpck_checkpoint *c, described_model *d,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* rekey_adapter.c: --optim-keys, on c->cat; makes c->parts anew. m: NULL without a description.
 * assume_order: numbers follow the order of the model. */
fsdpck_status checkpoint_rekey(fsdpck_checkpoint *c, optim_keys to, const model *m,
                               bool assume_order, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* shard_adapter.c: where the checkpoint itself says what its flat parameters are made of, what was read
 * into c->cat becomes a view of it. */
fsdpck_status shard_adapter_apply(fsdpck_checkpoint *c, const open_request *request,
                                  bool assume_order, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Notes whose state by number is, where that can be told from what is loaded (cat_tensor.param). */
fsdpck_status checkpoint_infer_params(fsdpck_checkpoint *c, const model *m, bool assume_order,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Says in the origin's note that there are flat parameters. */
void checkpoint_note_flat(fsdpck_checkpoint *c);
/* BADINPUT (MODEL-NEEDED) where what is to be written has flat parameters. */
fsdpck_status checkpoint_check_flat(const fsdpck_checkpoint *c, const catalogue *to,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Gathers what probes look at. Released with probe_release. */
fsdpck_status probe_gather(const char *path, probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
void probe_release(probe_input *in);
/* The first reader that knows it, or NULL; *near_miss may be set then. */
const format_reader *probe_readers(const probe_input *in, const char **near_miss);

/* search_folders.c: checkpoints under a folder, itself not counted, in the order of a breadth-first walk. */
#define SEARCH_RESULTS_MAX 10u
typedef struct search_result {
    char *paths[SEARCH_RESULTS_MAX];
    size_t count; /* in paths */
    size_t more;  /* found besides */
    bool unread;  /* something could not be read: `why` is of the first */
    fsdpck_error why;
    /* Folders that a trainer keeps a part of its state in. */
    char *parts[SEARCH_RESULTS_MAX];
    size_t part_count;
} search_result;
/* folder/name, malloc's; NULL where memory ran out. */
char *folder_path_join(const char *folder_path, const char *name);
/* Bytes of a file's name before the suffix of a file of weights; all of it where there is none. */
size_t weights_stem_nbytes(const char *name);
/* Whether it is a folder of devices, processes or settings, which is not looked into. */
bool is_system_folder(const char *path);
fsdpck_status search_folders(const char *path, search_result *found,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* SAVE-INCOMPLETE where a part's folder holds no checkpoint, while there is one beside it. */
fsdpck_status search_check_parts(const search_result *found, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether they are files whose names differ in one number, from 0 on: these may be one checkpoint's,
 * a file a rank. Then their pattern, "r{r}.pt". */
bool search_rank_pattern(const search_result *found, text_buf *pattern);
void search_result_release(search_result *found);

/* open_ranks.c */
/* The same into c->probe, by all ranks of a group: what is on any of their hosts. */
fsdpck_status open_probe_ranks(fsdpck_checkpoint *c, const char *path, const fsdpck_open_options *o,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* By all ranks, where each sees another part of c->probe: the checkpoints that any of them finds further
 * down. */
fsdpck_status open_search_ranks(fsdpck_checkpoint *c, search_result *found,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether all ranks have found the same reader, or none; and whether --source-local fits it. */
fsdpck_status open_agree_format(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Threads to use: `asked`, or what affinity and cgroup allow. */
unsigned thread_count(unsigned asked);

/* Escaped copy for a report; NULL where memory ran out. */
char *escaped_copy(const char *text);

#endif
