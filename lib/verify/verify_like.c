/* verify --like: names, shapes and dtypes of an output against those of a model folder, and its config.json
 * against its tensors. */
#include "verify/verify_like.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "open/model_embedding.h"
#include "run/like_output.h"
#include "run/like_ties.h"
#include "run/tied_head.h"
#include "verify/config_check.h"
#include "verify/like_files_lost.h"
#include "verify/like_types.h"
#include "verify/model_facts.h"
#include "verify/verify_near.h"

struct verify_like {
    fsdpck_context *ctx; /* its warnings are not findings of the output */
    fsdpck_checkpoint *base;
    like_output like;
    model_ties base_ties;
    /* During the check: */
    fsdpck_verify *v;
    vec ties;            /* tied_pair: copies that BASE lacks */
    model_config config; /* of the output */
    bool is_unread;      /* it has a config.json, but another kind of file */
};

fsdpck_status verify_like_open(verify_like **out, const fsdpck_verify_options *options,
                               fsdpck_error *err)
{
    fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
    open.dequantize = options->like_dequantize;
    *out = NULL;
    if (options->like == NULL)
        return FSDPCK_OK;
    verify_like *w = calloc(1, sizeof *w);
    if (w == NULL)
        return error_set_nomem(err, sizeof *w);
    w->ties = VEC_OF(tied_pair, NULL);
    w->ctx = fsdpck_context_new();
    fsdpck_status st = w->ctx == NULL ? error_set_nomem(err, sizeof *w->ctx) : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = fsdpck_open(w->ctx, options->like, &open, &w->base, err);
    if (st == FSDPCK_OK) {
        run_options o;
        run_options_init(&o);
        o.like = w->base;
        st = like_output_open(&w->like, &o, err);
        w->base_ties = w->like.config.ties;
    }
    if (st != FSDPCK_OK)
        verify_like_close(w);
    else
        *out = w;
    return st;
}

void verify_like_close(verify_like *w)
{
    if (w == NULL)
        return;
    vec_release(&w->ties);
    model_config_release(&w->config);
    like_output_release(&w->like);
    fsdpck_close(w->base);
    fsdpck_context_free(w->ctx);
    free(w);
}

/* --- names --- */

static const catalogue *output_of(const verify_like *w)
{
    return &w->v->src->cat;
}

static uint64_t count_listed(const catalogue *c)
{
    uint64_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        count += (catalogue_tensor(c, i)->flags & CAT_TENSOR_STORAGE) == 0;
    return count;
}

static fsdpck_status report_names(const verify_like *w, like_names *n, const catalogue *of,
                                  const char *what_text, const char *next, fsdpck_error *err)
{
    text_buf text = {0};
    if (n->count == 0)
        return FSDPCK_OK;
    like_names_put(n, what_text, &text);
    const fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK) {
        const uint64_t in_base = count_listed(&w->base->cat),
                       in_output = count_listed(output_of(w));
        fsdpck_error what;
        FAIL_WITH(&what, BADINPUT, EXPORT_KEYS, ("%s", text.text), (path, w->v->src->path),
                  (tensor, catalogue_name(of, catalogue_tensor(of, n->first)->name)),
                  (expected, "%" PRIu64 " tensor%s", in_base, text_plural(in_base)),
                  (found, "%" PRIu64 " tensor%s", in_output, text_plural(in_output)),
                  (next, "%s", next));
        findings_report(&w->v->found, &what);
        named_tensors_keep(w->v->src->ctx, &what, &n->all);
    }
    text_release(&text);
    return st;
}

static fsdpck_status check_names(const verify_like *w, fsdpck_error *err)
{
    static const char export_first[] =
        "export it first, with fsdpck consolidate --like or --map, and verify the output";
    const bool is_export = w->v->src->format->of_model;
    like_names missing = {.lists = LIKE_LISTS}, extra = {.lists = LIKE_LISTS};
    like_output_compare_names(&w->like, output_of(w), w->like.config.ties == MODEL_TIES_YES,
                              &w->ties, &missing, &extra);
    fsdpck_status st =
        report_names(w, &missing, &w->base->cat,
                     missing.count == 1 ? "tensor in the folder of --like is missing"
                                        : "tensors in the folder of --like are missing",
                     like_output_names_advice(
                         &w->like, output_of(w),
                         is_export ? "export again: a loader gives missing tensors random values"
                                   : export_first),
                     err);
    if (st == FSDPCK_OK)
        st = report_names(
            w, &extra, output_of(w),
            extra.count == 1 ? "tensor is not in the folder of --like"
                             : "tensors are not in the folder of --like",
            like_output_names_advice(&w->like, output_of(w),
                                     is_export ? "check that the folder of --like belongs to this "
                                                 "model, and how the export names tensors"
                                               : export_first),
            err);
    like_names_release(&missing);
    like_names_release(&extra);
    return st;
}

/* --- config.json --- */

/* resized: the number of rows is not that of BASE, so that its config.json does not help. is_of_base: config.json of BASE
 * has the same number. */
static void report_number(const verify_like *w, const model_facts *f, model_number number,
                          bool resized, bool is_of_base)
{
    static const char *const counted[MODEL_NUMBERS] = {
        [MODEL_VOCAB_SIZE] = "rows of the embedding",
        [MODEL_HIDDEN_SIZE] = "columns of the embedding",
        [MODEL_HIDDEN_LAYERS] = "layers",
    };
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
              ("'%s' of config.json contradicts the tensors", f->config->number_keys[number]),
              (path_in, w->v->src->path, "config.json"),
              (tensor, catalogue_name(f->cat, catalogue_tensor(f->cat, f->embedding)->name)),
              (expected, "%" PRIu64 ", the number of %s", f->numbers[number], counted[number]),
              (found, "%" PRIu64, f->config->numbers[number]));
    if (resized)
        error_next(&what,
                   "write \"%s\": %" PRIu64
                   " into config.json, or export again without rows of padding",
                   f->config->number_keys[number], f->numbers[number]);
    else if (is_of_base)
        error_next(&what, "the folder of --like states the same: check that the export is "
                          "complete, its tensor map, and that "
                          "the folder belongs to this model");
    findings_report(&w->v->found, &what);
}

/* A deviation that BASE has too is one of the model, such as layers that num_hidden_layers omits. */
static void check_numbers(const verify_like *w, const model_facts *ours, const model_facts *theirs)
{
    for (model_number i = 0; i < MODEL_NUMBERS; i++) {
        const uint64_t stated = ours->config->numbers[i], is = ours->numbers[i];
        if (stated != 0 && is != 0 && stated != is &&
            (stated != theirs->config->numbers[i] || is != theirs->numbers[i]))
            report_number(w, ours, i, i == MODEL_VOCAB_SIZE && is != theirs->numbers[i],
                          stated == theirs->config->numbers[i]);
    }
}

static void check_dtype(const verify_like *w, const model_facts *ours, const model_facts *theirs)
{
    const char *const name = ours->config->dtype;
    const dtype stated = dtype_from_name(name, strlen(name));
    fsdpck_error what;
    if (!like_output_is_castable(stated) || ours->usual == DTYPE_NONE || stated == ours->usual ||
        (ours->usual == theirs->usual && strcmp(name, theirs->config->dtype) == 0))
        return;
    FAIL_WITH(&what, BADINPUT, EXPORT_DTYPE, ("'dtype' of config.json contradicts the tensors"),
              (path_in, w->v->src->path, "config.json"),
              (expected, "%s, the dtype of most elements", dtype_get(ours->usual)->name),
              (found, "%s", name),
              (next, "write the dtype of the tensors into config.json, or export again"));
    findings_report_as(&w->v->found, FINDING_ERROR, &what);
}

/* Weights that are quantized in BASE only. */
static void check_quantization(const verify_like *w)
{
    const catalogue *base = &w->base->cat;
    fsdpck_error what;
    if (!w->config.is_quantized)
        return;
    for (size_t i = 0; i < catalogue_tensor_count(base); i++) {
        if (w->base->dequantized == 0 &&
            !like_output_is_dequantized(&w->like, output_of(w), (uint32_t)i))
            continue;
        FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
                  ("config.json has a 'quantization_config', but the tensors are not quantized"),
                  (path_in, w->v->src->path, "config.json"),
                  (tensor, catalogue_name(base, catalogue_tensor(base, i)->name)),
                  (next, "remove 'quantization_config' from config.json"));
        findings_report(&w->v->found, &what);
        return;
    }
}

static bool is_quantized_dtype(const catalogue *c, size_t tensor)
{
    const dtype d = (dtype)catalogue_tensor(c, tensor)->dtype;
    return dtype_get(d)->itemsize_bytes == 1 && d != DTYPE_BOOL;
}

static uint32_t find_quantized(const catalogue *c)
{
    for (uint32_t i = 0; i < catalogue_tensor_count(c); i++)
        if (is_quantized_dtype(c, i))
            return i;
    return CAT_NONE;
}

/* One of both folders has a quantization_config, and the tensors of SRC are as in BASE. */
static void check_quantization_kept(const verify_like *w)
{
    const uint32_t quantized = find_quantized(output_of(w));
    const bool is_stray =
                   w->config.is_quantized && !w->like.config.is_quantized && quantized == CAT_NONE,
               is_lost =
                   !w->config.is_quantized && w->like.config.is_quantized && quantized != CAT_NONE;
    fsdpck_error what;
    if (w->config.text == NULL || w->like.config.text == NULL || (!is_stray && !is_lost))
        return;
    FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
              ("config.json %s 'quantization_config', but the tensors are %squantized",
               is_stray ? "has a" : "has no", is_stray ? "not " : ""),
              (path_in, w->v->src->path, "config.json"),
              (next, is_stray ? "remove 'quantization_config' from config.json"
                              : "copy 'quantization_config' from config.json of the folder of "
                                "--like"));
    if (is_lost)
        error_tensor(&what,
                     catalogue_name(output_of(w), catalogue_tensor(output_of(w), quantized)->name));
    findings_report(&w->v->found, &what);
}

/* BASE has none because it is tied. A loader of SRC would create one with random values. */
static void check_head(const verify_like *w, const model_facts *ours, const model_facts *theirs)
{
    const char *const type = w->config.ties_by_default ? w->config.model_type : "";
    fsdpck_error what;
    if (w->config.ties != MODEL_TIES_NO || w->base_ties != MODEL_TIES_YES ||
        ours->head != CAT_NONE || theirs->head != CAT_NONE)
        return;
    FAIL_WITH(
        &what, BADINPUT, EXPORT_CONFIG,
        ("config.json %s, but there is no output projection: a loader gives it random values",
         type[0] == '\0' ? "has \"tie_word_embeddings\": false" : "lacks \"tie_word_embeddings\""),
        (path_in, w->v->src->path, "config.json"),
        (expected, "\"tie_word_embeddings\": true, as in the folder of --like"),
        (found, "%s%s", type[0] == '\0' ? "false" : "false, the default for model_type ", type),
        (next, "write \"tie_word_embeddings\": true into config.json, or export the output "
               "projection too"));
    findings_report(&w->v->found, &what);
}

static void check_config(const verify_like *w, const model_facts *ours, const model_facts *theirs)
{
    fsdpck_error what;
    if (w->config.text == NULL && w->like.config.text != NULL && !w->is_unread) {
        FAIL_WITH(&what, BADINPUT, EXPORT_CONFIG,
                  ("folder has no config.json, but the folder of --like has one"),
                  (path, w->v->src->path),
                  (next, "copy config.json from the folder of --like, and adapt its dtype"));
        findings_report(&w->v->found, &what);
    }
    check_numbers(w, ours, theirs);
    check_head(w, ours, theirs);
    check_dtype(w, ours, theirs);
    check_quantization(w);
    check_quantization_kept(w);
}

/* An unreadable config.json is a finding, and reads as one without members. Links are not followed, though
 * loaders do. */
static fsdpck_status read_config(verify_like *w, fsdpck_error *err)
{
    const probe_input *in = &w->v->src->probe;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (!in->is_folder)
        return FSDPCK_OK;
    const fsdpck_status st = model_config_read(&in->dir, &w->config, &what);
    if (st == FSDPCK_BADINPUT) {
        w->is_unread = what.finding == FSDPCK_FINDING_FILE_TYPE;
        error_next(&what, w->is_unread
                              ? "replace it with a regular file: config.json was not compared"
                              : "restore config.json: a loader cannot make the model without it");
        findings_report_as(&w->v->found, w->is_unread ? FINDING_WARNING : FINDING_ERROR, &what);
    } else if (st != FSDPCK_OK && err != NULL)
        *err = what;
    return st == FSDPCK_BADINPUT ? FSDPCK_OK : st;
}

/* A loader reads the output's config.json. That of BASE must not contradict it, so that no head is
 * lost. */
static model_ties ties_of(const verify_like *w)
{
    if (w->config.ties == MODEL_TIES_YES && w->base_ties == MODEL_TIES_NO)
        return MODEL_TIES_NO;
    return w->config.ties == MODEL_TIES_UNKNOWN ? w->base_ties : w->config.ties;
}

/* --- a tied output projection that is there --- */

static fsdpck_status check_tie(const verify_like *w, const model_facts *ours, fsdpck_error *err)
{
    text_buf names[2] = {{0}, {0}};
    bool differs = false;
    run_options o;
    const model_config *config = w->config.text == NULL ? &w->like.config : &w->config;
    if (w->v->level < CHECK_COVERAGE || w->v->found.counts[FINDING_ERROR] > 0 ||
        ours->head == CAT_NONE || !ours->is_certain || config->ties != MODEL_TIES_YES ||
        !model_embedding_may_be_tied(ours->cat, config, ours->embedding))
        return FSDPCK_OK;
    run_options_init(&o);
    const fsdpck_status st =
        tied_head_differs(w->v->src, &o, ours->head, ours->embedding, names, &differs, err);
    if (st == FSDPCK_OK && differs) {
        fsdpck_error what;
        FAIL_WITH(
            &what, BADINPUT, TIE_DIFFERS,
            ("'%s' and '%s' are tied by config.json but differ", names[0].text, names[1].text),
            (path, w->v->src->path), (tensor, names[0].text),
            (next, "determine which is right, and omit the output projection or write "
                   "\"tie_word_embeddings\": false into config.json"));
        findings_report(&w->v->found, &what);
    }
    text_release(&names[0]);
    text_release(&names[1]);
    return st;
}

/* A loader ties them again. Their bytes are read, so only from level coverage on. */
static fsdpck_status find_ties(verify_like *w, fsdpck_error *err)
{
    run_options o;
    if (w->v->level < CHECK_COVERAGE || w->v->found.counts[FINDING_ERROR] > 0)
        return FSDPCK_OK;
    run_options_init(&o);
    return like_ties_find(w->v->src, &o, &w->like, output_of(w), NULL, &w->ties, err);
}

fsdpck_status verify_like_check(verify_like *w, fsdpck_verify *v, fsdpck_error *err)
{
    if (w == NULL)
        return FSDPCK_OK;
    if (checkpoint_is_adapter_folder(v->src))
        return verify_adapter_like(v, w->base, err);
    w->v = v;
    const uint64_t errors = v->found.counts[FINDING_ERROR];
    fsdpck_status st = read_config(w, err);
    const model_facts theirs = model_facts_of(&w->base->cat, &w->like.config, NULL);
    const model_facts ours = model_facts_of(output_of(w), &w->config, &theirs);
    if (st == FSDPCK_OK)
        st = group_agree(v->src->ctx->group, check_tie(w, &ours, err), err);
    w->like.config.ties = ties_of(w);
    if (st == FSDPCK_OK)
        st = group_agree(v->src->ctx->group, find_ties(w, err), err);
    if (st == FSDPCK_OK)
        st = check_names(w, err);
    if (st == FSDPCK_OK)
        st = like_types_check(v, &w->like, &ours, &theirs, err);
    if (st == FSDPCK_OK) {
        check_config(w, &ours, &theirs);
        st = config_check(v, &w->config, w->base, &w->like.config, err);
    }
    if (st == FSDPCK_OK)
        st = like_files_lost_check(v, &w->like, err);
    if (st == FSDPCK_OK)
        st = verify_near_check(v, w->base, errors, err);
    return st;
}
