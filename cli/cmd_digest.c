#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digest_view.h"
#include "progress.h"
#include "report.h"
#include "text_file.h"
#include "transform_run.h"

#define AT(member) offsetof(transform_words, member)

/* Longest list of digests: some ten million tensors. */
#define LIST_NBYTES_MAX ((size_t)2 << 30)

static const opt_row checking_rows[] = {
    {"check", 'c', OPT_TEXT, .at = AT(check), .value = "FILE",
     .help = "compare with the digests in FILE, '-' for standard input"},
    {0},
};

static int run(cli *c, const transform_request *r)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_digests *d = NULL;
    transform_inputs in = {0};
    char *list = NULL;
    size_t nbytes = 0;
    fsdpck_status st = FSDPCK_OK;
    if (r->check_path != NULL)
        st =
            text_file_read(r->check_path, "list of digests", LIST_NBYTES_MAX, &list, &nbytes, &err);
    progress_view *view = progress_start(c, (progress_mode)r->progress);
    if (st == FSDPCK_OK)
        st = transform_inputs_open(c, r, &in, &err);
    if (st == FSDPCK_OK)
        st = fsdpck_digests_new(c->ctx, in.src, &in.options, &d, &err);
    progress_stop(view);
    int code;
    if (st != FSDPCK_OK)
        code = report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    else if (r->check_path != NULL)
        code = digest_print_check(c, r, &in.info, d, list, nbytes);
    else
        code = c->json ? digest_print_json(c, &in.info, d) : digest_print_text(c, d);
    fsdpck_digests_free(d);
    transform_inputs_release(&in);
    free(list);
    return code;
}

int cmd_digest(cli *c, int argc, const char **argv)
{
    transform_words w;
    transform_words_init(&w);
    const opt_group groups[] = {
        {"Checking:", checking_rows, &w},
        {"Which tensors:", words_selecting, &w},
        {"Names and dtypes:", words_naming, &w},
        {"", words_casting, &w},
        {"Reading:", words_reading, &w},
        {"", words_keying, &w},
        {"", words_replicas, &w},
        {"Running:", words_running, &w},
        {0},
    };
    const opt_spec spec = {
        .usage = "digest [OPTION]... SRC",
        .about = "Prints one digest for each tensor of checkpoint SRC, and one for the whole.\n"
                 "A tensor's digest is the same however it is cut and in whatever format, so\n"
                 "two sites compare terabytes by a text file. Objects that are not tensors\n"
                 "are not looked at.",
        .groups = groups,
        .examples =
            "  fsdpck digest step-1000 >step-1000.digests\n"
            "  fsdpck digest -c step-1000.digests copy-of-step-1000\n"
            "  fsdpck digest --part model step-1000 | fsdpck digest -c - model.safetensors\n",
    };
    return transform_with_words(c, &spec, &w, 1, argc, argv, run);
}
