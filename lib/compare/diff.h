/* diff.h: shared by diff.c (tensors), diff_objects.c and diff_beside.c (several files). */
#ifndef FSDPCK_COMPARE_DIFF_H
#define FSDPCK_COMPARE_DIFF_H

#include "compare/change_sums.h"
#include "compare/compare_elements.h"
#include "compare/tensor_pairs.h"
#include "run/run.h"

typedef struct diff_row {
    fsdpck_diff_kind kind;
    uint32_t a, b; /* target tensors, or objects of the source; CAT_NONE: none */
    compare_stats stats;
    change_sums sums; /* no elements: not known */
    uint64_t text_at; /* values of both sides' objects, see fsdpck_diff_row */
    uint64_t text_b_at;
    uint64_t name_at; /* name of an object, likewise */
    size_t name_nbytes;
} diff_row;

/* The differences of a pair of tensors. */
typedef struct diff_pair {
    bool streamed; /* compared by digest only */
    compare_stats stats;
    change_sums sums; /* with norms: of all elements */
} diff_pair;

/* A file of the trainer's state that lies beside the weights of both (diff_beside.c). */
typedef struct diff_file {
    fsdpck_checkpoint *a, *b;
    fsdpck_diff *diff;
    const char *name; /* of A's */
} diff_file;

struct fsdpck_diff {
    run a, b;
    compare_rule rule;
    bool brief, norms;
    tensor_pairs common;
    vec pairs;  /* diff_pair, parallel to common.list */
    vec rows;   /* diff_row: differences, by name */
    vec beside; /* diff_file */
    text_buf texts;
    pthread_mutex_t lock; /* guards stats of pairs */
    cancel_token enough;  /* brief: stop at the first difference */
    uint64_t objects_compared;
    bool may_have_more;       /* the limit of rows of containers was reached */
    bool has_checksums;       /* of the data of either side: it was compared without them */
    bool values_skipped;      /* brief: names, dtypes or shapes already differ */
    char optimizer_rule[512]; /* a rename of A's optimizer to the outer key of B's; "" if none */
    const char *optimizer_rules[1];
};

/* One comparison, without the files beside: fsdpck_diff_new. */
fsdpck_status diff_make(fsdpck_context *ctx, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                        const fsdpck_diff_options *options, fsdpck_diff **out,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
void diff_free_one(fsdpck_diff *d);
void diff_get_info_one(const fsdpck_diff *d, fsdpck_diff_info *all);
/* Row number `index` of d->rows. */
void diff_fill_row(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);
/* Compared tensor number `index`. Returns whether it is equal. */
bool diff_fill_compared(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);

/* The default part: everything if both use the same outer keys, or if more names match that way;
 * else the model parts under the model's names, or the optimizer parts if both have only these. */
fsdpck_status diff_choose_part(const run_options *o, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                               fsdpck_part *part, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* If one side has the outer key of the model in flat names alone, as HDF5 has: its model part becomes that below
 * the key, if more names match so. diff_unshare_key restores it. */
typedef struct diff_shared_key {
    fsdpck_checkpoint *side; /* NULL: none */
    checkpoint_parts parts;  /* its own */
} diff_shared_key;
fsdpck_status diff_share_key(const run_options *o, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                             fsdpck_part part, diff_shared_key *shared,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void diff_unshare_key(diff_shared_key *shared);
/* Whether a side may have no tensors in this part: it has objects there, or only the other side has
 * something and the part is no model and no optimizer. */
bool diff_may_be_empty(const run_options *o, const fsdpck_checkpoint *side,
                       const fsdpck_checkpoint *other, fsdpck_part part);
/* If everything is compared, and one optimizer of each side has another outer key, such as optim and
 * optimizer: writes the rename of A's to B's. Else "". */
void diff_rename_optimizer(const run_options *o, const fsdpck_checkpoint *a,
                           const fsdpck_checkpoint *b, fsdpck_part part, char *rule,
                           size_t capacity);
/* diff_parts.c: the part of target tensor i, or of object i of the source. */
fsdpck_part diff_part_of_tensor(const run *r, uint32_t i);
fsdpck_part diff_part_of_object(const run *r, uint32_t i);
/* Whether a tensor is a step of an optimizer or the like: its change is no measure for that of weights. */
bool diff_is_counter(const catalogue *c, uint32_t i);
/* Adds rows of objects; after the tensors. */
fsdpck_status diff_objects(fsdpck_diff *d, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds rows of dicts whose keys are of other types, where both sides know these; after the objects. */
fsdpck_status diff_keys(fsdpck_diff *d, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds rows of containers of two torch.save files: lists beside dicts, and attributes of dicts,
 * without their tensors. After the objects. */
fsdpck_status diff_containers(fsdpck_diff *d, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Applies the rules to the name of a leaf of an object, as run_select does to names of tensors. */
fsdpck_status diff_leaf_name(const run *r, uint32_t object, select_rules *rules, text_buf *name,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status diff_add_row(fsdpck_diff *d, const diff_row *row,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
