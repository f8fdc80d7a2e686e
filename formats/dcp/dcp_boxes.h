/* dcp_boxes.h: boxes that torch recorded wrongly, and their correction.
 *
 *     RETURN_IF(catalogue_seal(cat, err));
 *     RETURN_IF(dcp_order_check(d, req, err));      // warns, or with --assume fsdp2-tp-2.3 corrects
 *     if (req->repair_strided)
 *         RETURN_IF(dcp_boxes_repair(d, req, err));
 *
 * FSDP2 with tensor parallelism shards a tensor by TP first, then each part by FSDP; the blobs hold
 * these shards. The recorded boxes differ:
 *
 *   torch 2.10 to 2.15, a dim that does not divide evenly: boxes by another rule, which are wrong
 *     for a few ranks ((n, FSDP, TP) = (9, 4, 2): the blob at row 8 is empty, and the one whose box
 *     is empty holds row 8). The shapes in the blobs show it. dcp_boxes_repair.
 *   torch 2.3 (and raw parameters of 2.4): two plain Shards of one dim, as if FSDP had sharded
 *     first. If the dim divides evenly, the checkpoint does not show it: FSDP1 with TP records
 *     the same, and is right. dcp_order_check.
 *   torch 2.8 and 2.9, placements without a valid order ([Shard(0), _StridedShard(0, 2)]): boxes
 *     twice as large as their blobs; the other half was never written. Stays DCP-PAYLOAD-SHAPE.
 *
 * A Partial, which 2.1 to 2.9 save as one rank's term of the sum, cannot be distinguished from a
 * plain tensor.
 */
#ifndef FSDPCK_DCP_BOXES_H
#define FSDPCK_DCP_BOXES_H

#include "formats/dcp/dcp_internal.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"

/* One tensor: the recorded boxes of its chunks, and the sizes in their blobs. */
typedef struct dcp_boxes {
    dcp_folder *d;
    uint32_t tensor;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t first_chunk, count;
    uint64_t *recorded; /* of each chunk ndim offsets, then ndim sizes */
    uint64_t *held;     /* of each chunk ndim sizes; NULL before dcp_boxes_read_headers */
    bool alien;         /* a blob does not hold a plain tensor of this dtype and number of dims */
} dcp_boxes;

fsdpck_status dcp_boxes_init(dcp_boxes *b, dcp_folder *d, uint32_t tensor,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_boxes_release(dcp_boxes *b);
/* Reads the headers of all its blobs, including those of empty boxes. */
fsdpck_status dcp_boxes_read_headers(dcp_boxes *b, const open_request *req,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether all blobs match their recorded boxes. *dim is the only dim that differs, NDIM_MAX if
 * several do. */
bool dcp_boxes_agree(const dcp_boxes *b, unsigned *dim);

/* Whether a mesh and two readings of placements explain the tensor: `recorded` yields exactly the
 * recorded boxes, `physical` the sizes in the blobs; and the boxes of the latter tile the tensor.
 * Then derived[2k], derived[2k + 1] are offset and size of chunk k on `dim`. */
typedef struct dcp_reading {
    mesh mesh;
    placement recorded[MESH_NDIM_MAX];
    placement physical[MESH_NDIM_MAX];
    unsigned dim;
} dcp_reading;

/* The recorded shards of one dim, for any number of readings with that dim. */
typedef struct dcp_cuts {
    vec items;       /* dcp_boxes.c's */
    bool clear;      /* not empty, and all begin at different offsets */
    uint64_t number; /* of the reading under way */
    uint64_t steps;  /* so far: shards and chunks compared */
} dcp_cuts;

fsdpck_status dcp_cuts_init(dcp_cuts *cuts, const dcp_boxes *b, unsigned dim,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_cuts_release(dcp_cuts *cuts);

fsdpck_status dcp_boxes_fit(const dcp_boxes *b, dcp_cuts *cuts, const dcp_reading *r,
                            uint64_t *derived, bool *fits, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Writes the derived boxes into the catalogue. */
fsdpck_status dcp_boxes_apply(const dcp_boxes *b, unsigned dim, const uint64_t *derived,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Derives the boxes of tensors that do not fit their blobs, if exactly one layout explains all
 * blobs of the tensor. Reports their number, and the names of tensors that stay unchanged. LIMIT,
 * DCP-LAYOUTS, if there are too many layouts to try. */
fsdpck_status dcp_boxes_repair(dcp_folder *d, const open_request *req,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A warning, and cat_origin.boxes_suspect, if the boxes of a tensor are wrong ones as recorded by
 * torch 2.10 to 2.15, and are correct for no mesh. Uses only the metadata. */
fsdpck_status dcp_boxes_check_suspect(dcp_folder *d, const open_request *req,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A warning if torch 2.3 or 2.4 may have recorded rows in the wrong order; with assume_tp_first
 * they are moved to their TP-first positions. USAGE if no such release wrote it; UNSUPPORTED,
 * TP-ORDER, if the number of TP ranks cannot be determined. Tensors that fit neither reading are
 * marked DCP_AUX_UNKNOWN_ORDER. */
fsdpck_status dcp_order_check(dcp_folder *d, const open_request *req,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets the error for a chunk with this mark. */
fsdpck_status dcp_order_refuse(fsdpck_error *err);

#endif
