/* run_resume.h: --resume: a run that was killed continues where it stopped.
 *
 *     RETURN_IF(resume_find(r, err));     // after run_resolve: may adopt the partial of an earlier run
 *     RETURN_IF(resume_begin(r, err));    // instead of output_begin
 *     ...
 *     resume_end(r, st);                  // after the run: whether the partial and the journal stay
 *     resume_release(&r->resume);
 *
 * A run with --resume records its finished ranges in a journal beside the partial output (io/journal.h). A later run
 * adopts both if everything that decides the bytes of the output is the same: plan, located chunks, and size, mtime,
 * ctime and inode of each source file. Of several, the one with most finished bytes is continued. exec/ reads each recorded range again and compares its checksum. If something
 * differs, the old partial is removed with a warning (RESUME-FRESH), and the run begins from the start.
 *
 * The partial and its journal stay after a signal, a failed read or write, and a full disk. All other failures
 * remove them, as a run without --resume does.
 */
#ifndef FSDPCK_RUN_RUN_RESUME_H
#define FSDPCK_RUN_RUN_RESUME_H

#include "io/journal.h"

struct run;

typedef struct run_resume {
    bool on; /* the run has a journal */
    journal_header header;
    journal finished; /* of the earlier run */
    bool continues;   /* the output is adopted, and `finished` is set */
    journal_writer *writer;
    uint8_t joined; /* of a rank that joins a continued output: what became of its journal */
} run_resume;

/* Why a run that was resolved cannot have a journal; NULL: it can. */
const char *resume_obstacle(const struct run *r);
/* Collective with --resume: the ranks agree on st first. Without, it returns st. */
fsdpck_status resume_find(struct run *r, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Begins the output, and the journal if the run has one. */
fsdpck_status resume_begin(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same on the other ranks, which have joined the output. Each rank has its own journal. */
fsdpck_status resume_join(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the ranks have joined, with st. Of a run that continues, collective: rank 0 warns of journals of
 * other ranks that are not used. Else it returns st. */
fsdpck_status resume_report_joined(struct run *r, fsdpck_status st,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the partial and its journal stay after a failure with this status. */
bool resume_keeps(const struct run *r, fsdpck_status st);
void resume_end(struct run *r, fsdpck_status st);
void resume_release(run_resume *p);

#endif
