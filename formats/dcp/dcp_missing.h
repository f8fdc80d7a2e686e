/* dcp_missing.h: files that the metadata names, but that are not in the folder. */
#ifndef FSDPCK_DCP_MISSING_H
#define FSDPCK_DCP_MISSING_H

#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"

typedef struct dcp_file_state {
    uint64_t nbytes;
    uint8_t needed;
    uint8_t kind; /* path_kind */
} dcp_file_state;

static inline const dcp_repeat *dcp_repeat_at(const dcp_folder *d, size_t i)
{
    return VEC_AT(&d->repeats, const dcp_repeat, i);
}

static inline bool dcp_is_missing(const dcp_file_state *states, uint32_t file_id)
{
    return states[file_id].needed && states[file_id].kind == PATH_ABSENT;
}

/* FILE-MISSING, or FSDPCK_OK if none is. */
fsdpck_status dcp_report_missing(dcp_folder *d, const open_request *req, const catalogue *cat,
                                 const dcp_file_state *states, fsdpck_error *err);

#endif
