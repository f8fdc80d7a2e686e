/* latest_list.h: the steps of a run, by the names in its folder. */
#ifndef FSDPCK_VERIFY_LATEST_LIST_H
#define FSDPCK_VERIFY_LATEST_LIST_H

#include "verify/latest_step.h"

typedef struct latest_list {
    vec steps;      /* latest_step, newest first */
    vec unnumbered; /* latest_step: the name contains numbers, but none is certainly that of a step */
    vec nameless;   /* latest_step: "last.ckpt", "hpc_ckpt_1.ckpt", "final" */
} latest_list;

void latest_list_init(latest_list *l);
fsdpck_status latest_list_read(latest_list *l, const char *root, const folder *dir,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* LATEST-NAME: a name whose order beside `chosen` is uncertain, another model of its number, and its copies.
 * chosen: the newest complete step; NULL if none. */
void latest_list_warn(const latest_list *l, const latest_step *chosen, const logger *log);
/* Newest first. */
void latest_list_sort(latest_list *l);
void latest_list_release(latest_list *l);

#endif
