/* dcp_part_folders.h: a trainer's folder with one DCP folder for each part of its state:
 *
 *     accelerate 0.21 to 1.15   pytorch_model_fsdp_0/, optimizer_0/   (SHARDED_STATE_DICT)
 *     VeOmni of 2026            model/ckpt/, model/optimizer/
 *     slime and miles           model/, optimizer/, lr_scheduler/
 *
 * It is read as one catalogue with file paths of two or three components (cat_origin.part_folders). For
 * output with such an origin, every name with the outer key of a part is written into that part's folder;
 * VeOmni also loads one DCP folder. With several models accelerate's numbers continue: such a folder holds several checkpoints.
 */
#ifndef FSDPCK_DCP_PART_FOLDERS_H
#define FSDPCK_DCP_PART_FOLDERS_H

#include "formats/format.h"

#define DCP_PARTS_MAX 3u

typedef struct dcp_part_folder {
    const char *key;    /* of all names; NULL: the parts before are all */
    const char *folder; /* path in the checkpoint's folder */
} dcp_part_folder;

typedef struct dcp_part_folders {
    const char *trainer;
    const char
        *numbered[DCP_PARTS_MAX]; /* folders without the number of the model; NULL: no number */
    dcp_part_folder parts[DCP_PARTS_MAX];
    unsigned required; /* the first parts, which must be there */
    bool is_written;   /* else only read: an output is one DCP folder with all parts */
} dcp_part_folders;

/* By cat_origin.part_folders, from 1. */
const dcp_part_folders *dcp_part_folders_get(unsigned number);
unsigned dcp_part_count(const dcp_part_folders *f);
/* By the outer key of a name; DCP_PARTS_MAX: of none. */
uint32_t dcp_part_of(const dcp_part_folders *f, const char *name);
/* The number of the form that a folder has; 0: none, or with DCP folders of other models. */
unsigned dcp_part_folders_probe(const probe_input *in);
/* The form that a target gets: that of its origin, if every name belongs to a part. NULL: none. */
const dcp_part_folders *dcp_part_folders_of(const target *t);

#endif
