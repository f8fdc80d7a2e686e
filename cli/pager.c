#include "pager.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* less ends if everything fits on one screen (F), shows colours (R), and leaves the text on the screen (X). */
#define SETTINGS "LESS=${LESS-FRX} LV=${LV--c}; export LESS LV; "

extern char **environ;

/* Whether a program of this name exists, in PATH if the name has no slash. */
static bool has_program(const char *name, size_t nbytes)
{
    char path[PATH_MAX];
    const char *dirs = getenv("PATH");
    if (memchr(name, '/', nbytes) != NULL)
        return snprintf(path, sizeof path, "%.*s", (int)nbytes, name) < PATH_MAX &&
               access(path, X_OK) == 0;
    for (const char *at = dirs == NULL ? "" : dirs; *at != '\0';) {
        const size_t n = strcspn(at, ":");
        const int length = snprintf(path, sizeof path, "%.*s/%.*s", (int)n, at, (int)nbytes, name);
        if (length < PATH_MAX && access(path, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* The pager as a shell command, or NULL. */
static const char *choose_command(const cli *c)
{
    const char *wanted = getenv("FSDPCK_PAGER");
    if (wanted == NULL)
        wanted = getenv("PAGER");
    if (wanted == NULL) {
        const char *term = getenv("TERM");
        const bool moves = term != NULL && strcmp(term, "dumb") != 0;
        return moves && has_program("less", strlen("less")) ? "less" : NULL;
    }
    if (wanted[strspn(wanted, " ")] == '\0' || strcmp(wanted, "cat") == 0)
        return NULL;
    /* A shell finds no error before it runs; then the report would be lost. */
    const size_t n = strcspn(wanted, " ");
    if (strcspn(wanted, "|&;<>()$`\\\"'*?[]#~={}%!\t\n") < n || has_program(wanted, n))
        return wanted;
    fprintf(stderr, "fsdpck %s: pager not started: no program '%.*s'\n", c->command, (int)n,
            wanted);
    return NULL;
}

/* Starts `sh -c command` with its standard input at `from`; -1 on failure. */
static pid_t start_shell(const char *wanted, int from)
{
    const size_t capacity = strlen(wanted) + sizeof SETTINGS;
    char *line = malloc(capacity);
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    if (line == NULL)
        return -1;
    snprintf(line, capacity, "%s%s", SETTINGS, wanted);
    char shell[] = "sh", option[] = "-c";
    char *const argv[] = {shell, option, line, NULL};
    if (posix_spawn_file_actions_init(&actions) == 0) {
        if (posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO) != 0 ||
            posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ) != 0)
            pid = -1;
        posix_spawn_file_actions_destroy(&actions);
    }
    free(line);
    return pid;
}

void pager_start(cli *c)
{
    int ends[2];
    if (c->json || c->no_pager || c->pager > 0 || c->out.columns == 0 ||
        fsdpck_context_world_size(c->ctx) > 1)
        return;
    const char *wanted = choose_command(c);
    if (wanted == NULL || fflush(stdout) != 0 || pipe(ends) != 0)
        return;
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    const pid_t pid = start_shell(wanted, ends[0]);
    if (pid > 0 && dup2(ends[1], STDOUT_FILENO) >= 0)
        c->pager = pid;
    close(ends[0]);
    close(ends[1]);
}

bool pager_finish(cli *c)
{
    if (c->pager <= 0)
        return false;
    (void)fflush(stdout); /* fails if the user has left the pager */
    close(STDOUT_FILENO);
    /* Keys such as Ctrl-C are for the pager now. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    while (waitpid(c->pager, NULL, 0) < 0 && errno == EINTR)
        continue;
    c->pager = 0;
    return true;
}
