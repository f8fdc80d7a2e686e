/* Results of verify for the caller, and the defects that it could not detect. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "verify/near_roles.h"
#include "verify/verify_internal.h"

bool verify_is_sample(const fsdpck_verify *v)
{
    return v->options.sample_end > 0 && (v->options.sample_begin > 0 || v->options.sample_end < 1);
}

bool verify_is_partial(const fsdpck_verify *v)
{
    return verify_is_sample(v) || v->result.stopped;
}

static const char *not_seen_of_level(const fsdpck_verify *v)
{
    static const char *const texts[] = {
        [CHECK_QUICK] =
            "anything inside the data; gaps and overlaps; blobs that do not match the metadata",
        [CHECK_STRUCTURE] =
            "anything inside the data; gaps and overlaps; blobs that do not match the metadata",
        [CHECK_COVERAGE] = "flipped bits",
        [CHECK_CHECKSUM] = "values that were wrong when saved",
        [CHECK_NUMERIC] =
            "most values that were wrong when saved (NaN is detected, a wrong number is not)",
    };
    return texts[v->level];
}

/* A manifest has checksums of whole files. Without it those in the files do not cover names and numbers of the metadata. */
static const char *without_checksum(const fsdpck_verify *v)
{
    if (v->level < CHECK_CHECKSUM || v->manifest_result.covers)
        return "";
    return v->result.unverified_nbytes > 0 ? "; changed bytes that have no checksum"
                                           : "; changed metadata that has no checksum";
}

/* Consistent files may still belong to different saves. At level numeric, files with steps of the optimizer are
 * compared by them (check_steps.c). */
static void mixture_not_seen(const fsdpck_verify *v, char *text, size_t capacity)
{
    const uint64_t files = catalogue_file_count(&v->src->cat);
    const uint64_t compared = v->result.step_files;
    snprintf(text, capacity, "; a mixture of files from two saves");
    if (compared > 1 && compared == files)
        snprintf(text, capacity, "; a mixture of files from two saves of the same step");
    else if (compared > 1)
        snprintf(text, capacity,
                 "; a mixture of files from two saves (%" PRIu64 " of %" PRIu64
                 " files have steps of the optimizer, which were compared)",
                 compared, files);
}

static void not_seen_of_files(const fsdpck_verify *v, char *text, size_t capacity)
{
    text[0] = '\0';
    if (v->src == NULL || v->manifest_result.covers || v->level < CHECK_COVERAGE ||
        !v->src->probe.is_folder)
        return;
    const bool several = catalogue_file_count(&v->src->cat) > 1;
    if (several || v->src->format->of_two_saves)
        mixture_not_seen(v, text, capacity);
    if (several)
        snprintf(text + strlen(text), capacity - strlen(text),
                 "; swapped shards of the same shape");
}

void verify_set_not_seen(fsdpck_verify *v)
{
    if (v->src == NULL) {
        snprintf(v->not_seen, sizeof v->not_seen, "%s",
                 v->manifest_result.there
                     ? "everything in the files, whole tensors too: the checkpoint could not be "
                       "opened, and only its files were compared with the manifest"
                     : "everything in the files, whole tensors too: the checkpoint could not be "
                       "opened");
        return;
    }
    const bool doubt = v->src->cat.origin.order_suspect;
    const bool unlike = v->near != NULL && v->near->skipped != NULL;
    char of_state[256] = "", of_files[256];
    not_seen_of_files(v, of_files, sizeof of_files);
    if (v->state_unchecked > 0)
        snprintf(of_state, sizeof of_state,
                 "; %" PRIu64 " file%s of the trainer's state beside the weights, such as '%s'",
                 v->state_unchecked, text_plural(v->state_unchecked), v->state_first);
    char of_nested[256] = "";
    if (v->nested_unchecked > 0)
        snprintf(of_nested, sizeof of_nested,
                 "; %" PRIu64 " folder%s below with checkpoints of their own, such as '%s'",
                 v->nested_unchecked, text_plural(v->nested_unchecked), v->nested_first);
    snprintf(v->not_seen, sizeof v->not_seen, "%s%s%s%s%s%s%s%s",
             verify_is_partial(v) ? "skipped data; " : "", not_seen_of_level(v),
             without_checksum(v), of_files, doubt ? "; the order of rows (see the notes)" : "",
             unlike ? "; values that are unrelated to those in the folder of --like" : "", of_state,
             of_nested);
}

/* Without storages, which come last. */
static uint64_t statistics_count(const fsdpck_verify *v)
{
    return v->result.numbers == NULL ? 0 : v->src->parts.tensor_count;
}

void fsdpck_verify_get_info(const fsdpck_verify *v, fsdpck_verify_info *info)
{
    fsdpck_verify_info all = {
        .struct_nbytes = sizeof all,
        .level = (fsdpck_level)v->level,
        .opened = v->src != NULL,
        .proved_tensors = v->proved.tensors,
        .proved_rounded = v->proved.rounded,
        .errors = v->found.counts[FINDING_ERROR],
        .warnings = v->found.counts[FINDING_WARNING],
        .notes = v->found.counts[FINDING_NOTE],
        .ignored = v->found.counts[FINDING_IGNORE],
        .listed = v->found.kept,
        .chunks = v->result.chunks,
        .records = v->result.records,
        .bytes_total = v->result.bytes_total,
        .bytes_read = v->result.bytes_read,
        .bytes_summed = v->result.bytes_summed,
        .unchecked_tensors = v->result.unsummed_tensors,
        .unchecked_nbytes = v->result.unverified_nbytes,
        .unread_tensors = v->result.unread_tensors,
        .unread_nbytes = v->result.unread_nbytes,
        .unsupported = v->found.unsupported,
        .manifest = v->manifest_result.there,
        .manifest_files = v->manifest_result.files,
        .manifest_nbytes = v->manifest_result.bytes_summed,
        .manifest_tensors = v->manifest_result.tensors,
        .manifest_unhashed_files = v->manifest_result.unhashed_files,
        .sampled = verify_is_sample(v),
        .stopped = v->result.stopped,
        .skipped_records = v->result.skipped_records,
        .skipped_nbytes = verify_is_partial(v) ? v->result.bytes_total - v->result.bytes_read : 0,
        .statistics = statistics_count(v),
        .state_files = v->state_checked,
        .unchecked_state_files = v->state_unchecked + v->nested_unchecked,
        .not_seen = v->not_seen,
    };
    if (v->options.strict) {
        all.errors += all.warnings;
        all.warnings = 0;
    }
    struct_copy_out(info, &all, sizeof all);
}

int fsdpck_verify_get_source(const fsdpck_verify *v, fsdpck_info *info)
{
    if (v->src == NULL)
        return 0;
    fsdpck_info all = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(v->src, &all);
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    if (fsdpck_get_step(v->src, 0, &step)) {
        all.step = step.step;
        all.step_source = step.source;
    }
    struct_copy_out(info, &all, sizeof all);
    return 1;
}

/* Of the tensor, or of the file of the optimizer beside the weights; -1: neither. */
static int part_of(const fsdpck_verify *v, const fsdpck_error *what)
{
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    if (v->src == NULL)
        return -1;
    for (size_t i = 0; what->path[0] != '\0' && fsdpck_get_state_file(v->src, i, &f); i++)
        if (strcmp(f.path, what->path) == 0)
            return f.kind == FSDPCK_STATE_OPTIMIZER ? FSDPCK_PART_OPTIMIZER : -1;
    const uint32_t tensor = what->tensor[0] == '\0'
                                ? CAT_NONE
                                : catalogue_find(&v->src->cat, what->tensor, strlen(what->tensor));
    return tensor < v->src->parts.tensor_count ? (int)v->src->parts.tensor_part[tensor] : -1;
}

void fsdpck_verify_get_finding(const fsdpck_verify *v, uint64_t index, fsdpck_finding *f)
{
    if (index >= v->found.kept) {
        struct_clear(f);
        return;
    }
    const finding *k = &v->found.list[index];
    const finding_severity severity =
        v->options.strict && k->severity == FINDING_WARNING ? FINDING_ERROR : k->severity;
    const fsdpck_finding all = {.struct_nbytes = sizeof all,
                                .severity = finding_severity_name(severity),
                                .what = &k->what,
                                .group = (int)k->group,
                                .part = part_of(v, &k->what)};
    struct_copy_out(f, &all, sizeof all);
}

int fsdpck_verify_get_statistics(const fsdpck_verify *v, uint64_t index,
                                 fsdpck_tensor_statistics *statistics)
{
    fsdpck_tensor_statistics all = {.struct_nbytes = sizeof all};
    if (index >= statistics_count(v))
        return 0;
    const check_statistics *s = &v->result.numbers[index];
    all.nelems = s->nelems;
    all.nan = s->nan;
    all.inf = s->inf;
    all.zeros = s->m.zeros;
    all.finite = s->m.numbers;
    all.mean = s->m.mean;
    all.variance = s->m.numbers > 0 ? s->m.squares / (double)s->m.numbers : 0;
    all.minimum = s->m.least;
    all.maximum = s->m.most;
    all.exponent_least = s->exponent_least;
    all.exponents = s->exponents;
    all.exponent_counts = s->counts;
    struct_copy_out(statistics, &all, sizeof all);
    return 1;
}

int fsdpck_verify_get_tensor(const fsdpck_verify *v, uint64_t index, fsdpck_tensor *tensor)
{
    if (index >= statistics_count(v))
        return 0;
    fsdpck_get_tensor(v->src, index, tensor);
    return 1;
}

void fsdpck_verify_free(fsdpck_verify *v)
{
    if (v == NULL)
        return;
    manifest_check_free(v->manifest);
    free(v->files);
    check_result_release(&v->result);
    near_roles_free(v->near);
    fsdpck_close(v->src);
    findings_release(&v->found);
    findings_release(&v->downgraded);
    free(v);
}
