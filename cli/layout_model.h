/* layout_model.h: `fsdpck layout` of a model description, on stdout. */
#ifndef FSDPCK_CLI_LAYOUT_MODEL_H
#define FSDPCK_CLI_LAYOUT_MODEL_H

#include "layout_print.h"

typedef struct model_layout {
    const char *path;
    bool ranks_given; /* by an option; else the description's */
    fsdpck_model *model;
    fsdpck_units *units;
    fsdpck_model_info about;
    fsdpck_units_info all;
} model_layout;

/* The command for r->src, which fsdpck_model_probe knows. Returns the exit code; so below. */
int layout_model_run(const cli *c, const transform_request *r);

int layout_model_text(const cli *c, const model_layout *l, const layout_scope *scope);
int layout_model_json(const cli *c, const model_layout *l, const layout_scope *scope);

/* The rank of a unit that holds most, over the mean; 1 where nothing is held. */
double layout_model_imbalance(uint64_t most, uint64_t sum, uint64_t ranks);

/* Boxes of a piece, *count of them; free() it. NULL where there is none, or no memory. */
fsdpck_box *layout_model_boxes(const model_layout *l, uint64_t unit, uint64_t k, unsigned ndim,
                               const fsdpck_param_shard *piece, size_t *count);

#endif
