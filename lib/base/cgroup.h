/* cgroup.h: what a control group (container, batch job) allows this process.
 *
 * A process is bound by its own group and by every group above it; the least of them holds. Both
 * hierarchies are read: version 2 (cpu.max, memory.max) and version 1 (cpu.cfs_quota_us,
 * memory.limit_in_bytes). Where a container sees only its own part of the tree, the paths in
 * /proc/self/cgroup may not exist below the mount: the mount's root is then looked at as well.
 */
#ifndef FSDPCK_BASE_CGROUP_H
#define FSDPCK_BASE_CGROUP_H

#include <stdint.h>

typedef struct cgroup_limits {
    unsigned cpus;         /* quota over period, rounded up; 0: none */
    uint64_t memory_bytes; /* 0: none */
} cgroup_limits;

/* `membership` is /proc/self/cgroup and `mount` /sys/fs/cgroup, or a test's copies of them. What is
 * missing or unreadable sets no limit. */
cgroup_limits cgroup_limits_read(const char *membership, const char *mount);

#endif
