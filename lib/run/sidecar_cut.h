/* sidecar_cut.h: files beside the weights that were cut before they were copied. */
#ifndef FSDPCK_RUN_SIDECAR_CUT_H
#define FSDPCK_RUN_SIDECAR_CUT_H

#include "base/log.h"
#include "io/file.h"

/* SIDE-UNREAD, as verify has it, if a JSON file of a model or a file of its tokenizer is damaged; it is copied as
 * it is. */
void sidecar_warn_cut(const folder *dir, const char *name, const logger *log);

#endif
