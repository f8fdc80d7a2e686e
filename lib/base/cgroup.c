#include "base/cgroup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4608, LINE_BYTES = 4200 };

/* First line of mount + controller + group + "/" + name; false if it does not exist. */
static bool read_line(const char *mount, const char *controller, const char *group,
                      const char *name, char *line, int capacity)
{
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof(path), "%s%s%s/%s", mount, controller, group, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return false;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    const bool got = fgets(line, capacity, f) != NULL;
    fclose(f);
    return got;
}

/* A decimal number; false for "max", -1 and other values for no limit. */
static bool parse_number(const char *s, char **end, uint64_t *value)
{
    while (*s == ' ')
        s++;
    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    const unsigned long long v = strtoull(s, end, 10);
    *value = v;
    return errno == 0;
}

static void limit_cpus(cgroup_limits *limits, uint64_t quota, uint64_t period)
{
    if (quota == 0 || period == 0)
        return;
    const uint64_t cpus = quota / period + (quota % period != 0);
    if (cpus < UINT32_MAX && (limits->cpus == 0 || cpus < limits->cpus))
        limits->cpus = (unsigned)cpus;
}

static void limit_memory(cgroup_limits *limits, uint64_t nbytes)
{
    /* Version 1 states "none" as a number near 2^63. */
    if (nbytes > 0 && nbytes < UINT64_C(1) << 62 &&
        (limits->memory_bytes == 0 || nbytes < limits->memory_bytes))
        limits->memory_bytes = nbytes;
}

static void read_group(cgroup_limits *limits, const char *mount, const char *controller,
                       const char *group)
{
    char line[128];
    char *rest = NULL;
    uint64_t a;
    uint64_t b;
    if (read_line(mount, controller, group, "cpu.max", line, sizeof(line)) &&
        parse_number(line, &rest, &a) && parse_number(rest, &rest, &b))
        limit_cpus(limits, a, b);
    if (read_line(mount, controller, group, "cpu.cfs_quota_us", line, sizeof(line)) &&
        parse_number(line, &rest, &a) &&
        read_line(mount, controller, group, "cpu.cfs_period_us", line, sizeof(line)) &&
        parse_number(line, &rest, &b))
        limit_cpus(limits, a, b);
    if (read_line(mount, controller, group, "memory.max", line, sizeof(line)) &&
        parse_number(line, &rest, &a))
        limit_memory(limits, a);
    if (read_line(mount, controller, group, "memory.limit_in_bytes", line, sizeof(line)) &&
        parse_number(line, &rest, &a))
        limit_memory(limits, a);
}

/* The group and all groups above it, up to the mount. Shortens `group`. */
static void read_upwards(cgroup_limits *limits, const char *mount, const char *controller,
                         char *group)
{
    for (;;) {
        const bool root = strcmp(group, "/") == 0 || group[0] == '\0';
        read_group(limits, mount, controller, root ? "" : group);
        char *slash = strrchr(group, '/');
        if (root || slash == NULL)
            return;
        *slash = '\0';
    }
}

/* A line is "hierarchy:controllers:/path"; version 2 has hierarchy 0 and no controllers. */
static void read_membership(cgroup_limits *limits, const char *mount, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL || group[1] != '/')
        return;
    *controllers++ = '\0';
    *group++ = '\0';
    if (controllers[0] == '\0') {
        read_upwards(limits, mount, "", group);
        return;
    }
    if (strstr(controllers, "cpu") == NULL && strstr(controllers, "memory") == NULL)
        return;
    char folder[256];
    const int n = snprintf(folder, sizeof(folder), "/%s", controllers);
    if (n > 0 && (size_t)n < sizeof(folder))
        read_upwards(limits, mount, folder, group);
}

cgroup_limits cgroup_limits_read(const char *membership, const char *mount)
{
    cgroup_limits limits = {0};
    FILE *f = fopen(membership, "r");
    if (f == NULL)
        return limits;
    char line[LINE_BYTES];
    while (fgets(line, sizeof(line), f) != NULL)
        read_membership(&limits, mount, line);
    fclose(f);
    return limits;
}
