#include "run/tied_head.h"

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

fsdpck_status tied_head_compare(run *r, fsdpck_error *err)
{
    const select_result *selected = &r->selected;
    text_buf globs[2] = {{0}, {0}};
    bool differs = false;
    if (selected->omitted_head == CAT_NONE)
        return FSDPCK_OK;
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
