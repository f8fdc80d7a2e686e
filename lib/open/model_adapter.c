#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "open/checkpoint.h"
#include "state/tensor_rank_suffix.h"
#include "statedict/rekey.h"

/* A description of a million modules takes some 200 MB. */
#define MODEL_FILE_NBYTES_MAX (UINT64_C(4) << 30)

/* --- the order in which an optimizer counts --- */

static fsdpck_status put_order(vec *order, const model *m, const model_param *p, uint32_t what,
                               fsdpck_error *err)
{
    flat_order *o = vec_push(order, err);
    if (o == NULL)
        return FSDPCK_LIMIT;
    *o = (flat_order){.target = what, .requires_grad = p->requires_grad};
    o->fqn = model_name(m, p->name, &o->nbytes);
    return FSDPCK_OK;
}

/* A flat parameter comes after its module's other own parameters. */
static fsdpck_status put_unit(vec *order, const model *m, const unit_list *units,
                              const model_module *module, fsdpck_error *err)
{
    size_t nbytes;
    const char *path = model_state_path(m, module, &nbytes);
    const unit *u = unit_list_find(units, path, nbytes);
    if (u == NULL || module->same_as != MODEL_NONE)
        return FSDPCK_OK;
    const char *fqn = unit_name(units, unit_param_at(units, u, 0)->fqn, &nbytes);
    const uint32_t first = model_find_param(m, fqn, nbytes);
    if (first == MODEL_NONE)
        return FSDPCK_OK;
    return put_order(order, m, model_param_at(m, first), (uint32_t)(u - unit_at(units, 0)), err);
}

/* In the order of model.parameters(): a module's own, then those of the modules below it. */
static fsdpck_status find_order(const model *m, const unit_list *units, vec *order,
                                fsdpck_error *err)
{
    const bool orig = unit_count(units) > 0 && unit_at(units, 0)->use_orig_params;
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        for (uint32_t k = module->first_param; k < module->first_param + module->nparams; k++) {
            const model_param *p = model_param_at(m, k);
            size_t nbytes;
            const char *fqn = model_name(m, p->name, &nbytes);
            if (p->same_as != MODEL_NONE)
                continue;
            const unit_param *up = unit_list_find_param(units, fqn, nbytes, NULL);
            const unit_param *first = up == NULL ? NULL : VEC_AT(&units->params, unit_param, 0);
            if (up == NULL || orig)
                RETURN_IF(
                    put_order(order, m, p, up == NULL ? CAT_NONE : (uint32_t)(up - first), err));
        }
        if (!orig)
            RETURN_IF(put_unit(order, m, units, module, err));
    }
    return FSDPCK_OK;
}

/* For a writer of FSDP1's rank files, which numbers the parameters. */
static fsdpck_status keep_order(fsdpck_checkpoint *c, const model *m, fsdpck_error *err)
{
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        for (uint32_t k = module->first_param; k < module->first_param + module->nparams; k++) {
            const model_param *p = model_param_at(m, k);
            size_t nbytes;
            uint32_t id;
            const char *fqn = model_name(m, p->name, &nbytes);
            if (p->same_as == MODEL_NONE)
                RETURN_IF(strtab_intern(&c->param_order, fqn, nbytes, &id, err));
        }
    }
    return optim_groups_copy(&m->optimizers, &c->optimizers, err);
}

/* --- the adapter --- */

static fsdpck_status read_model(fsdpck_checkpoint *c, const char *path, model *m, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;

    if (path[0] == '\0')
        return FAIL(err, USAGE, NONE, "--model has an empty file name");
    path_kind kind;
    if (path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_ABSENT)
        return FAIL_WITH(
            err, IO, NONE, ("--model: no such file"), (path, path), (sys_errno, ENOENT),
            (next, "create it with scripts/describe_model.py where the model is: fsdpck-model(5)"));
    RETURN_IF(file_read_whole(NULL, path, MODEL_FILE_NBYTES_MAX, &text, &nbytes, err));
    fsdpck_status st = model_read(m, text, nbytes, err);
    /* The files determine the number of ranks: flat_adapter_rescale. */
    const model_ranks ranks = {.guess = m->world_size > 1 ? m->world_size : 2};
    if (st == FSDPCK_OK)
        st = model_find_units(m, &ranks, &c->units, err);
    free(text);
    return st;
}

fsdpck_status described_model_read(fsdpck_checkpoint *c, const char *path, described_model *d,
                                   fsdpck_error *err)
{
    *d = (described_model){.path = path};
    model_init(&d->m, &c->metadata);
    fsdpck_status st = read_model(c, path, &d->m, err);
    if (st == FSDPCK_OK)
        st = description_match_init(&d->match, &d->m, &c->units, err);
    if (st != FSDPCK_OK) {
        error_path(err, path);
        described_model_release(d);
    }
    return st;
}

void described_model_release(described_model *d)
{
    if (d->path == NULL)
        return;
    description_match_release(&d->match);
    model_release(&d->m);
    d->path = NULL;
}

/* Notes of the description's match with the names in the checkpoint. */
static fsdpck_status find_ties(fsdpck_checkpoint *c, described_model *d, vec *ties,
                               fsdpck_error *err)
{
    checkpoint_parts parts = {0};
    fsdpck_status st = checkpoint_parts_find(&c->read, &parts, err);
    if (st == FSDPCK_OK)
        st = description_match_set(&d->match, &c->read, parts.tensor_part, err);
    if (st == FSDPCK_OK)
        st = description_match_ties(&d->match, ties, err);
    checkpoint_parts_release(&parts);
    return st;
}

static void log_ties(const fsdpck_checkpoint *c, const vec *ties)
{
    const logger *log = &c->ctx->log;
    for (size_t i = 0; i < ties->count; i++) {
        const description_tie *t = VEC_AT(ties, const description_tie, i);
        if (t->twin == CAT_NONE)
            log_write(log, LOG_NOTE,
                      "'%s' is not in the checkpoint; it is filled from '%s', its tied tensor in "
                      "the model",
                      t->fqn, t->first_fqn);
    }
    const uint64_t uncompared = flat_adapter_ties_uncompared(c->adapter);
    if (uncompared > 0)
        log_warn(log, FSDPCK_FINDING_TIE_UNCOMPARED,
                 "compare the digests of both names: fsdpck digest",
                 "%" PRIu64
                 " tied tensor%s %s sharded differently under the other name, and not compared",
                 uncompared, uncompared == 1 ? "" : "s", uncompared == 1 ? "is" : "are");
}

void checkpoint_log_dropped(const fsdpck_checkpoint *c)
{
    const uint64_t count = flat_adapter_dropped(c->adapter);
    if (count > 0)
        log_write(&c->ctx->log, LOG_NOTE,
                  "tensors omitted because they differ between ranks: %" PRIu64, count);
}

static void log_local(const fsdpck_checkpoint *c, const description_match *a)
{
    uint64_t count = 0;
    const char *first = NULL;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        const char *name = catalogue_name(&c->cat, t->name);
        if (!(t->flags & CAT_TENSOR_OF_RANK) ||
            !description_is_local(a, name, name_without_rank(name, strlen(name))))
            continue;
        first = count++ == 0 ? name : first;
    }
    if (count > 0)
        log_write(&c->ctx->log, LOG_NOTE,
                  "rank-local tensors (local_group): %" PRIu64
                  ", kept separately as '%s' and so on",
                  count, first);
}

/* Lists of parameters in param_groups, which a reader may load later. */
static fsdpck_status load_groups(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (uint32_t i = 0; unit_count(&c->units) > 0 && i < catalogue_object_count(&c->read); i++)
        if (!catalogue_object(&c->read, i)->loaded &&
            rekey_needs_object(&c->read, i, OPTIM_KEYS_NAME))
            RETURN_IF(c->format->load_object(c->self, &c->read, i, err));
    return FSDPCK_OK;
}

fsdpck_status model_adapter_apply(fsdpck_checkpoint *c, described_model *d,
                                  per_rank_policy per_rank, bool assume_order, fsdpck_error *err)
{
    flat_adapter_options options = {
        .ranks = per_rank, .assume_order = assume_order, .match = &d->match};
    vec order = VEC_OF(flat_order, &c->metadata), ties = VEC_OF(description_tie, &c->metadata);
    fsdpck_status st = flat_adapter_rescale(&c->read, d->m.world_size, &c->units, err);

    if (st == FSDPCK_OK)
        st = load_groups(c, err);
    if (st == FSDPCK_OK && !d->m.lists_units)
        st = find_order(&d->m, &c->units, &order, err);
    if (st == FSDPCK_OK)
        st = keep_order(c, &d->m, err);
    if (st == FSDPCK_OK)
        st = find_ties(c, d, &ties, err);
    if (st == FSDPCK_OK) {
        options.order = order.items;
        options.order_count = (uint32_t)order.count;
        options.groups = d->m.optimizers.lists.count > 0 ? &d->m.optimizers : NULL;
        options.ties = ties.items;
        options.tie_count = ties.count;
        st = flat_adapter_new(&c->read, &c->read_src, &c->units, &options, &c->cat, &c->adapter,
                              err);
    }
    d->match.drops = per_rank == PER_RANK_DROP;
    if (st == FSDPCK_OK) {
        log_ties(c, &ties);
        checkpoint_log_dropped(c);
        log_local(c, &d->match);
    }
    VEC_RELEASE_ALL(&order, &ties);
    if (st != FSDPCK_OK) {
        error_path(err, d->path);
        return st;
    }
    c->src = *flat_adapter_source(c->adapter);
    return FSDPCK_OK;
}

/* --- the model and the checkpoint --- */

static fsdpck_status note_ties(fsdpck_checkpoint *c, const description_match *a, fsdpck_error *err)
{
    vec ties = VEC_OF(description_tie, &c->metadata);
    fsdpck_status st = description_match_ties(a, &ties, err);
    for (size_t i = 0; st == FSDPCK_OK && i < ties.count; i++) {
        const description_tie *t = VEC_AT(&ties, const description_tie, i);
        tied_pair *kept = t->twin == CAT_NONE ? NULL : vec_push(&c->ties, err);
        if (kept != NULL)
            *kept = (tied_pair){t->first, t->twin};
        else if (t->twin != CAT_NONE)
            st = FSDPCK_LIMIT;
    }
    vec_release(&ties);
    return st;
}

static void log_notes(const fsdpck_checkpoint *c, const description_notes *n)
{
    const logger *log = &c->ctx->log;
    if (n->casts > 0) {
        const cat_tensor *t = catalogue_tensor(&c->cat, n->first_cast);
        log_write(log, LOG_NOTE,
                  "tensors whose floating-point dtype differs from the model's: %" PRIu64
                  "; first: '%s', %s instead of %s",
                  n->casts, catalogue_name(&c->cat, t->name), dtype_get((dtype)t->dtype)->name,
                  dtype_get((dtype)n->wanted)->name);
    }
    if (n->unfound > 0)
        log_warn(
            log, FSDPCK_FINDING_MODEL_OVERRIDE,
            "compare 'override' of the model description with the names in the checkpoint",
            "the checkpoint lacks parameters and buffers whose names 'override' changes: %" PRIu64
            "; first: '%s'",
            n->unfound, n->first_unfound);
}

fsdpck_status model_adapter_check(fsdpck_checkpoint *c, described_model *d, fsdpck_error *err)
{
    description_notes notes;
    fsdpck_status st = description_match_set(&d->match, &c->cat, c->parts.tensor_part, err);
    if (st == FSDPCK_OK)
        st = description_match_check(&d->match, &notes, err);
    if (st == FSDPCK_OK)
        st = note_ties(c, &d->match, err);
    if (st != FSDPCK_OK) {
        error_path(err, d->path);
        return st;
    }
    log_notes(c, &notes);
    return FSDPCK_OK;
}

fsdpck_status checkpoint_load_object(fsdpck_checkpoint *c, uint32_t object, fsdpck_error *err)
{
    if (c->average != NULL) { /* copies of those that can be read are loaded */
        RETURN_IF(checkpoint_load_object(c->base, object, err));
        return FAIL(err, INTERNAL, NONE, "object was not loaded");
    }
    if (c->adapter == NULL)
        return c->format->load_object(c->self, &c->cat, object, err);
    const uint32_t origin = flat_adapter_object_origin(c->adapter, object);
    if (!catalogue_object(&c->read, origin)->loaded)
        RETURN_IF(c->format->load_object(c->self, &c->read, origin, err));
    return flat_adapter_load_object(c->adapter, object, err);
}

void checkpoint_note_flat(fsdpck_checkpoint *c)
{
    char *note = c->cat.origin.note;
    const uint64_t count = flat_params_count(&c->cat, NULL);
    const size_t capacity = sizeof c->cat.origin.note;
    if (count > 0)
        snprintf(
            note, capacity,
            "%" PRIu64
            " FSDP1 flat parameter%s: to split into the original parameters, give --model FILE: "
            "fsdpck-model(5)",
            count, count == 1 ? "" : "s");
    else if (flat_params_namesakes(&c->cat) > 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_MODEL_NEEDED,
                 "give --model FILE if FSDP made it: fsdpck-model(5)",
                 "'flat_param' is read as an ordinary parameter, because other tensors are next "
                 "to it");
}

fsdpck_status checkpoint_check_flat(const fsdpck_checkpoint *c, const catalogue *to,
                                    fsdpck_error *err)
{
    uint32_t first = 0;
    const uint64_t count = flat_params_count(to, &first);
    if (count == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, MODEL_NEEDED,
        ("%" PRIu64 " FSDP1 flat parameter%s cannot be unflattened without a model description",
         count, count == 1 ? "" : "s"),
        (path, c->path), (tensor, catalogue_name(to, catalogue_tensor(to, first)->name)),
        (next, "give --model FILE; create it with scripts/describe_model.py where the model is: "
               "fsdpck-model(5)"));
}
