#include "help_topics.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_text.h"
#include "report.h"

const help_topic help_topics[] = {
    {"examples", "fsdpck-examples", "7", "the commonest jobs, one command each"},
    {"formats", "fsdpck-formats", "5", "checkpoint formats that are read and written"},
    {"findings", "fsdpck-findings", "7", "ids of findings, their meaning and the next step"},
    {"model", "fsdpck-model", "5", "description of a model for --model"},
    {"map", "fsdpck-map", "5", "how to write a tensor map for --map"},
    {"manifest", "fsdpck-manifest", "5", "files, tensors and checksums at the time of writing"},
    {"cluster", "fsdpck-cluster", "7", "several processes, hosts and GPUs"},
    {"resume", "fsdpck-consolidate", "1", "runs that continue after a kill: --resume"},
    {"partials", "fsdpck-inspect", "1", "unfinished outputs that killed runs left: --partials"},
    {"library", "fsdpck", "3", "the C library"},
    {NULL, NULL, NULL, NULL},
};

const help_topic *help_topic_find(const char *word)
{
    for (const help_topic *t = help_topics; t->name != NULL; t++)
        if (strcmp(t->name, word) == 0)
            return t;
    return NULL;
}

/* The page beside the program, which man may not know: PREFIX/share/man for PREFIX/bin/fsdpck, or that of the sources
 * above a build. */
static bool find_page(const help_topic *topic, char path[PATH_MAX])
{
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return false;
    program[n] = '\0';
    for (char *slash = strrchr(program, '/'); slash != NULL; slash = strrchr(program, '/')) {
        *slash = '\0';
        int length = snprintf(path, PATH_MAX, "%s/share/man/man%s/%s.%s", program, topic->section,
                              topic->page, topic->section);
        if (length > 0 && length < PATH_MAX && access(path, R_OK) == 0)
            return true;
        length = snprintf(path, PATH_MAX, "%s/man/%s.%s", program, topic->page, topic->section);
        if (length > 0 && length < PATH_MAX && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

extern char **environ;

/* Of an installed page. Returns false if man does not show it. *reason: 0, or why man was not started. */
static bool run_man(const help_topic *topic, int *reason)
{
    char *const words[] = {(char[]){"man"}, (char *)topic->section, (char *)topic->page, NULL};
    pid_t child;
    int status = 0;
    *reason = posix_spawnp(&child, words[0], NULL, NULL, words, environ);
    if (*reason != 0)
        return false;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int help_topic_open(const cli *c, const help_topic *topic)
{
    char path[PATH_MAX];
    const bool has_page = find_page(topic, path);
    int reason = 0;
    if (has_page) {
        execlp("man", "man", path, (char *)NULL);
        reason = errno;
    } else if (run_man(topic, &reason)) {
        return 0;
    }
    if (has_page && page_text_print(path))
        return 0;
    if (reason == 0) { /* man has printed what it lacks */
        fprintf(
            stderr,
            "  next:     install the manual pages, or read that of the sources: man -l man/%s.%s\n",
            topic->page, topic->section);
        return FSDPCK_IO;
    }
    fprintf(stderr, "fsdpck %s: program 'man' not started: %s\n", c->command, strerror(reason));
    if (has_page)
        fprintf(stderr, "  next:     read '%s'\n", path);
    else
        fprintf(stderr, "  next:     install man, or read man/%s.%s of the sources\n", topic->page,
                topic->section);
    return FSDPCK_IO;
}
