/* fsdpck digest: digests of tensors, comparison with a list, SHA-256 of files, manifests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert_run.h"
#include "digest_print.h"
#include "overwrite_check.h"
#include "progress_print.h"
#include "report.h"
#include "text_file.h"

#define AT(member) offsetof(command_options, member)

/* Largest list of digests: some ten million tensors. */
#define LIST_NBYTES_MAX ((size_t)2 << 30)

static const opt_row checking_rows[] = {
    {"check", 'c', OPT_TEXT, .at = AT(check), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "compare with the digests in FILE ('-': standard input)"},
    {0},
};

static const opt_row manifest_rows[] = {
    {"manifest", .kind = OPT_TEXT, .at = AT(manifest), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "write a manifest (fsdpck-manifest(5)) of SRC's tensors and files"},
    {"sha256", .kind = OPT_FLAG, .at = AT(sha256),
     .help = "with --manifest: add the SHA-256 of each file; without it: print only the SHA-256 of "
             "each file, for sha256sum -c"},
    {"force", .kind = OPT_FLAG, .at = AT(force), .help = "replace the manifest FILE"},
    {0},
};

/* A folder that is not one checkpoint: the files of a run, of an evaluation, ... */
static void advise_all_files(const command_request *r, fsdpck_error *err)
{
    static const char all[] =
        "for the SHA-256 of all files in SRC: cd SRC; find . -type f -exec sha256sum {} +";
    struct stat st;
    const bool is_several = err->status == FSDPCK_USAGE && r->open.format == NULL;
    if ((!is_several && err->finding != FSDPCK_FINDING_NO_CHECKPOINT &&
         err->finding != FSDPCK_FINDING_WEIGHTS_LOST) ||
        stat(r->src, &st) != 0 || !S_ISDIR(st.st_mode))
        return;
    const size_t n = strlen(err->next);
    if (n + sizeof "; " + sizeof all <= sizeof err->next)
        snprintf(err->next + n, sizeof err->next - n, "%s%s", n > 0 ? "; " : "", all);
    else if (is_several) /* a long list */
        snprintf(err->next, sizeof err->next, "give one of them; %s", all);
}

/* Only the SHA-256 of the files: no tensor is read. */
static int run_files(cli *c, const command_request *r)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_files *files = NULL;
    convert_inputs in = {0};
    progress_display *view = progress_start(c, (progress_mode)r->given->progress);
    fsdpck_status st = convert_inputs_open(c, r, &in, &err);
    if (st != FSDPCK_OK && in.src == NULL)
        advise_all_files(r, &err);
    if (st == FSDPCK_OK)
        st = fsdpck_files_new(c->ctx, in.src, in.options.work.threads, 1, &files, &err);
    progress_stop(view);
    const int code = st != FSDPCK_OK ? report_failure(c, in.src == NULL ? NULL : &in.info, &err)
                                     : digest_print_files(c, &in.info, files);
    fsdpck_files_free(files);
    convert_inputs_release(&in);
    return code;
}

static fsdpck_status write_manifest(cli *c, const command_request *r, fsdpck_checkpoint *src,
                                    const fsdpck_digests *d, const fsdpck_manifest_old *old,
                                    fsdpck_error *err)
{
    const job_options *o = &r->job;
    fsdpck_files *files;
    fsdpck_status st =
        fsdpck_files_new(c->ctx, src, o->work.threads, o->output.sha256, &files, err);
    if (st == FSDPCK_OK)
        st = fsdpck_manifest_write(files, d, o->output.manifest_path, o->output.force, old, err);
    fsdpck_files_free(files);
    return st;
}

/* A manifest lists all tensors unchanged. */
static bool selects(const command_request *r)
{
    const job_options *o = &r->job;
    return r->open.map != NULL || (o->select.part >= 0 && o->select.part != FSDPCK_PART_ALL) ||
           o->select.clean_names == FSDPCK_ON ||
           o->select.keys_count + o->select.exclude_count + o->select.strip_prefix_count +
                   o->select.rename_count + o->select.dtype_count >
               0;
}

/* A bad path must fail before the checkpoint is read. */
static fsdpck_status check_manifest_path(const command_request *r, fsdpck_manifest_old *old,
                                         fsdpck_error *err)
{
    const char *path = r->job.output.manifest_path;
    return path == NULL ? FSDPCK_OK
                        : fsdpck_manifest_check_path(path, r->job.output.force, old, err);
}

static fsdpck_status make_digests(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                  const job_options *job, fsdpck_digests **out, fsdpck_error *err)
{
    const fsdpck_digest_options options = {
        .struct_nbytes = sizeof options,
        .select = &job->select,
        .work = &job->work,
        .ignore_beside = job->output.manifest_path != NULL, /* it lists all files */
    };
    return fsdpck_digests_new(ctx, src, &options, out, err);
}

static int run(cli *c, const command_request *r)
{
    if (r->job.output.sha256 && r->job.output.manifest_path == NULL) {
        if (r->given->check != NULL)
            return opt_usage_error(c, "--check and --sha256 contradict each other");
        return run_files(c, r);
    }
    if (r->job.output.manifest_path != NULL && selects(r))
        return opt_usage_error(
            c, "--manifest describes the whole checkpoint: cannot select, rename or cast tensors");
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_digests *d = NULL;
    convert_inputs in = {0};
    char *list = NULL;
    size_t nbytes = 0;
    fsdpck_manifest_old old = FSDPCK_INIT(fsdpck_manifest_old);
    fsdpck_status st = FSDPCK_OK;
    const bool first = fsdpck_context_rank(c->ctx) == 0; /* only rank 0 writes beside SRC */
    if (first && r->given->check != NULL)
        st = text_file_read(r->given->check, "list of digests", LIST_NBYTES_MAX, &list, &nbytes,
                            &err);
    if (first && st == FSDPCK_OK)
        st = check_manifest_path(r, &old, &err);
    st = fsdpck_context_agree(c->ctx, st, &err);
    if (st == FSDPCK_OK)
        st = overwrite_check(c, r, NULL, &err);
    progress_display *view = progress_start(c, (progress_mode)r->given->progress);
    if (st == FSDPCK_OK)
        st = convert_inputs_open(c, r, &in, &err);
    if (st == FSDPCK_OK)
        st = make_digests(c->ctx, in.src, &in.options, &d, &err);
    if (st == FSDPCK_OK && r->job.output.manifest_path != NULL)
        st = write_manifest(c, r, in.src, d, &old, &err);
    progress_stop(view);
    if (in.src != NULL && c->json)
        report_set_step(in.src, &in.info);
    int code = 0;
    if (st != FSDPCK_OK)
        code = report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    else if (r->given->check != NULL && first)
        code = digest_print_check(c, r, &in.info, d, list, nbytes);
    else if (r->given->check == NULL)
        code = c->json ? digest_print_json(c, r, &in.info, d) : digest_print_text(c, r, d);
    if (st == FSDPCK_OK && fsdpck_context_broadcast(c->ctx, &code, sizeof code, &err) != FSDPCK_OK)
        code = report_failure(c, &in.info, &err);
    fsdpck_digests_free(d);
    convert_inputs_release(&in);
    free(list);
    return code;
}

int cmd_digest(cli *c, int argc, const char **argv)
{
    command_options w;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Checking:", checking_rows, &w},
        {"Files:", manifest_rows, &w},
        {"Selection:", options_part_digest, &w},
        {"", options_selecting, &w},
        {"Names and dtypes:", options_clean_part, &w},
        {"", options_naming, &w},
        {"", options_mapping, &w},
        {"", options_casting, &w},
        {"", options_dequantize, &w},
        {"Reading:", options_reading, &w},
        {"", options_hosts, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Running:", options_running, &w},
        {"", options_detail_digest, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "digest [OPTION]... SRC",
        .about = "Prints a digest for each tensor of checkpoint SRC, and one for the whole. The\n"
                 "digest of a tensor depends neither on its sharding nor on the format: two\n"
                 "sites can compare terabytes with a text file. Objects that are not tensors\n"
                 "have no digest.",
        .groups = groups,
        .examples =
            "  fsdpck digest step-1000 >step-1000.digests\n"
            "  fsdpck digest -c step-1000.digests copy-of-step-1000\n"
            "  fsdpck digest --manifest step-1000.manifest step-1000\n"
            "  fsdpck digest --sha256 step-1000 >S; cd step-1000; sha256sum -c ../S\n"
            "  fsdpck digest --part model step-1000 | fsdpck digest -c - model.safetensors\n",
    };
    return command_run(c, &spec, &w, 1, argc, argv, run);
}
