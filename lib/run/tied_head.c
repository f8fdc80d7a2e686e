#include "run/tied_head.h"

#include <string.h>

#include "open/model_embedding.h"
#include "run/digest_run.h"
#include "run/tensor_glob.h"

static fsdpck_status compare(fsdpck_checkpoint *src, const run_options *options,
                             const char *const *globs, bool *differs, fsdpck_error *err)
{
    fsdpck_digests d = {0};
    run_options o;
    run_options_init(&o);
    o.work = options->work;
    o.select.part = FSDPCK_PART_MODEL;
    o.select.clean_names = FSDPCK_ON;
    o.select.keys = globs;
    o.select.keys_count = 2;
    o.select.replicas = options->select.replicas;
    const fsdpck_status st = digest_run(&d, src->ctx, src, &o, false, err);
    *differs =
        st == FSDPCK_OK && (d.rows.count != 2 || d.rows.rows[0].digest != d.rows.rows[1].digest);
    digest_run_release(&d);
    return st;
}

fsdpck_status tied_head_differs(fsdpck_checkpoint *src, const run_options *options, uint32_t head,
                                uint32_t embedding, text_buf globs[2], bool *differs,
                                fsdpck_error *err)
{
    fsdpck_status st = tensor_glob_make(src, head, &globs[0], err);
    if (st == FSDPCK_OK)
        st = tensor_glob_make(src, embedding, &globs[1], err);
    st = group_agree(src->ctx->group, st, err);
    if (st == FSDPCK_OK)
        st = compare(src, options, (const char *const[]){globs[0].text, globs[1].text}, differs,
                     err);
    return st;
}

/* The output has both, and the config.json of --like, which ties them. The tensors are those of the source; false:
 * none, or their dtypes differ. */
static bool find_written(const run *r, uint32_t *head, uint32_t *embedding)
{
    const like_output *l = &r->like;
    const catalogue *c = &r->to.cat;
    bool is_certain;
    if (l->base == NULL || l->config.ties != MODEL_TIES_YES)
        return false;
    const uint32_t e = model_embedding_find(&l->base->cat, &l->config, &is_certain);
    if (e == CAT_NONE || !is_certain || !model_embedding_may_be_tied(&l->base->cat, &l->config, e))
        return false;
    const uint32_t name = catalogue_tensor(&l->base->cat, e)->name;
    const uint32_t at = catalogue_find(c, catalogue_name(&l->base->cat, name),
                                       catalogue_name_nbytes(&l->base->cat, name));
    *head = *embedding = CAT_NONE;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        if (model_is_head(c, i))
            *head = *VEC_AT(&r->to.from, const uint32_t, i);
    if (at != CAT_NONE)
        *embedding = *VEC_AT(&r->to.from, const uint32_t, at);
    return *head != CAT_NONE && *embedding != CAT_NONE && *head != *embedding &&
           catalogue_tensor(&r->src->cat, *head)->dtype ==
               catalogue_tensor(&r->src->cat, *embedding)->dtype;
}

/* --- the config.json of the output --- */

static bool is_one_storage(const catalogue *c, uint32_t a, uint32_t b)
{
    const uint32_t alias = catalogue_tensor(c, a)->alias;
    return a == b || (alias != CAT_NONE && alias == catalogue_tensor(c, b)->alias);
}

fsdpck_status tied_head_check(fsdpck_checkpoint *src, const run_options *options, uint32_t head,
                              uint32_t embedding, bool reads, text_buf globs[2], bool *differs,
                              fsdpck_error *err)
{
    const catalogue *c = &src->cat;
    const cat_tensor *h = catalogue_tensor(c, head), *e = catalogue_tensor(c, embedding);
    *differs = false;
    if (!like_output_is_castable((dtype)h->dtype) || !like_output_is_castable((dtype)e->dtype) ||
        is_one_storage(c, head, embedding))
        return FSDPCK_OK;
    *differs = h->dtype != e->dtype || !shape_equal(catalogue_shape(c, head), h->ndim,
                                                    catalogue_shape(c, embedding), e->ndim);
    if (!*differs)
        return reads ? tied_head_differs(src, options, head, embedding, globs, differs, err)
                     : FSDPCK_OK;
    RETURN_IF(tensor_glob_make(src, head, &globs[0], err));
    return tensor_glob_make(src, embedding, &globs[1], err);
}

/* Without one, `config` is empty. */
static fsdpck_status read_config(const sidecars *s, model_config *config, fsdpck_error *err)
{
    static const char name[] = "config.json";
    *config = (model_config){0};
    for (size_t i = 0; i < s->files.count; i++) {
        const sidecar *f = VEC_AT(&s->files, const sidecar, i);
        if (!f->copied || strcmp(sidecars_output(s, f), name) != 0)
            continue;
        return f->text == NULL ? model_config_read(&s->dir, config, err)
                               : model_config_read_text(f->text, f->nbytes, config, err);
    }
    return FSDPCK_OK;
}

/* The tensors are those of the source. A damaged config.json is copied as it is. */
static bool find_of_output(const run *r, uint32_t *head, uint32_t *embedding)
{
    model_config config = {0};
    const vec *from = &r->to.from;
    bool is_there = r->writer->of_model && !r->sharded && r->like.base == NULL &&
                    read_config(&r->side, &config, NULL) == FSDPCK_OK &&
                    model_embedding_find_tied(&r->to.cat, &config, head, embedding);
    model_config_release(&config);
    if (is_there) {
        *head = *VEC_AT(from, const uint32_t, *head);
        *embedding = *VEC_AT(from, const uint32_t, *embedding);
        is_there = *head != CAT_NONE && *embedding != CAT_NONE;
    }
    return is_there;
}

static fsdpck_status compare_of_output(run *r, fsdpck_error *err)
{
    text_buf names[2] = {{0}, {0}};
    uint32_t head, embedding;
    bool differs;
    if (!find_of_output(r, &head, &embedding))
        return FSDPCK_OK;
    const fsdpck_status st =
        tied_head_check(r->src, &r->opt, head, embedding, true, names, &differs, err);
    if (st == FSDPCK_OK && differs)
        log_warn(&r->ctx->log, FSDPCK_FINDING_TIE_DIFFERS,
                 "determine which is right: for a model that is not tied, write "
                 "\"tie_word_embeddings\": false into config.json of the output; otherwise, omit "
                 "the output projection with --exclude",
                 "config.json of the output ties '%s' and '%s', but they differ: a loader may use "
                 "the second for both",
                 names[0].text, names[1].text);
    text_release(&names[0]);
    text_release(&names[1]);
    return st;
}

/* --- the config.json of --like --- */

/* No tensor is lost: the user may say that the model is not tied. */
static fsdpck_status compare_written(run *r, fsdpck_error *err)
{
    text_buf names[2] = {{0}, {0}};
    uint32_t head, embedding;
    bool differs;
    if (!find_written(r, &head, &embedding))
        return compare_of_output(r, err);
    const fsdpck_status st =
        tied_head_differs(r->src, &r->opt, head, embedding, names, &differs, err);
    if (st == FSDPCK_OK && differs)
        log_warn(&r->ctx->log, FSDPCK_FINDING_TIE_DIFFERS,
                 "determine which is right: for a model that is not tied, write "
                 "\"tie_word_embeddings\": false into config.json of the folder of --like and run "
                 "this again; otherwise, omit the output projection with --exclude",
                 "'%s' and '%s' are tied in the folder of --like but differ: a loader uses the "
                 "second for both",
                 names[0].text, names[1].text);
    text_release(&names[0]);
    text_release(&names[1]);
    return st;
}

fsdpck_status tied_head_compare(run *r, fsdpck_error *err)
{
    const select_result *selected = &r->selected;
    text_buf globs[2] = {{0}, {0}};
    bool differs = false;
    if (selected->omitted_head == CAT_NONE)
        return compare_written(r, err);
    fsdpck_status st = tied_head_differs(r->src, &r->opt, selected->omitted_head,
                                         selected->head_embedding, globs, &differs, err);
    if (st == FSDPCK_OK && differs)
        st = FAIL_WITH(err, BADINPUT, TIE_DIFFERS,
                       ("'%s' and '%s' are tied in the folder of --like but differ", globs[0].text,
                        globs[1].text),
                       (path, r->src->path),
                       (next,
                        "determine which is right: for a model that is not tied, write "
                        "\"tie_word_embeddings\": false into config.json of the folder of --like; "
                        "otherwise, --exclude '%s' omits it without a comparison",
                        globs[0].text));
    text_release(&globs[0]);
    text_release(&globs[1]);
    return st;
}
