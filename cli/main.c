/* main.c: picks the command, opens and closes the context, turns signals into a cancel, maps status
 * to exit. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "complete.h"
#include "opt.h"
#include "pager.h"
#include "report.h"
#include "report_page.h"
#include "warnings.h"

const command commands[] = {
    {"inspect", cmd_inspect, "contents: tensors, shards, layout, optimizer, other objects", NULL,
     false},
    {"verify", cmd_verify, "check completeness, consistency and checksums", " check fsck ", true},
    {"consolidate", cmd_consolidate, "shards -> full tensors (HF folder, safetensors, .pt)",
     " merge convert export ", true},
    {"reshard", cmd_reshard, "shards -> other shards (DCP, rank files, DCP safetensors)",
     " split shard cut ", true},
    {"average", cmd_average, "mean, EMA, task arithmetic or slerp of checkpoints, in any format",
     " soup ", true},
    {"layout", cmd_layout, "tensors and bytes per rank: placements, sizes, padding, balance", NULL,
     false},
    {"diff", cmd_diff, "compare tensors across formats, world sizes, layouts, dtypes",
     " compare cmp ", true},
    {"digest", cmd_digest, "one digest per tensor, for any sharding; -c FILE checks a list",
     " sum checksum ", true},
    {"latest", cmd_latest, "newest complete checkpoint in the folder of a run", NULL, false},
    {"maps", cmd_maps, "list tensor maps between trainers and Hugging Face models", NULL, false},
    {"help", cmd_help, "this text, a command, the meaning of a finding, or a manual page", NULL,
     false},
    {"version", cmd_version, "version, and the formats and engines that are built in", NULL, false},
    {NULL, NULL, NULL, NULL, false},
};

/* State that a signal handler can reach. */
static fsdpck_context *volatile signal_context;
static volatile sig_atomic_t signal_seen;
static volatile sig_atomic_t pipe_broken; /* the reader of stdout or stderr has closed it */

static void on_signal(int number)
{
    static volatile sig_atomic_t count;
    if (signal_seen == 0)
        signal_seen = number;
    fsdpck_context_cancel(signal_context);
    /* The second may come while the output is removed; the third ends the program at once. */
    if (count < 2) {
        count = count + 1;
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* write() reports a reader that has closed its end; only the report needs one, progress does not. A
 * SIGPIPE that another process sends is a request to end, like the other signals. */
static void on_pipe(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_pid != 0 && info->si_pid != getpid())
        on_signal(number);
    else
        pipe_broken = 1;
}

static void on_log(void *arg, fsdpck_log_level level, const char *text)
{
    cli *c = arg;
    if (level == FSDPCK_LOG_WARNING)
        warnings_print(c);
    else if (!c->quiet && (level != FSDPCK_LOG_DETAIL || c->verbose != 0)) {
        fprintf(stderr, "fsdpck %s: %s\n", c->command, text);
        report_page_note(c->page, text);
    }
}

const command *command_find(const char *name)
{
    char word[40];
    for (const command *k = commands; k->name != NULL; k++) {
        if (strcmp(k->name, name) == 0)
            return k;
        if (k->alias_of != NULL && snprintf(word, sizeof word, " %s ", name) < (int)sizeof word &&
            strstr(k->alias_of, word) != NULL)
            return k;
    }
    return NULL;
}

/* Signals that were ignored at the start stay ignored: nohup, and jobs in the background. They are
 * recorded before library constructors run: UCX, a part of some MPIs, installs a SIGHUP handler. */
static struct sigaction at_start[NSIG];

static void remember_signals(void)
{
    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, NULL, &at_start[i]);
}

#if defined(__ELF__)
__attribute__((section(".preinit_array"),
               used)) static void (*const before_all)(void) = remember_signals;
#else
__attribute__((constructor)) static void before_all(void)
{
    remember_signals();
}
#endif

static void install_handler(int number, const struct sigaction *action)
{
    if (at_start[number].sa_handler == SIG_IGN)
        signal(number, SIG_IGN);
    else
        sigaction(number, action, NULL);
}

static void install_handlers(fsdpck_context *ctx)
{
    signal_context = ctx;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    /* Signals that ask a program to end; batch systems send USR1 and XCPU before SIGKILL. */
    static const int numbers[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        install_handler(numbers[i], &action);
    struct sigaction pipe_action = {.sa_sigaction = on_pipe, .sa_flags = SA_SIGINFO};
    sigemptyset(&pipe_action.sa_mask);
    install_handler(SIGPIPE, &pipe_action);
    /* A file size limit must be an error of write(), not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
}

/* A report that could not be written is a failure too. */
static int finish(cli *c, int code)
{
    const bool paged = pager_finish(c);
    if (signal_seen != 0) {
        signal(signal_seen, SIG_DFL);
        raise(signal_seen);
    }
    const bool lost = !paged && (fflush(stdout) != 0 || ferror(stdout));
    if (lost && pipe_broken) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (!lost)
        return code;
    fputs("fsdpck: cannot write the report to standard output\n", stderr);
    return code == 0 ? FSDPCK_IO : code;
}

static const char *command_or_help(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return "help";
    if (strcmp(word, "--version") == 0)
        return "version";
    return word;
}

/* Rank 0 prints for all ranks: their output would be the same. Returns a copy of stderr. */
static int mute_stdout(void)
{
    const int loud = dup(STDERR_FILENO);
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        close(null);
    }
    return loud;
}

/* Runs the command on all ranks, or on rank 0 only. */
static int run_command(cli *c, const command *k, int argc, char **argv)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    int loud = -1;
    fsdpck_status st = fsdpck_context_join(c->ctx, &err);
    c->join_seconds = report_seconds_since(c->started_seconds);
    const unsigned rank = fsdpck_context_rank(c->ctx);
    if (rank != 0)
        loud = mute_stdout();
    if (!k->shared) {
        fsdpck_context_detach(c->ctx);
        if (st == FSDPCK_USAGE && fsdpck_context_world_size(c->ctx) == 1)
            st = FSDPCK_OK; /* processes without a group may still read */
    }
    int code = 0;
    if (st != FSDPCK_OK)
        code = report_failure(c, NULL, &err);
    else if (k->shared || rank == 0)
        code = k->run(c, argc - 1, (const char **)argv + 1);
    if (loud >= 0 && fsdpck_context_lost_peer(c->ctx))
        dprintf(loud, "fsdpck %s: rank %u: another rank no longer responds\n", c->command, rank);
    fsdpck_context_leave(c->ctx, (fsdpck_status)code);
    if (loud >= 0)
        close(loud);
    return code;
}

static int run_unknown(cli *c, int argc, const char **argv)
{
    return cmd_help_unknown(c, argv[0], argc, argv);
}

static int run_missing(cli *c, int argc, const char **argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    return cmd_help_missing();
}

static int run_completion(cli *c, int argc, const char **argv)
{
    const command *asked = argc > 1 ? command_find(argv[1]) : NULL;
    return complete_run(c, asked, asked != NULL && asked->run == cmd_help, argc, argv);
}

static const command completing = {.name = "__complete", .run = run_completion};
static const command unknown = {.name = "", .run = run_unknown};
static const command missing = {.name = "help", .run = run_missing};

/* Never NULL. */
static const command *choose_command(int argc, char **argv)
{
    if (argc > 1 && complete_is_command(argv[1]))
        return &completing;
    const command *k = argc > 1 ? command_find(command_or_help(argc, argv)) : &missing;
    return k == NULL ? &unknown : k;
}

int main(int argc, char **argv)
{
    report_page page = {.words = (const char *const *)argv + (argc > 0)};
    cli c = {.ctx = fsdpck_context_new(), .page = &page, .started_seconds = report_now()};
    if (c.ctx == NULL) {
        fputs("fsdpck: out of memory\n", stderr);
        return FSDPCK_LIMIT;
    }
    const command *k = choose_command(argc, argv);
    c.command = k->name;
    opt_find_color(&c, argc, (const char **)argv);
    fsdpck_context_set_log(c.ctx, on_log, &c);
    install_handlers(c.ctx);
    int code = run_command(&c, k, argc, argv);
    fsdpck_context_set_log(c.ctx, NULL, NULL);
    code = finish(&c, code);
    fsdpck_context_free(c.ctx);
    return code;
}
