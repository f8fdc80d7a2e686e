/* cgroup.h: limits of a control group (container, batch job) for this process.
 *
 * A process is bound by its own group and by every group above it; the smallest limit applies. Both
 * hierarchies are read: version 2 (cpu.max, memory.max) and version 1 (cpu.cfs_quota_us,
 * memory.limit_in_bytes). In a container with only a part of the tree, the paths in
 * /proc/self/cgroup may not exist below the mount: the mount's root is then read as well.
 */
#ifndef FSDPCK_BASE_CGROUP_H
#define FSDPCK_BASE_CGROUP_H

#include <stdint.h>

typedef struct cgroup_limits {
    unsigned cpus;         /* quota over period, rounded up; 0: none */
    uint64_t memory_bytes; /* 0: none */
} cgroup_limits;

/* `membership` is /proc/self/cgroup and `mount` /sys/fs/cgroup, or a test's copies of them. Missing
 * or unreadable files set no limit. */
cgroup_limits cgroup_limits_read(const char *membership, const char *mount);

#endif
