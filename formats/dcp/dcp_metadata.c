#include "formats/dcp/dcp_metadata.h"

#include <string.h>

#include "base/step_name.h"
#include "formats/dcp/dcp_gaps.h"

fsdpck_status dcp_names_init(dcp_names *n, budget *owner, fsdpck_error *err)
{
    uint32_t none;
    strtab_init(&n->fqns, owner);
    strtab_init(&n->paths, owner);
    n->folder = NULL;
    strtab_init(&n->transforms, owner);
    return strtab_intern(&n->transforms, "", 0, &none, err);
}

void dcp_names_release(dcp_names *n)
{
    strtab_release(&n->fqns);
    strtab_release(&n->paths);
    strtab_release(&n->transforms);
}

static void metadata_init(dcp_metadata *m, budget *owner)
{
    *m = (dcp_metadata){
        .owner = owner,
        .dims = VEC_OF(uint32_t, owner),
        .chunks = VEC_OF(dcp_chunk, owner),
        .runs = VEC_OF(dcp_run, owner),
        .lists = VEC_OF(dcp_chunk_list, owner),
        .properties = VEC_OF(dcp_properties, owner),
        .tensors = VEC_OF(dcp_tensor, owner),
        .items = VEC_OF(dcp_item, owner),
        .entries = VEC_OF(dcp_entry, owner),
    };
}

void dcp_metadata_release(dcp_metadata *m)
{
    VEC_RELEASE_ALL(&m->dims, &m->chunks, &m->runs, &m->lists, &m->properties, &m->tensors,
                    &m->items, &m->entries);
}

/* state_dict_metadata and storage_data: their pairs were all taken by hooks, or their type is
 * wrong. */
static fsdpck_status check_swallowed(value_pool *pool, value state, const char *name,
                                     fsdpck_error *err)
{
    value found, dict;
    if (!value_dict_find(pool, state, name, &found))
        return FAIL(err, BADINPUT, DCP_META_TYPE, "metadata has no '%s'", name);
    if (!value_as_dict(pool, found, &dict))
        return FAIL(err, BADINPUT, DCP_META_TYPE, "'%s' in metadata is not a dict", name);
    if (value_count(pool, dict) == 0)
        return FSDPCK_OK;
    text_buf key = {.limit_bytes = 512};
    value_print(pool, value_key(pool, dict, 0), 200, &key);
    FAIL(err, BADINPUT, DCP_META_TYPE, "'%s' in metadata contains an unknown value under %s", name,
         key.text != NULL ? key.text : "a key");
    text_release(&key);
    return FSDPCK_BADINPUT;
}

static void read_planner(value_pool *pool, value state, dcp_metadata *m)
{
    value found;
    if (!value_dict_find(pool, state, "planner_data", &found) || value_is_none(found))
        return;
    /* Planners may store any value there: only a dict is from DCP. */
    if (!value_as_dict(pool, found, &m->planner))
        m->planner = VALUE_OF_NONE;
}

/* A text, or a path of pathlib, whose arguments are its parts. */
static void read_path(const value_pool *pool, value path, const value_call *call, dcp_metadata *m)
{
    const bool is_text = value_kind_of(path) == VALUE_STR;
    const bool has_parts = call != NULL && value_kind_of(call->args) == VALUE_TUPLE;
    for (size_t i = is_text     ? 1
                    : has_parts ? value_count(pool, call->args)
                                : 0;
         i > 0 && !m->has_step; i--) {
        const value part = is_text ? path : value_item(pool, call->args, i - 1);
        size_t nbytes;
        const char *text =
            value_kind_of(part) == VALUE_STR ? value_text(pool, part, &nbytes) : NULL;
        m->has_step = text != NULL && step_name_of_path(text, nbytes, &m->step);
    }
}

/* Path and time of the save. */
static void read_traces(value_pool *pool, value state, dcp_metadata *m)
{
    value v;
    if (value_dict_find(pool, state, "save_id", &v) && !value_is_none(v))
        m->has_traces = true;
    if (!value_dict_find(pool, state, "checkpoint_id", &v) || value_is_none(v))
        return;
    m->has_traces = true;
    const value_call *call = value_kind_of(v) == VALUE_CALL ? value_call_of(pool, v) : NULL;
    m->has_new_paths = call != NULL && value_kind_of(call->callee) == VALUE_SYMBOL &&
                       strcmp(value_symbol_module(pool, call->callee), "pathlib._local") == 0;
    read_path(pool, v, call, m);
}

static void read_marks(value_pool *pool, const value_call *root, dcp_metadata *m)
{
    value v;
    const char *module = value_symbol_module(pool, root->callee);

    m->old_package = strstr(module, "_shard.checkpoint") != NULL;
    m->has_version = value_dict_find(pool, root->state, "version", &v) && !value_is_none(v);
    m->has_mcore_data = value_dict_find(pool, root->state, "mcore_data", &v) && !value_is_none(v);
    if (!m->has_mcore_data || !value_as_dict(pool, v, &m->mcore))
        m->mcore = VALUE_OF_NONE;
    m->has_storage_meta =
        value_dict_find(pool, root->state, "storage_meta", &v) && value_kind_of(v) == VALUE_CALL;
    if (m->has_storage_meta) {
        const value_call *meta = value_call_of(pool, v);
        m->has_modules = meta->has_state && value_dict_find(pool, meta->state, "modules", &v);
        if (meta->has_state)
            read_traces(pool, meta->state, m);
    }
}

static fsdpck_status read_root(value_pool *pool, value root, dcp_metadata *m, fsdpck_error *err)
{
    const value_call *call = value_kind_of(root) == VALUE_CALL ? value_call_of(pool, root) : NULL;

    if (call == NULL || dcp_symbol_of(pool, call->callee) != DCP_SYMBOL_METADATA ||
        !call->has_state || value_kind_of(call->state) != VALUE_DICT) {
        text_buf shown = {.limit_bytes = 512};
        value_print(pool, root, 120, &shown);
        FAIL_WITH(err, BADINPUT, DCP_META_TYPE, ("pickle is not the metadata of a checkpoint"),
                  (expected, "an object of class Metadata"),
                  (found, "%s", shown.text != NULL ? shown.text : "something else"));
        text_release(&shown);
        return FSDPCK_BADINPUT;
    }
    const value state = call->state;
    RETURN_IF(check_swallowed(pool, state, "state_dict_metadata", err));
    RETURN_IF(check_swallowed(pool, state, "storage_data", err));
    read_planner(pool, state, m);
    read_marks(pool, value_call_of(pool, root), m);
    return FSDPCK_OK;
}

/* gaps: NULL, or of `in`. */
static fsdpck_status read_pickle(const pickle_input *in, dcp_names *names, value_pool *pool,
                                 bool opaque_calls, dcp_gaps *gaps, dcp_metadata *m,
                                 size_t *consumed_nbytes, fsdpck_error *err)
{
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    value root;

    dcp_parser *parser = budget_alloc(pool->owner, sizeof *parser, err);
    if (parser == NULL)
        return FSDPCK_LIMIT;
    parser->m = m;
    parser->names = names;
    parser->opaque_calls = opaque_calls;
    parser->gaps = gaps;
    const pickle_hooks hooks = dcp_hooks_make(parser);
    fsdpck_status st = dcp_parser_init(parser, pool, err);
    if (st == FSDPCK_OK)
        st = pickle_read(in, &limits, pool, &hooks, &root, consumed_nbytes, err);
    budget_free(pool->owner, parser, sizeof *parser);
    if (st == FSDPCK_OK && *consumed_nbytes != in->nbytes)
        st = FAIL_WITH(err, BADINPUT, PKL_TRAILING, ("bytes after the end of the pickle"),
                       (offset, in->file_offset_bytes + *consumed_nbytes),
                       (expected, "%zu bytes", *consumed_nbytes), (found, "%zu bytes", in->nbytes));
    return st == FSDPCK_OK ? read_root(pool, root, m, err) : st;
}

fsdpck_status dcp_metadata_read(const pickle_input *in, dcp_names *names, value_pool *pool,
                                bool opaque_calls, dcp_metadata *m, fsdpck_error *err)
{
    size_t consumed_nbytes;

    metadata_init(m, pool->owner);
    /* Position 0 of dims means "none". */
    fsdpck_status st = vec_push(&m->dims, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = read_pickle(in, names, pool, opaque_calls, NULL, m, &consumed_nbytes, err);
    m->is_by_fsdpck = in->nbytes > 1 && in->bytes[0] == 0x80 && in->bytes[1] == 2;
    if (st != FSDPCK_OK)
        dcp_metadata_release(m);
    return st;
}

bool dcp_metadata_read_condensed(const dcp_bytes *from, dcp_names *names, value_pool *pool,
                                 bool opaque_calls, dcp_metadata *m)
{
    const size_t nfqns = strtab_count(&names->fqns), npaths = strtab_count(&names->paths);
    const size_t ntransforms = strtab_count(&names->transforms), ncells = pool->cells.count;
    dcp_condensed c;
    dcp_gaps gaps = {0};
    size_t consumed_nbytes;

    metadata_init(m, pool->owner);
    bool done = vec_push(&m->dims, NULL) != NULL;
    done = dcp_condense(from, m, &c) == FSDPCK_OK && done;
    if (done && dcp_gaps_init(&gaps, &c, pool->owner) == FSDPCK_OK) {
        const pickle_input in = dcp_condensed_input(&c);
        done = read_pickle(&in, names, pool, opaque_calls, &gaps, m, &consumed_nbytes, NULL) ==
                   FSDPCK_OK &&
               dcp_gaps_are_filled(&gaps, m);
    } else {
        done = false;
    }
    dcp_gaps_release(&gaps);
    dcp_condensed_release(&c);
    if (done)
        return true;
    dcp_metadata_release(m);
    strtab_truncate(&names->fqns, nfqns);
    strtab_truncate(&names->paths, npaths);
    strtab_truncate(&names->transforms, ntransforms);
    value_cells_rewind(pool, ncells);
    return false;
}
