/* dcp_boxes.h: boxes that torch recorded wrongly, and what is done about them.
 *
 *     RETURN_IF(catalogue_seal(cat, err));
 *     RETURN_IF(dcp_order_check(d, req, err));      // warns, or with --assume fsdp2-tp-2.3 corrects
 *     if (req->repair_strided)
 *         RETURN_IF(dcp_boxes_repair(d, req, err));
 *
 * FSDP2 with tensor parallelism cuts a tensor by TP first and each piece by FSDP; the blobs hold
 * that. What is recorded beside them is:
 *
 *   torch 2.10 to 2.15, a dim that does not divide evenly: boxes by another rule, which are wrong
 *     for a few ranks ((n, FSDP, TP) = (9, 4, 2): the blob at row 8 is empty, and the one whose box
 *     is empty holds row 8). The blobs' own shapes tell. dcp_boxes_repair.
 *   torch 2.3 (and raw parameters of 2.4): two plain Shards of one dim, as though FSDP had cut
 *     first. Where the dim divides evenly nothing in the checkpoint tells: FSDP1 with TP records
 *     the same, and is right. dcp_order_check.
 *   torch 2.8 and 2.9, placements that are no order of cuts ([Shard(0), _StridedShard(0, 2)]): boxes
 *     twice as large as their blobs; the other half was never written. Stays DCP-PAYLOAD-SHAPE.
 *
 * A Partial, which 2.1 to 2.9 save as one rank's term of the sum, looks like any plain tensor.
 */
#ifndef FSDPCK_DCP_BOXES_H
#define FSDPCK_DCP_BOXES_H

#include "formats/dcp/dcp_internal.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"

/* One tensor: its chunks' boxes as recorded, and the sizes of what their blobs hold. */
typedef struct dcp_boxes {
    dcp_folder *d;
    uint32_t tensor;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t first_chunk, count;
    uint64_t *recorded; /* of each chunk ndim offsets, then ndim sizes */
    uint64_t *held;     /* of each chunk ndim sizes; NULL before dcp_boxes_read_headers */
    bool alien;         /* some blob holds no plain tensor of this tensor's dtype and dims */
} dcp_boxes;

fsdpck_status dcp_boxes_init(dcp_boxes *b, dcp_folder *d, uint32_t tensor,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_boxes_release(dcp_boxes *b);
/* Reads the heads of all its blobs, those of empty boxes too. */
fsdpck_status dcp_boxes_read_headers(dcp_boxes *b, const open_request *req,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether all blobs hold what is recorded for them. *dim is the only dim where they do not, NDIM_MAX
 * where there are several. */
bool dcp_boxes_agree(const dcp_boxes *b, unsigned *dim);

/* Whether a mesh and two readings of placements explain the tensor: `recorded` gives the boxes that
 * are written down, all of them and no others, `physical` sizes that the blobs have; and the boxes
 * of the latter tile the tensor. Then derived[2k], derived[2k + 1] are offset and size of chunk k on
 * `dim`. */
typedef struct dcp_reading {
    mesh mesh;
    placement recorded[MESH_NDIM_MAX];
    placement physical[MESH_NDIM_MAX];
    unsigned dim;
} dcp_reading;

/* The recorded pieces of one dim, for any number of readings with that dim. */
typedef struct dcp_cuts {
    vec items;       /* dcp_boxes.c's */
    bool clear;      /* there are some, and none begins where another does */
    uint64_t number; /* of the reading under way */
    uint64_t steps;  /* so far: pieces of ranks and chunks that were looked at */
} dcp_cuts;

fsdpck_status dcp_cuts_init(dcp_cuts *cuts, const dcp_boxes *b, unsigned dim,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_cuts_release(dcp_cuts *cuts);

fsdpck_status dcp_boxes_fit(const dcp_boxes *b, dcp_cuts *cuts, const dcp_reading *r,
                            uint64_t *derived, bool *fits, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Writes the derived boxes into the catalogue. */
fsdpck_status dcp_boxes_apply(const dcp_boxes *b, unsigned dim, const uint64_t *derived,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Derives the boxes of tensors whose blobs do not fit them, where exactly one layout explains all
 * blobs of the tensor; says how many, and names those that stay as they are. LIMIT, DCP-LAYOUTS,
 * where the layouts that the number of ranks allows are too many for the tensors that there are. */
fsdpck_status dcp_boxes_repair(dcp_folder *d, const open_request *req,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A warning, and cat_origin.boxes_suspect, where the boxes of a tensor are those that torch 2.10 to
 * 2.15 record for ranks which hold others, and no mesh has them rightly. From the metadata alone. */
fsdpck_status dcp_boxes_check_suspect(dcp_folder *d, const open_request *req,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A warning where torch 2.3 or 2.4 may have recorded rows in the wrong order; with assume_tp_first
 * they are put where TP first puts them. USAGE where no such release wrote it; UNSUPPORTED,
 * TP-ORDER, where the number of TP ranks cannot be told. Tensors that fit neither reading are
 * marked DCP_AUX_UNKNOWN_ORDER. */
fsdpck_status dcp_order_check(dcp_folder *d, const open_request *req,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The refusal of a chunk so marked. */
fsdpck_status dcp_order_refuse(fsdpck_error *err);

#endif
