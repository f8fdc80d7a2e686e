/* resume_state.h: the state that a step of a run contains, by kind and place, for the comparison of steps:
 *
 *     resume_state s;
 *     resume_state_init(&s, path);
 *     RETURN_IF(resume_state_add_checkpoint(&s, c, err));   // each that was opened at or below path
 *     RETURN_IF(resume_state_add_files(&s, err));           // then the files beside them
 *     if (resume_state_lacks(&s, &older)) resume_state_print(&s, &older, &text);
 *     resume_state_release(&s);
 */
#ifndef FSDPCK_VERIFY_RESUME_STATE_H
#define FSDPCK_VERIFY_RESUME_STATE_H

#include "open/checkpoint.h"

typedef enum resume_kind {
    RESUME_MODEL,
    RESUME_OPTIMIZER,
    RESUME_SCHEDULER,
    RESUME_RNG,
    RESUME_DATA,     /* position in the data */
    RESUME_PROGRESS, /* counters, or several of these under one name */
    RESUME_KINDS
} resume_kind;

typedef struct resume_state {
    const char *path;
    /* Places inside the step, without numbers that differ between steps or ranks. "": the step
     * itself. */
    strtab places[RESUME_KINDS];
    strtab read;    /* files of the checkpoints and their folders, by their paths below `path`, */
    vec read_kinds; /* uint8_t: and the kinds that their checkpoints contain */
    strtab omitted; /* files below `path` with another content than their names promise */
    int64_t
        step; /* that the first checkpoint records; -1: unknown. The caller sets it, and name_is_other */
    bool name_is_other; /* a warning of the step in the name was printed */
} resume_state;

/* path: of the step, borrowed. */
void resume_state_init(resume_state *s, const char *path);
void resume_state_release(resume_state *s);

fsdpck_status resume_state_add_checkpoint(resume_state *s, const fsdpck_checkpoint *c,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Files of a trainer's state by their names, except those of a checkpoint that contains this kind. */
fsdpck_status resume_state_add_files(resume_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A file of the step whose name does not count. Before resume_state_add_files. */
fsdpck_status resume_state_omit(resume_state *s, const char *path,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a file or a folder of the path has the name of a trainer's state. */
bool resume_state_is_name(const char *path);

/* Adds the places of another part of the same step. */
fsdpck_status resume_state_merge(resume_state *s, const resume_state *part,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

bool resume_state_has(const resume_state *s, resume_kind kind);
/* Whether `other` contains state that `s` lacks: more places of a kind; for the model, one at all. */
bool resume_state_lacks(const resume_state *s, const resume_state *other);
/* Appends the kinds, such as "optimizer, scheduler", with the places that only `other` has. */
void resume_state_print(const resume_state *s, const resume_state *other, text_buf *out);

#endif
