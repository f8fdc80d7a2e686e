/* saved_names.h: torch.save names the root of its zip after the file that it writes, without the last suffix: "rank_1" of
 * "rank_1.pt". A file that was exchanged with another one, or is a copy of it, still has the other's name
 * (PyTorchStreamWriter, since torch 1.6). Files of a program that renames what it saved have names of no file here, or each
 * that of the next; those that were written to a file object have "archive".
 *
 *     saved_name list[2] = {{"rank_0.pt", saved_name_of("rank_0.pt", root), SAVED_OF_RANK}, ...};
 *     saved_names_warn(list, 2, above, log);
 */
#ifndef FSDPCK_IO_SAVED_NAMES_H
#define FSDPCK_IO_SAVED_NAMES_H

#include "base/log.h"
#include "io/file.h"

/* What a name shows. Copies of weights may have any name: "best.pt" of "last.pt". */
typedef enum saved_kind {
    SAVED_ANY,
    SAVED_OF_STATE, /* the kind of the content: "optimizer.pt". A copy of it may be "optimizer_old.pt" */
    SAVED_OF_RANK /* the rank */
} saved_kind;

typedef struct saved_name {
    const char *path;     /* below the folder `above` */
    const char *saved_as; /* another path, without its suffix; NULL: its own, or unknown */
    saved_kind kind;
} saved_name;

/* By the root of its zip. The caller frees it. NULL: its own name, that of file objects, or memory is short. */
char *saved_name_of(const char *path, const char *root);

/* By the first record of the file below `dir`. NULL also if it is no zip. */
char *saved_name_read(const folder *dir, const char *path);

/* RANK-NAME if files were exchanged. */
void saved_names_warn(const saved_name *list, size_t count, const char *above, const logger *log);

#endif
