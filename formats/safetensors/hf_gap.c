#include "formats/safetensors/hf_gap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "formats/safetensors/hf_shadow.h"
#include "formats/safetensors/shard_name.h"

/* Each suspect name is compared with all others. */
enum { NAME_NBYTES_MAX = 512, DIGITS_MOST = 9, SUSPECTS_MOST = 1000 };

/* A number in a name. */
typedef struct number_place {
    size_t at, nbytes;
    uint32_t number;
} number_place;

static bool find_number(const char *name, size_t from, number_place *p)
{
    *p = (number_place){.at = from + strcspn(name + from, "0123456789")};
    p->nbytes = strspn(name + p->at, "0123456789");
    for (size_t i = 0; i < p->nbytes && i < DIGITS_MOST; i++)
        p->number = p->number * 10 + (uint32_t)(name[p->at + i] - '0');
    return p->nbytes > 0;
}

static bool has_name_before(const probe_input *in, const char *name, const number_place *p,
                            char *before)
{
    for (int width = (int)p->nbytes; width > 0; width = width > 1 ? 1 : 0) {
        const int n = snprintf(before, NAME_NBYTES_MAX, "%.*s%0*" PRIu32 "%s", (int)p->at, name,
                               width, p->number - 1, name + p->at + p->nbytes);
        if (n < 0 || n >= NAME_NBYTES_MAX || probe_has_entry(in, before))
            return true;
        if (name[p->at] == '0')
            break;
    }
    return false;
}

/* Another name that differs in this number alone. */
static const char *find_sibling(const char *const *names, size_t count, const char *name,
                                const number_place *p)
{
    for (size_t i = 0; i < count; i++) {
        const char *other = names[i];
        if (other == name || strncmp(other, name, p->at) != 0)
            continue;
        const size_t digits = strspn(other + p->at, "0123456789");
        if (digits > 0 && strcmp(other + p->at + digits, name + p->at + p->nbytes) == 0)
            return other;
    }
    return NULL;
}

void hf_gap_warn(const open_request *req, const char *const *names, size_t count)
{
    size_t suspects = 0;
    for (size_t i = 0; i < count; i++) {
        shard_name stated;
        number_place p;
        if (shard_name_parse(names[i], &stated))
            continue;
        for (size_t at = 0; find_number(names[i], at, &p); at = p.at + p.nbytes) {
            char before[NAME_NBYTES_MAX];
            if (p.number < 2 || p.nbytes > DIGITS_MOST ||
                has_name_before(req->probe, names[i], &p, before))
                continue;
            if (suspects++ == SUSPECTS_MOST)
                return;
            const char *sibling = find_sibling(names, count, names[i], &p);
            if (sibling == NULL)
                continue;
            log_warn(&req->log, FSDPCK_FINDING_FILE_OF_SET,
                     "copy the missing file if there was one; otherwise ignore this warning",
                     "a file may be missing: the folder has '%s' and '%s', but not '%s'", sibling,
                     names[i], before);
            return;
        }
    }
}

static bool is_new_rank(const char *const *names, size_t count, uint32_t rank)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t other;
        if (shard_name_has_rank(names[i], &other) && other == rank)
            return false;
    }
    return true;
}

void hf_gap_warn_ranks(const open_request *req, const char *const *names, size_t count)
{
    static const char *const next = "compare the file names with those where the files were saved: "
                                    "the files of one rank may hold "
                                    "parts of tensors";
    const char *first = NULL;
    uint64_t ranks = 0;
    for (size_t i = 0; i < count && i < SUSPECTS_MOST; i++) {
        uint32_t rank;
        if (!shard_name_has_rank(names[i], &rank))
            continue;
        first = first == NULL ? names[i] : first;
        ranks += is_new_rank(names, i, rank);
    }
    if (ranks == 1)
        log_warn(&req->log, FSDPCK_FINDING_FILE_OF_SET, next,
                 "the folder has files of one rank only, such as '%s'", first);
    else if (ranks > 1)
        log_warn(&req->log, FSDPCK_FINDING_RANKS_UNKNOWN, next,
                 "%" PRIu64 " ranks found, as in '%s'; these files cannot show whether a last rank "
                 "is missing",
                 ranks, first);
}

void hf_gap_note_joined(const open_request *req, const char *const *names, size_t count)
{
    text_buf list = {.limit_bytes = 200};
    for (size_t i = 0; i < count; i++) {
        number_place p;
        if (find_number(names[i], 0, &p)) {
            text_release(&list);
            return;
        }
        text_printf(&list, "%s'%s'", i == 0 ? "" : ", ", names[i]);
    }
    if (count > 1)
        log_write(
            &req->log, LOG_NOTE,
            "no index: reading %zu files as one model: %s%s; if they are several models, give "
            "one of the files",
            count, list.text == NULL ? "?" : list.text, list.failed ? ", ..." : "");
    text_release(&list);
}

void hf_gap_warn_sets(const open_request *req, const char *one, const char *other)
{
    log_warn(&req->log, FSDPCK_FINDING_RANK_MIXED,
             "if they are several models, move the files of each to a folder of its own",
             "no index: numbered files of several sets are read as one model, such as '%s' and "
             "'%s'",
             one, other);
}

/* transformers, diffusers, torchtune */
static bool is_of_trainer(const char *name)
{
    static const char *const prefixes[] = {"model", "diffusion_pytorch_model", "ft-model"};
    bool is = false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        is = is ||
             (text_begins(name, prefixes[i]) && strchr(".-", name[strlen(prefixes[i])]) != NULL);
    return is;
}

void hf_gap_report_index(const open_request *req, const char *const *names, size_t count)
{
    shard_name stated;
    char index[NAME_NBYTES_MAX];
    if (count < 2 || !shard_name_parse(names[0], &stated) || stated.file_count != count ||
        !probe_has_entry(req->probe, "config.json") || !is_of_trainer(names[0]) ||
        !shard_name_index(names[0], index, sizeof index))
        return;
    format_report(req->found, req->found_ctx, FORMAT_WARNING, FSDPCK_FINDING_IDX_NONE, req->path,
                  index,
                  text_begins(names[0], "diffusion")
                      ? "index is missing: diffusers cannot load the numbered files without it"
                      : "index is missing: transformers cannot load the numbered files without it");
}
