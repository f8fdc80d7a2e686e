/* copied_file.h: whether a file of a step is a copy of that of another step beside it:
 * "run/checkpoint-20/optimizer_0/__1_0.distcp" of "run/checkpoint-10/optimizer_0/__1_0.distcp". */
#ifndef FSDPCK_OPEN_COPIED_FILE_H
#define FSDPCK_OPEN_COPIED_FILE_H

/* The path of the other one, to be freed; NULL: none with the same bytes. Reads both up to the first difference. */
char *copied_file_find(const char *path);

#endif
