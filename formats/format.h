/* format.h: the contract of a checkpoint format: one table for reading, one for writing.
 *
 * Reading separates metadata from data. `open` parses the small, untrusted description once, on one
 * thread, into a catalogue. The `source` table then serves large positional reads to any number of
 * threads.
 *
 *     const format_reader *fmt = ...;                     // first whose probe() returns true
 *     void *self;
 *     fmt->open(&request, &catalogue, &self, err);        // returns a sealed catalogue
 *     fmt->source(self, &catalogue, &src);
 *     fmt->load_object(self, &catalogue, i, err);         // only if objects are needed
 *     ...
 *     fmt->close(self);                                   // before the catalogue is released
 *
 * Writing: layout() sets the location of every byte before any data is copied; seal() supplies the
 * bytes that depend on checksums. A format has no access to plan, engine or group, and does not
 * depend on the number of threads or ranks.
 */
#ifndef FSDPCK_FORMAT_H
#define FSDPCK_FORMAT_H

#include <stdlib.h>

#include "base/fsdpck_formats.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/table_file.h"
#include "base/text.h"
#include "findings/finding_kinds.h"
#include "io/file.h"
#include "state/catalogue.h"
#include "state/rank_copies.h"
#include "state/source.h"
#include "state/target.h"

/* Input of a probe, gathered once for all formats. */
typedef struct probe_input {
    const char *path;
    bool is_folder;
    folder dir;        /* the folder itself, or the folder that holds the file */
    const char *name;  /* file: last component of path */
    uint64_t nbytes;   /* file */
    uint8_t head[512]; /* file: first bytes */
    size_t head_nbytes;
    char **entries; /* folder: names, sorted bytewise */
    size_t entry_count;
} probe_input;

/* Whether the folder has an entry of this name. */
static inline bool probe_has_entry(const probe_input *in, const char *name)
{
    return in->entry_count > 0 &&
           bsearch(&name, in->entries, in->entry_count, sizeof *in->entries, text_compare) != NULL;
}

/* Receives every finding, not only the first. May be called from any thread; `what` is borrowed for
 * the call. */
typedef enum format_severity { FORMAT_NOTE, FORMAT_WARNING, FORMAT_ERROR } format_severity;
typedef void (*format_found_fn)(void *ctx, format_severity severity, const fsdpck_error *what);

/* Knowledge of the names in a checkpoint before it is read, from a model description. */
typedef struct open_names {
    const void *ctx;
    /* The name of the same parameter, k from 0; NULL after the last. An index may want one that no
     * file holds: it is filled from a twin. */
    const char *(*twin)(const void *ctx, const char *name, size_t nbytes, unsigned k,
                        size_t *alias_nbytes);
    /* Objects of the catalogue state what its flat parameters are made of. */
    bool (*states_units)(const catalogue *cat);
} open_names;

typedef struct open_request {
    const char *path;
    const probe_input *probe;
    budget *metadata; /* limits all memory that grows with the input */
    logger log;
    const cancel_token *cancel;
    unsigned nthreads;
    uint64_t expect_ranks;    /* --source-ranks; 0: not given */
    bool no_follow;           /* --no-follow */
    bool opaque_calls;        /* --objects opaque: keep unknown calls in metadata */
    const char *rank_pattern; /* --source-rank-pattern, such as "m_{W}_{r}.pt"; NULL: known names */
    /* Required for rank files: the use of copies of several ranks. Borrows its context. */
    rank_copies_rule copies;
    bool repair_strided;        /* --repair-strided: derive boxes that do not fit their blobs */
    bool assume_tp_first;       /* --assume fsdp2-tp-2.3: apply the last Shard of a dim first */
    bool assume_lost_keys;      /* --assume lost-keys: DCP-KEY-LOST is a warning */
    bool hdf5_fill;             /* --hdf5-fill: unwritten elements take the file's fill value */
    const char *hdf5_separator; /* --hdf5-sep: between names of groups and datasets; NULL: "." */
    /* A model description will resolve flat parameters (lib/statedict/unflatten.h). Keep possible
     * leftovers of them, and expect shards that only some ranks have. */
    bool keep_flat_shards;
    const open_names *names; /* NULL: nothing is known of names. Borrowed */
    /* Errors that do not keep the reader from looking on go there, though opening fails in the end,
     * with one of them as its status. NULL: the first error ends it. */
    format_found_fn found;
    void *found_ctx;
    /* Not NULL: the reader continues without files that are missing, and with those that end early, if the rest describes
     * tensors. The first such error is kept there (FSDPCK_OK before). Their bytes must not be read. */
    fsdpck_error *damage;
} open_request;

/* Opens the folder that was probed. */
static inline fsdpck_status open_request_folder(const open_request *r, folder *d, fsdpck_error *err)
{
    return r->probe->is_folder ? folder_open_same(d, &r->probe->dir, r->path, err)
                               : folder_open(d, r->path, err);
}

/* True if the error was reported, so that the reader can continue. */
static inline bool open_request_report(const open_request *req, fsdpck_status st,
                                       const fsdpck_error *what)
{
    if (req->found == NULL || (st != FSDPCK_BADINPUT && st != FSDPCK_UNSUPPORTED))
        return false;
    req->found(req->found_ctx, FORMAT_ERROR, what);
    return true;
}

/* True if the reader can continue without the lost data: `damage` of the request has the error. Single thread. */
static inline bool open_request_tolerate(const open_request *req, fsdpck_status st,
                                         const fsdpck_error *what)
{
    if (req->damage == NULL || st != FSDPCK_BADINPUT)
        return false;
    if (req->damage->status == FSDPCK_OK)
        *req->damage = *what;
    return true;
}

static inline bool open_request_is_damaged(const open_request *req)
{
    return req->damage != NULL && req->damage->status != FSDPCK_OK;
}

/* Reports a property of a valid file that causes trouble in other readers. The findings table
 * supplies the next step. `name` is a file in the folder, or NULL. */
static inline void format_report(format_found_fn found, void *ctx, format_severity severity,
                                 fsdpck_finding_id id, const char *path, const char *name,
                                 const char *message)
{
    fsdpck_error what;
    const finding_kind *kind = finding_get(id);
    if (found == NULL)
        return;
    fsdpck_error_init(&what);
    (void)error_set(&what, FSDPCK_BADINPUT, id, "%s", message);
    error_path_in(&what, path, name);
    if (kind != NULL)
        error_next(&what, "%s", kind->next);
    found(ctx, severity, &what);
}

static inline void format_note(format_found_fn found, void *ctx, fsdpck_finding_id id,
                               const char *path, const char *name, const char *message)
{
    format_report(found, ctx, FORMAT_NOTE, id, path, name, message);
}

/* Checks the parts of the files outside chunks: pickles of objects and, with `sums`, every record
 * that has a checksum. */
typedef struct record_check_request {
    bool sums;
    unsigned nthreads;
    const cancel_token *cancel;
    progress *progress; /* NULL: no progress report */
    format_found_fn found;
    void *found_ctx;
    /* Whether the caller checks the record whose data begins there. Called from any thread. */
    bool (*is_checked_elsewhere)(void *ctx, uint32_t file, uint64_t offset_bytes);
    void *checked_ctx;
} record_check_request;

/* Totals of the records checked here, without those that the caller checks. */
typedef struct record_check_result {
    uint64_t records;
    uint64_t checked_nbytes;
    uint64_t unverified_nbytes; /* of objects that have no checksum */
} record_check_result;

typedef struct format_reader {
    const char *name;        /* "dcp" */
    const char *description; /* one line for `fsdpck version` and the manual */
    /* Decides by content, not by name. *near_miss may explain a near match with a constant text
     * such as "safetensors folder without an index"; otherwise NULL. Never fails. */
    bool (*probe)(const probe_input *in, const char **near_miss);
    fsdpck_status (*open)(const open_request *req, catalogue *cat, void **self, fsdpck_error *err);
    void (*source)(void *self, catalogue *cat, source *src);
    /* Fills cat_object.content (and may add tensors with catalogue_add_object_tensor). Single
     * thread. NULL if objects are always loaded. */
    fsdpck_status (*load_object)(void *self, catalogue *cat, uint32_t object, fsdpck_error *err);
    /* Reports findings to request->found; the status is an error only if the check could not run.
     * NULL if the files hold only chunks and their headers. */
    fsdpck_status (*check_records)(void *self, const record_check_request *request,
                                   record_check_result *result, fsdpck_error *err);
    void (*close)(void *self);
    /* Whether a file of the folder that is not in the catalogue belongs to the checkpoint: metadata
     * that open() read, or an empty file of the writer. `path` is relative to the folder. NULL: no
     * such files. */
    bool (*owns)(const probe_input *in, const cat_origin *origin, const char *path,
                 uint64_t nbytes);
    fsdpck_format_id id;
    const struct format_writer *writer; /* of the same format; NULL where there is none */
    /* The library that it needs: "HDF5 1.10.8", or "built without HDF5". NULL: none. */
    const char *(*library)(void);
    bool by_content;   /* each file states which tensors, and which parts of them, it holds */
    bool of_model;     /* a folder as transformers wants it, with the model's other files in it */
    bool of_two_saves; /* files of two saves may fit each other, even where one holds all tensors */
    /* A group opens once on each host: tables() writes what open() made, besides the catalogue, and
     * open_tables() opens with that in place of the description, on the other ranks (base/table_file.h).
     * tables() also replaces the tables of the rank that wrote them. NULL: each rank calls open(). */
    fsdpck_status (*tables)(void *self, table_file *f, fsdpck_error *err);
    fsdpck_status (*open_tables)(const open_request *req, catalogue *cat, table_file *f,
                                 void **self, fsdpck_error *err);
    bool objects_as_json; /* no tuples; a tuple of tensors is datasets of their names */
    bool drops_empty;     /* dicts without items, and lists of such, are not stored */
} format_reader;

/* Options of a single writer. */
typedef enum writer_option {
    WRITER_ALIGN = 1,
    WRITER_RANK_PATTERN = 2,
    WRITER_DEVICE_TYPE = 4,
    WRITER_TORCH = 8,
    WRITER_HDF5_GROUPS = 16,
    WRITER_LIKE = 32,
    WRITER_MAX_SHARD = 64
} writer_option;

typedef struct writer_options {
    uint64_t max_shard_nbytes; /* hf; 0: no limit */
    uint64_t align_nbytes;     /* dcp: alignment of a tensor's data; 0: as torch */
    const char *rank_pattern;  /* pt-ranks: names of its files; NULL: the trainer's, else verl's */
    const char *device_type;   /* pt-ranks: of the mesh; NULL: "cuda" */
    unsigned torch_minor;      /* pt-ranks: 6 for torch 2.6's pickles, 8, 15; 0: newest */
    bool lowest_rank;          /* the lowest rank stores replicated data */
    bool hdf5_groups;          /* hdf5: a dot in a name begins a group */
    /* hf: files, names of files and order of tensors as in this folder, which has all tensors of the
     * target; like_index: the name of its index, NULL without one. NULL: by max_shard_nbytes. */
    const catalogue *like;
    const char *like_index;
    const char *weights_stem; /* hf: what names of files begin with; NULL: "model", as in transformers */
    unsigned gzip_level; /* deflate level of a writer that compresses, 1 to 9; 0: no compression */
} writer_options;

typedef struct deferred_bytes {
    uint32_t file;
    uint64_t offset_bytes;
    uint64_t nbytes;
    const uint8_t *bytes; /* borrowed for the call */
} deferred_bytes;

typedef fsdpck_status (*deferred_fn)(void *ctx, const deferred_bytes *late, fsdpck_error *err);

/* How a format stores names and objects. */
typedef enum writer_state_form {
    STATE_NAMES_ONLY, /* only names, no objects */
    STATE_NESTED,     /* target.root (and rank_roots) */
    STATE_FLAT_KEYS /* flat names with the path of each tensor and object; objects loaded, in cat */
} writer_state_form;

typedef struct format_writer {
    const char *name;
    const char *description;
    const char *suffixes; /* " .safetensors " or " .pt .pth .bin "; NULL for folders */
    bool is_folder;
    writer_state_form takes;
    bool sharded;    /* can be sharded over ranks: for reshard */
    bool ranks_only; /* requires several ranks: not for consolidate */
    bool packs;      /* can compress its output: gzip_level (state/filter.h) */
    bool every_rank; /* each rank has its own copy of replicated tensors (see target.h) */
    bool
        flat; /* parameters become FSDP1's flat parameters: requires target.units; model part only */
    bool
        has_paths; /* of STATE_FLAT_KEYS: readers rebuild the nested state, a dict, from the paths */
    /* Whether it can hold this dtype. */
    bool (*holds)(dtype d);
    /* Whether it can hold this object; NULL: any. */
    bool (*holds_object)(const value_pool *pool, value content);
    /* Sets the location of every chunk of target->cat, its files with exact sizes, constant bytes
     * and want_crc; or, to compress, target->pack. */
    fsdpck_status (*layout)(target *t, const writer_options *opt, fsdpck_error *err);
    /* Writes the deferred bytes when all chunk CRCs are known; NULL if the format has none. */
    fsdpck_status (*seal)(const target *t, deferred_fn put, void *ctx, fsdpck_error *err);
    fsdpck_format_id id;
    unsigned options;  /* of writer_option: those that apply */
    bool of_model;     /* a folder as transformers wants it: other files of the model go into it */
    bool records_tied; /* the output names tensors that --tied first omits */
    bool of_adapter;   /* a folder as PEFT wants it: requires one adapter's tensors */
} format_writer;

/* format_table.c: the only lists of formats; readers in order of detection, NULL at the end. */
extern const format_reader *const format_readers[];
extern const format_writer *const format_writers[];
/* By the name that a user gave; NULL: there is none. */
const format_reader *format_reader_named(const char *name);
const format_writer *format_writer_named(const char *name);
/* Of files whose names follow a pattern with the rank. */
extern const format_reader *const format_reader_of_pattern;
/* The default for a folder: of whole tensors; of shards. */
extern const format_writer *const format_writer_of_whole;
extern const format_writer *const format_writer_of_shards;
/* Of one adapter. */
extern const format_writer *const format_writer_of_adapter;
/* For input without a reader: whether it is a known kind that is not supported, such as GGUF. If not,
 * it may be the rest of a checkpoint. */
bool format_is_foreign(const probe_input *in);
/* The next step with such input. */
const char *format_foreign_next(const probe_input *in);
/* Whether the name is a rank file's: of a *known trainer, or any with a word "rank" and a number. */
bool format_is_rank_file(const char *name, bool *known);
/* Whether the name is that of one of several HDF5 files of a Keras model: "m_00000.weights.h5". */
bool format_is_keras_shard(const char *name);
/* Whether it is an HDF5 file that is shorter than its superblock records; *why: how, else unchanged. */
bool format_is_hdf5_cut(const file *f, fsdpck_error *why);
/* Whether the name of a safetensors file contains a rank: "model-rank-1-part-0.safetensors". */
bool format_is_safetensors_rank(const char *name);
/* Whether the name contains a rank, but the number of files of that rank only:
 * "shard-00003-model-00001-of-00002.safetensors". */
bool format_is_shard_of_rank(const char *name);
/* Number of files that the name states: 5 of "model-00001-of-00005.safetensors", 4 of
 * "model_world_size_4_rank_0.pt"; 0 if it states none. */
uint64_t format_file_count(const char *name);
/* The index without which transformers or diffusers do not load a file of this name (shard_name.h). */
bool format_index_name(const char *name, char *index, size_t capacity);
/* The name of file `number` of the same set; for names that have such an index. False for others. */
bool format_numbered_name(const char *name, uint64_t number, char *other, size_t capacity);

#endif
