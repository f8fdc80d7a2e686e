/* unit_runner [SUITE...]: runs the unit tests that are linked with it, or those of these suites, each in a
 * process of its own. Exit status 1 where one fails, or none was run. */
#define _DEFAULT_SOURCE 1 /* wait4 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criterion/criterion.h"

/* Names that the linker makes. */
extern const unit_test *const __start_unit_tests[];
extern const unit_test *const __stop_unit_tests[];

void unit_check(bool holds, const char *text, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    fflush(stderr);
    _exit(1);
}

static bool is_wanted(const unit_test *t, int argc, char **argv)
{
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++)
        wanted = wanted || strcmp(t->suite, argv[i]) == 0;
    return wanted;
}

/* exit: leaks are looked for. */
static void run_here(const unit_test *t)
{
    if (t->signal != 0)
        (void)signal(t->signal, SIG_DFL); /* not the sanitizer's report */
    t->run();
    exit(0);
}

/* *seconds: of processor time. */
static bool passes(const unit_test *t, double *seconds)
{
    int status;
    struct rusage used;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        run_here(t);
    if (child < 0 || wait4(child, &status, 0, &used) != child)
        return false;
    *seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    return t->signal != 0 ? WIFSIGNALED(status) && WTERMSIG(status) == t->signal
                          : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    unsigned run = 0, failed = 0;
    for (const unit_test *const *t = __start_unit_tests; t < __stop_unit_tests; t++) {
        if (!is_wanted(*t, argc, argv))
            continue;
        double seconds = 0;
        const bool passed = passes(*t, &seconds);
        printf("%s.%s: %s, %.1f s\n", (*t)->suite, (*t)->name, passed ? "passed" : "FAILED",
               seconds);
        run++;
        failed += !passed;
    }
    printf("%u tests, %u failed\n", run, failed);
    return run == 0 || failed > 0;
}
