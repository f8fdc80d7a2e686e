/* synthetic_dcp.h: a large virtual DCP folder: the catalogue that its reader would make, in memory,
 * and a source that computes the locations of its blobs; then the steps of a run before it writes.
 * Each parameter has two Adam moments, fp32, all sharded by rows over the ranks, as in FSDP2.
 *
 *     synthetic_dcp w;
 *     synthetic_dcp_init(&w, &model, ranks_in, limit_bytes);
 *     synthetic_dcp_explain(&w);
 *     synthetic_dcp_select(&w, ranks_out);
 *     synthetic_dcp_lay_out(&w);
 *     synthetic_dcp_plan(&w);
 *     synthetic_dcp_resolve(&w);
 *     ... w.plan, w.exec ...
 *     synthetic_dcp_release(&w);
 *
 * A failure ends the program with status 1.
 */
#ifndef FSDPCK_TESTS_SUPPORT_SYNTHETIC_DCP_H
#define FSDPCK_TESTS_SUPPORT_SYNTHETIC_DCP_H

#include "exec/exec.h"
#include "select/select.h"

/* Its parameters, by number. */
typedef struct synthetic_dcp_model {
    uint64_t parameters;
    void (*name)(uint64_t parameter, char *fqn, size_t capacity);
    unsigned (*shape)(uint64_t parameter, uint64_t *sizes); /* of 1 or 2 dims; returns their
                                                             * number */
} synthetic_dcp_model;

typedef struct synthetic_dcp {
    synthetic_dcp_model model;
    uint32_t ranks_in;
    uint64_t tensors;
    budget metadata;
    catalogue from;
    source src;
    checkpoint_parts parts;
    layout cut;
    target to;
    plan *plan;
    struct exec *exec;
} synthetic_dcp;

void synthetic_dcp_init(synthetic_dcp *w, const synthetic_dcp_model *model, uint32_t ranks_in,
                        uint64_t limit_bytes);
void synthetic_dcp_explain(synthetic_dcp *w);
void synthetic_dcp_select(synthetic_dcp *w, uint32_t ranks_out);
void synthetic_dcp_lay_out(synthetic_dcp *w);
void synthetic_dcp_plan(synthetic_dcp *w);
void synthetic_dcp_resolve(synthetic_dcp *w);
/* Also checks that all metadata memory was freed. */
void synthetic_dcp_release(synthetic_dcp *w);

void synthetic_dcp_must(bool ok, const char *what);
/* Peak memory of the process in bytes. */
uint64_t synthetic_dcp_peak_nbytes(void);

#endif
