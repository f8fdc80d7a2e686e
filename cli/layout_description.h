/* layout_description.h: `fsdpck layout` of a model description, on stdout. */
#ifndef FSDPCK_CLI_LAYOUT_DESCRIPTION_H
#define FSDPCK_CLI_LAYOUT_DESCRIPTION_H

#include "layout_print.h"

typedef struct model_layout {
    const terminal *out;
    const char *path;
    bool ranks_given; /* by an option, not by the description */
    fsdpck_model *model;
    fsdpck_units *units;
    fsdpck_model_info about;
    fsdpck_units_info all;
} model_layout;

/* Runs the command for r->src, which fsdpck_model_probe has accepted. This and the next two functions
 * return the exit code. */
int layout_description_run(cli *c, const command_request *r);

int layout_description_text(const cli *c, const model_layout *l, const layout_scope *scope);
int layout_description_json(const cli *c, const model_layout *l, const layout_scope *scope);

/* The *count boxes of a shard; free() them. NULL if there are none, or memory runs out. */
fsdpck_box *layout_description_boxes(const model_layout *l, uint64_t unit, uint64_t k,
                                     unsigned ndim, const fsdpck_param_shard *piece, size_t *count);

#endif
