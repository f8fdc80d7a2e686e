/* merged_checkpoint.c: a checkpoint with adapters merged into its weights. Each adapter is inside the checkpoint, or is a
 * checkpoint of its own, with its adapter_config.json. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "lora/merge_list.h"
#include "open/checkpoint.h"

#define SELF           "self"
#define ADAPTER_CONFIG "adapter_config.json"
/* Real ones have some KB. */
#define ADAPTER_CONFIG_NBYTES_MAX ((uint64_t)16 << 20)

/* An adapter of the request, with what merging reads. */
typedef struct opened_adapter {
    map_inputs inputs;
    vec names; /* lora_input */
    merge_checkpoint tensors;
    lora_config config;
} opened_adapter;

/* "self", or "self:NAME" with *name. */
static bool is_self(const char *text, const char **name)
{
    const size_t n = strlen(SELF);
    *name = NULL;
    if (strncmp(text, SELF, n) != 0 || (text[n] != '\0' && text[n] != ':'))
        return false;
    *name = text[n] == ':' ? text + n + 1 : NULL;
    return true;
}

/* The tensors of the model part by their names. */
static fsdpck_status list_tensors(fsdpck_checkpoint *c, opened_adapter *a, fsdpck_error *err)
{
    RETURN_IF(map_inputs_list(c, &a->inputs, err));
    for (size_t i = 0; i < a->inputs.inputs.count; i++) {
        const map_input *in = VEC_AT(&a->inputs.inputs, const map_input, i);
        const lora_input made = {in->name, in->nbytes, in->tensor};
        RETURN_IF(vec_add(&a->names, &made, err));
    }
    a->tensors = (merge_checkpoint){&c->cat, &c->src, a->names.items, a->names.count};
    return FSDPCK_OK;
}

static void opened_adapter_release(opened_adapter *a)
{
    map_inputs_release(&a->inputs);
    vec_release(&a->names);
    lora_config_release(&a->config);
}

/* --- adapter_config.json --- */

static fsdpck_status fail_no_config(const fsdpck_checkpoint *of, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG, ("the adapter has no " ADAPTER_CONFIG),
                     (path, of->path),
                     (next, "give the file of the training with --adapter-config FILE"));
}

/* In the folder of a checkpoint, or in the one from which it was found. */
static fsdpck_status read_beside(const fsdpck_checkpoint *of, char **text, size_t *nbytes,
                                 fsdpck_error *err)
{
    fsdpck_status st = file_read_whole(&of->probe.dir, ADAPTER_CONFIG, ADAPTER_CONFIG_NBYTES_MAX,
                                       text, nbytes, err);
    if (st == FSDPCK_OK || err == NULL || err->sys_errno != ENOENT)
        return st;
    if (of->entered_from == NULL)
        return fail_no_config(of, err);
    char *path = folder_path_join(of->entered_from, ADAPTER_CONFIG);
    if (path == NULL)
        return error_set_nomem(err, strlen(of->entered_from));
    st = file_read_whole(NULL, path, ADAPTER_CONFIG_NBYTES_MAX, text, nbytes, err);
    free(path);
    return st != FSDPCK_OK && err->sys_errno == ENOENT ? fail_no_config(of, err) : st;
}

static fsdpck_status read_config(fsdpck_checkpoint *c, const fsdpck_checkpoint *of,
                                 const char *path, lora_config *config, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    fsdpck_status st =
        path == NULL ? read_beside(of, &text, &nbytes, err)
                     : file_read_whole(NULL, path, ADAPTER_CONFIG_NBYTES_MAX, &text, &nbytes, err);
    if (st == FSDPCK_OK)
        st = lora_config_read(text, nbytes, &c->metadata, config, err);
    free(text);
    if (st != FSDPCK_OK)
        error_path_in(err, path == NULL ? of->path : "", path == NULL ? ADAPTER_CONFIG : path);
    return st;
}

/* --- the request --- */

static fsdpck_status open_beside(fsdpck_checkpoint *c, const char *path,
                                 const fsdpck_open_options *options, size_t i, fsdpck_error *err)
{
    fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);
    o.threads = options->threads;
    o.no_follow = options->no_follow;
    RETURN_IF(fsdpck_open(c->ctx, path, &o, &c->adapters[i], err));
    return checkpoint_load_inner(c->adapters[i], err);
}

static fsdpck_status take_request(fsdpck_checkpoint *c, const fsdpck_open_options *o, size_t i,
                                  opened_adapter *a, merge_request *r, fsdpck_error *err)
{
    const char *text = o->merge_adapters[i];
    *r = (merge_request){.name = text};
    a->names = VEC_OF(lora_input, &c->metadata);
    if (is_self(text, &r->adapter)) {
        RETURN_IF(read_config(c, c->base, o->adapter_config, &a->config, err));
    } else {
        RETURN_IF(open_beside(c, text, o, i, err));
        RETURN_IF(list_tensors(c->adapters[i], a, err));
        RETURN_IF(read_config(c, c->adapters[i], NULL, &a->config, err));
        r->beside = &a->tensors;
    }
    r->config = &a->config;
    return FSDPCK_OK;
}

/* What was merged, for reports. `list` still has the names. */
static fsdpck_status note_adapters(fsdpck_checkpoint *c, const merge_list *list,
                                   const merge_request *requests, size_t count, fsdpck_error *err)
{
    c->merged_adapters = calloc(count, sizeof *c->merged_adapters);
    if (c->merged_adapters == NULL)
        return error_set_nomem(err, count * sizeof *c->merged_adapters);
    for (size_t i = 0; i < count; i++) {
        const merge_request *r = &requests[i];
        char *name = strdup(strtab_text(&list->adapters, r->adapter_name));
        if (name == NULL)
            return error_set_nomem(err, strtab_nbytes(&list->adapters, r->adapter_name));
        c->merged_adapters[c->merged_adapter_count++] =
            (fsdpck_merged_adapter){.name = name,
                                    .modules = r->modules,
                                    .replaced = r->replaced,
                                    .least_scale = r->least_scale,
                                    .largest_scale = r->largest_scale};
    }
    return FSDPCK_OK;
}

static fsdpck_status keep_ties(fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; i < c->base->ties.count; i++) {
        const tied_pair *t = VEC_AT(&c->base->ties, const tied_pair, i);
        const tied_pair made = {merger_same(c->merger, t->first), merger_same(c->merger, t->alias)};
        if (made.first != CAT_NONE && made.alias != CAT_NONE)
            RETURN_IF(vec_add(&c->ties, &made, err));
    }
    return FSDPCK_OK;
}

/* c->cat from the weights of c->base and the requests. */
static fsdpck_status merge(fsdpck_checkpoint *c, const merge_checkpoint *base,
                           merge_request *requests, size_t count, bool safe, fsdpck_error *err)
{
    merge_list list;
    merge_list_init(&list, &c->metadata);
    fsdpck_status st = merge_list_make(&list, base, requests, count, safe, err);
    if (st == FSDPCK_OK)
        st = note_adapters(c, &list, requests, count, err);
    if (st == FSDPCK_OK)
        st = merger_new(&list, &c->cat, &c->merger, err);
    merge_list_release(&list);
    if (st != FSDPCK_OK) {
        error_path(err, c->path);
        return st;
    }
    c->src = *merger_source(c->merger);
    c->merged = merger_count(c->merger);
    RETURN_IF(derived_checkpoint_skip_others(c, err));
    RETURN_IF(keep_ties(c, err));
    RETURN_IF(checkpoint_parts_all_model(&c->cat, &c->parts, err));
    /* No mesh is inferred: the parts of a weight are no shards. */
    c->sharded_otherwise = c->base->sharded_otherwise;
    return FSDPCK_OK;
}

static fsdpck_status apply(fsdpck_checkpoint *c, const fsdpck_open_options *o, fsdpck_error *err)
{
    const size_t count = o->merge_adapter_count;
    opened_adapter *opened = calloc(count, sizeof *opened);
    merge_request *requests = calloc(count, sizeof *requests);
    opened_adapter base = {.names = VEC_OF(lora_input, &c->metadata)};
    fsdpck_status st = FSDPCK_OK;
    c->adapters = calloc(count, sizeof *c->adapters);
    c->adapter_count = count;
    if (opened == NULL || requests == NULL || c->adapters == NULL)
        st = error_set_nomem(err, count * sizeof *opened);
    if (st == FSDPCK_OK)
        st = list_tensors(c->base, &base, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = take_request(c, o, i, &opened[i], &requests[i], err);
    if (st == FSDPCK_OK)
        st = merge(c, &base.tensors, requests, count, o->merge_safe != 0, err);
    for (size_t i = 0; opened != NULL && i < count; i++)
        opened_adapter_release(&opened[i]);
    opened_adapter_release(&base);
    free(opened);
    free(requests);
    return st;
}

fsdpck_status checkpoint_merge(fsdpck_checkpoint *base, const fsdpck_open_options *options,
                               fsdpck_checkpoint **out, fsdpck_error *err)
{
    *out = NULL;
    RETURN_IF(checkpoint_load_inner(base, err));
    RETURN_IF(derived_checkpoint_new(base, out, err));
    return apply(*out, options, err);
}

const fsdpck_checkpoint *checkpoint_merged(const fsdpck_checkpoint *c)
{
    while (c != NULL && c->merger == NULL)
        c = c->base;
    return c;
}

void checkpoint_merge_release(fsdpck_checkpoint *c)
{
    merger_free(c->merger);
    for (size_t i = 0; i < c->adapter_count && c->adapters != NULL; i++)
        fsdpck_close(c->adapters[i]);
    free(c->adapters);
    for (size_t i = 0; i < c->merged_adapter_count; i++)
        free((char *)c->merged_adapters[i].name);
    free(c->merged_adapters);
}
