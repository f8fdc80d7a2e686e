/* output_remove.h: taking away what an output leaves behind. */
#ifndef FSDPCK_IO_OUTPUT_REMOVE_H
#define FSDPCK_IO_OUTPUT_REMOVE_H

/* Removes a file, a link (never what it points to) or a folder with all that is in it. Needs one
 * descriptor at a time besides two, whatever the depth. Returns 0 or an errno value; absence is
 * 0. */
int remove_tree(int dirfd, const char *name);

#endif
