/* rename_link.h: a rename that never replaces, for systems without renameat2.
 *
 * A hard link is the only portable call that does not replace. Without links (folders, some network
 * file systems) it is a check and a rename, with a small window between them. Returns 0 or an errno
 * value.
 */
#ifndef FSDPCK_BASE_RENAME_LINK_H
#define FSDPCK_BASE_RENAME_LINK_H

int rename_by_link(int dirfd, const char *from, const char *to);

#endif
