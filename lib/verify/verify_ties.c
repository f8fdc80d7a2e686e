/* verify_ties.c: an output projection that the model's config.json ties to the embedding, and that differs from it. */
#include "open/model_embedding.h"
#include "open/model_view.h"
#include "run/tied_head.h"
#include "verify/verify_internal.h"

/* What a loader makes of one that cannot be read is not known. */
static fsdpck_status find_pair(const fsdpck_verify *v, bool *is_found, uint32_t *head,
                               uint32_t *embedding, fsdpck_error *err)
{
    model_view view;
    *is_found = false;
    if (v->like != NULL || v->level < CHECK_COVERAGE || v->found.counts[FINDING_ERROR] > 0)
        return FSDPCK_OK;
    RETURN_IF(model_view_open(&view, v->src, err));
    if (view.config.text != NULL)
        *is_found = model_embedding_find_tied(&view.cat, &view.config, head, embedding);
    if (*is_found) {
        *head = model_view_tensor(&view, *head);
        *embedding = model_view_tensor(&view, *embedding);
    }
    model_view_release(&view);
    return FSDPCK_OK;
}

static void report(fsdpck_verify *v, const text_buf names[2])
{
    fsdpck_error what;
    FAIL_WITH(
        &what, BADINPUT, TIE_DIFFERS,
        ("config.json ties '%s' and '%s', but they differ: a loader may use the second for both",
         names[0].text, names[1].text),
        (path, v->src->path), (tensor, names[0].text),
        (next, "determine which is right: for a model that is not tied, write "
               "\"tie_word_embeddings\": false into config.json; otherwise, omit the output "
               "projection: fsdpck consolidate --exclude"));
    findings_report_as(&v->found, FINDING_WARNING, &what);
}

/* Rank 0 decides for all: its findings are those of the result. */
fsdpck_status verify_ties(fsdpck_verify *v, fsdpck_error *err)
{
    struct {
        uint32_t head, embedding;
        bool is_found;
    } pair = {0};
    group *g = v->src->ctx->group;
    run_options o;
    text_buf names[2] = {{0}, {0}};
    bool differs = false;
    fsdpck_status st = FSDPCK_OK;
    if (group_rank(g) == 0)
        st = find_pair(v, &pair.is_found, &pair.head, &pair.embedding, err);
    RETURN_IF(group_agree(g, st, err));
    RETURN_IF(group_broadcast(g, 0, &pair, sizeof pair, err));
    if (!pair.is_found)
        return FSDPCK_OK;
    run_options_init(&o);
    o.work.threads = v->options.threads;
    o.work.memory_nbytes = v->options.memory_nbytes;
    st = tied_head_check(v->src, &o, pair.head, pair.embedding,
                         v->level >= CHECK_CHECKSUM && !verify_is_partial(v), names, &differs, err);
    if (st == FSDPCK_OK && differs)
        report(v, names);
    text_release(&names[0]);
    text_release(&names[1]);
    return st;
}
