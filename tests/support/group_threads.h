/* group_threads.h: ranks that are threads of one process: replaces MPI under group/group.h, for
 * programs that are linked with group_threads.c.
 *
 *     group_threads_begin(4);              // before any of them joins
 *     in each of 4 threads: group_join(&watch, &g, &err);  ...  group_leave(&g, st);
 *     group_threads_end();
 *
 * No rank is ever lost; a rank that fails stops the others through their cancel tokens.
 */
#ifndef FSDPCK_TESTS_GROUP_THREADS_H
#define FSDPCK_TESTS_GROUP_THREADS_H

void group_threads_begin(unsigned size);
void group_threads_end(void);

#endif
