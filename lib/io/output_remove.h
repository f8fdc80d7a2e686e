/* output_remove.h: removing the remains of an output. */
#ifndef FSDPCK_IO_OUTPUT_REMOVE_H
#define FSDPCK_IO_OUTPUT_REMOVE_H

/* Removes a file, a link (never its target) or a folder with its contents. Needs one descriptor at
 * a time in addition to two, whatever the depth. Returns 0 or an errno value; absence is 0. */
int remove_tree(int dirfd, const char *name);

#endif
