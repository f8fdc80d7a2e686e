/* foreign_folders.h: folders in formats of other programs, which no reader accepts. */
#ifndef FSDPCK_OPEN_FOREIGN_FOLDERS_H
#define FSDPCK_OPEN_FOREIGN_FOLDERS_H

#include "formats/format.h"

typedef struct foreign_kind {
    const char *title; /* after "checkpoint ": "of orbax (JAX)" */
    const char *next;  /* step for the user */
} foreign_kind;

/* NULL: none that is known. */
const foreign_kind *foreign_folder_kind(const probe_input *in);
/* UNSUPPORTED (SRC-FOREIGN) if it is such a folder. */
fsdpck_status foreign_folder_check(const probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a folder with a compressed .pt file, if nothing else in it is a checkpoint. */
fsdpck_status foreign_folder_check_compressed(const probe_input *in,
                                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* UNSUPPORTED (SRC-FOREIGN). */
fsdpck_status foreign_folder_fail(const foreign_kind *kind, const char *path,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
