/* dcp_condense_internal.h: one record or pair as opcodes (dcp_condense_record.c). */
#ifndef FSDPCK_DCP_CONDENSE_INTERNAL_H
#define FSDPCK_DCP_CONDENSE_INTERNAL_H

#include "formats/dcp/dcp_condense.h"

#define DCP_RECORD_NDIM 8u

/* A str in the opcodes, or its memo entry. */
typedef struct dcp_raw_text {
    const uint8_t *text; /* NULL: a memo entry */
    uint32_t nbytes;
    uint32_t memo;
} dcp_raw_text;

typedef struct dcp_raw_size {
    uint64_t dims[DCP_RECORD_NDIM];
    unsigned ndim;
    bool has;
} dcp_raw_size;

typedef struct dcp_raw_record {
    dcp_raw_size offsets, sizes; /* an index has only offsets */
    dcp_raw_text fqn, path;
    uint64_t hint, offset_bytes, nbytes; /* hint: DCP_NONE if it has none */
    uint8_t places[DCP_MEMO_PLACES];
    uint8_t memoized;
    bool pairs;
} dcp_raw_record;

/* Roles by memo entry. */
typedef struct dcp_roles {
    uint32_t memo1[DCP_ROLE_SLOTS]; /* entry + 1; 0: none */
    uint8_t role[DCP_ROLE_SLOTS];
} dcp_roles;

static inline dcp_role dcp_role_of(const dcp_roles *roles, uint32_t memo)
{
    size_t i = memo % DCP_ROLE_SLOTS;
    while (roles->memo1[i] != memo + 1) {
        if (roles->memo1[i] == 0)
            return DCP_ROLE_NONE;
        i = (i + 1) % DCP_ROLE_SLOTS;
    }
    return (dcp_role)roles->role[i];
}

/* Of the text of a str that may name an attribute, or (is_class) a class. */
dcp_role dcp_role_by_name(const uint8_t *text, size_t nbytes, bool is_class);

/* Bytes of the record or pair at p, where DCP_LOOK bytes can be read; 0: it has none of the known
 * forms. */
size_t dcp_record_match(const dcp_roles *roles, const uint8_t *p, dcp_raw_record *r);

#endif
