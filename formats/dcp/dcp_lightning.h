/* dcp_lightning.h: meta.pt, in which Lightning and Fabric save all but the model and the optimizers. */
#ifndef FSDPCK_DCP_LIGHTNING_H
#define FSDPCK_DCP_LIGHTNING_H

#include "formats/dcp/dcp_internal.h"

/* Adds the file to the catalogue (not yet sealed). *file_id is CAT_NONE if the folder has none. */
fsdpck_status dcp_lightning_add_file(dcp_folder *d, const open_request *req, uint32_t *file_id,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After the seal: adds the keys of its dict as objects, which are loaded. Keys that the folder has are left out, with
 * a warning unless it has an object of the same name. Warns of a damaged file: the weights can still be read. */
fsdpck_status dcp_lightning_read(dcp_folder *d, const open_request *req, uint32_t file_id,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
