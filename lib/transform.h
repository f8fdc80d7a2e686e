/* transform.h: what the files that make up the public interface share. The way of one run:
 *
 *     context.c      what the caller watches and stops a run with
 *     open.c         path -> format reader -> sealed catalogue, parts
 *     run.c          aim -> layout -> plan -> locate -> run -> seal -> commit (see run.h)
 *     walk.c         borrowed views of the catalogue
 *     layout_view.c  who would hold what; rank_sums.c how much of it
 *     sidecars.c     small files beside the weights that are copied along
 *     report.c       what a run did
 */
#ifndef FSDPCK_TRANSFORM_H
#define FSDPCK_TRANSFORM_H

#include "aim/aim.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "formats/format.h"
#include "fsdpck.h"

struct fsdpck_context {
    logger log;
    fsdpck_log_fn user_fn;
    void *user_arg;
    cancel_token cancel;
    progress progress;
};

struct fsdpck_checkpoint {
    fsdpck_context *ctx;
    char *path; /* what was really opened */
    bool entered;
    probe_input probe;
    const format_reader *format;
    void *self; /* the reader's */
    budget metadata;
    catalogue cat;
    source src;
    aim_parts parts;
    char *mesh; /* as text; NULL where none is known */
    uint64_t cut_otherwise; /* tensors that a derived mesh does not explain */
    bool opaque_calls;
};

/* The mesh that a catalogue's tensors are cut over: the one with most ranks, then most dims (rank
 * files also name meshes that are slices of it). NULL where it has none. */
const mesh *transform_mesh(const catalogue *c);

/* Gathers what probes look at. Released with probe_release. */
fsdpck_status probe_gather(const char *path, probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
void probe_release(probe_input *in);
/* The first reader that knows it, or NULL; *near_miss may be set then. */
const format_reader *probe_readers(const probe_input *in, const char **near_miss);

/* Threads to use: `asked`, or what affinity and cgroup allow. */
unsigned transform_threads(unsigned asked);

/* Escaped copy for a report; NULL where memory ran out. */
char *transform_copy(const char *text);

#endif
