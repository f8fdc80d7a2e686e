#include "formats/dcp/dcp_hooks.h"

#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp_gaps.h"

static fsdpck_status record_new(vec *records, dcp_note what, value *note, fsdpck_error *err)
{
    if (records->count >= DCP_NONE)
        return FAIL(err, LIMIT, PKL_LIMIT, "metadata holds more than 2^32 records");
    if (vec_push(records, err) == NULL)
        return FSDPCK_LIMIT;
    *note = dcp_note_make(what, records->count - 1);
    return FSDPCK_OK;
}

static fsdpck_status chunk_new(dcp_parser *parser, value *note, fsdpck_error *err)
{
    uint32_t index;
    if (parser->gaps == NULL)
        return record_new(&parser->m->chunks, DCP_NOTE_CHUNK, note, err);
    if (!dcp_gaps_next_chunk(parser, &index))
        return DCP_ODD;
    *note = dcp_note_make(DCP_NOTE_CHUNK, index);
    return FSDPCK_OK;
}

static fsdpck_status entry_new(dcp_parser *parser, uint32_t *index, fsdpck_error *err)
{
    if (parser->gaps != NULL)
        return dcp_gaps_next_entry(parser, index) ? FSDPCK_OK : DCP_ODD;
    *index = (uint32_t)parser->m->entries.count;
    return dcp_entry_add(parser->m, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

/* A _StorageInfo nearly always follows the MetadataIndex that it belongs to: both share one
 * entry. */
static fsdpck_status info_new(dcp_parser *parser, value *note, fsdpck_error *err)
{
    const vec *entries = &parser->m->entries;
    const size_t count = parser->gaps != NULL ? parser->gaps->next_entry : entries->count;
    uint32_t index = (uint32_t)(count - 1);
    if (count == 0 || VEC_AT(entries, dcp_entry, index)->has_info)
        RETURN_IF(entry_new(parser, &index, err));
    VEC_AT(entries, dcp_entry, index)->has_info = 1;
    *note = dcp_note_make(DCP_NOTE_INFO, index);
    return FSDPCK_OK;
}

static void note_properties_module(dcp_metadata *m, const value_pool *pool, value callee)
{
    if (m->properties.count != 1)
        return;
    const char *module = value_symbol_module(pool, callee);
    m->old_properties = strcmp(module, "torch.distributed._shard.sharded_tensor.metadata") == 0;
}

static fsdpck_status class_new(dcp_parser *parser, const value_pool *pool, dcp_symbol symbol,
                               value callee, value *note, bool *replaced, fsdpck_error *err)
{
    dcp_metadata *m = parser->m;
    uint32_t index;

    *replaced = true;
    switch (symbol) {
    case DCP_SYMBOL_CHUNK:
        return chunk_new(parser, note, err);
    case DCP_SYMBOL_TENSOR:
        RETURN_IF(record_new(&m->tensors, DCP_NOTE_TENSOR, note, err));
        *VEC_AT(&m->tensors, dcp_tensor, m->tensors.count - 1) =
            (dcp_tensor){.properties = DCP_NONE, .list = DCP_NONE};
        return FSDPCK_OK;
    case DCP_SYMBOL_PROPERTIES:
        RETURN_IF(record_new(&m->properties, DCP_NOTE_PROPERTIES, note, err));
        note_properties_module(m, pool, callee);
        return FSDPCK_OK;
    case DCP_SYMBOL_BYTES:
        *note = dcp_note_make(DCP_NOTE_BYTES, 0);
        return FSDPCK_OK;
    case DCP_SYMBOL_INDEX:
        RETURN_IF(entry_new(parser, &index, err));
        *note = dcp_note_make(DCP_NOTE_INDEX, index);
        return FSDPCK_OK;
    case DCP_SYMBOL_INFO:
        return info_new(parser, note, err);
    default:
        *replaced = false;
        return FSDPCK_OK;
    }
}

static fsdpck_status on_newobj(dcp_parser *parser, value_pool *pool, const value_call *call,
                               value *replacement, bool *replaced, fsdpck_error *err)
{
    const dcp_symbol symbol = dcp_parser_symbol(parser, pool, call->callee);
    RETURN_IF(class_new(parser, pool, symbol, call->callee, replacement, replaced, err));
    if (*replaced && (value_count(pool, call->args) != 0 || !value_is_none(call->kwargs)))
        return FAIL(err, BADINPUT, DCP_META_TYPE,
                    "metadata creates a record '%s' with arguments, which torch never does",
                    value_symbol_name(pool, call->callee));
    return FSDPCK_OK;
}

static fsdpck_status on_reduce(dcp_parser *parser, value_pool *pool, const value_call *call,
                               value *replacement, bool *replaced, fsdpck_error *err)
{
    const dcp_symbol symbol = dcp_parser_symbol(parser, pool, call->callee);
    uint32_t at;

    switch (symbol) {
    case DCP_SYMBOL_SIZE: {
        const size_t count = value_count(pool, call->args);
        if (count > 1)
            return FAIL(err, BADINPUT, DCP_META_TYPE, "torch.Size has %zu arguments, expected 1",
                        count);
        RETURN_IF(dcp_size_from(
            parser, pool, count == 1 ? value_item(pool, call->args, 0) : call->args, &at, err));
        *replacement = dcp_note_make(DCP_NOTE_SIZE, at);
        *replaced = true;
        return FSDPCK_OK;
    }
    case DCP_SYMBOL_GETATTR:
        *replaced = true;
        return dcp_getattr(pool, call, replacement, err);
    case DCP_SYMBOL_DATA:
        return FSDPCK_OK;
    case DCP_SYMBOL_OTHER:
    case DCP_SYMBOL_METADATA:
    case DCP_SYMBOL_STORAGE_META:
        return parser->opaque_calls && !torch_callee_runs_code(pool, call->callee)
                   ? FSDPCK_OK
                   : dcp_call_check(pool, call, err);
    default:
        return on_newobj(parser, pool, call, replacement, replaced, err);
    }
}

static fsdpck_status on_call(void *ctx, value_pool *pool, const value_call *call, bool built,
                             value *replacement, bool *replaced, fsdpck_error *err)
{
    dcp_parser *parser = ctx;

    *replaced = false;
    if (built)
        return FSDPCK_OK;
    if (call->how == CALL_PERSID)
        return FAIL(err, BADINPUT, DCP_META_TYPE,
                    "metadata contains a persistent id, which only torch.save writes");
    if (call->how == CALL_REDUCE)
        return on_reduce(parser, pool, call, replacement, replaced, err);
    return on_newobj(parser, pool, call, replacement, replaced, err);
}

static fsdpck_status on_build_host(void *ctx, value_pool *pool, value host, value state,
                                   fsdpck_error *err)
{
    return dcp_build(ctx, pool, host, state, err);
}

/* A pair of storage_data. If index and info do not share an entry, the pair gets a new one, so that
 * neither is overwritten while the other may still be read. */
static fsdpck_status pair_entry(dcp_parser *parser, value key, value item, fsdpck_error *err)
{
    dcp_metadata *m = parser->m;
    if (dcp_note_what(item) != DCP_NOTE_INFO)
        return FAIL(err, BADINPUT, DCP_META_TYPE,
                    "storage_data contains a value other than _StorageInfo");
    const uint32_t k = dcp_note_index(key), i = dcp_note_index(item);
    if (VEC_AT(&m->entries, dcp_entry, k)->fqn == DCP_NONE ||
        VEC_AT(&m->entries, dcp_entry, i)->file == DCP_FILE_LIMIT - 1)
        return FAIL(err, BADINPUT, DCP_META_TYPE,
                    "storage_data contains a record before its state is set");
    if (k == i) {
        VEC_AT(&m->entries, dcp_entry, k)->paired = 1;
        return FSDPCK_OK;
    }
    if (parser->gaps != NULL)
        return DCP_ODD;
    dcp_entry *entry = dcp_entry_add(m, err);
    if (entry == NULL)
        return FSDPCK_LIMIT;
    const dcp_entry *index = VEC_AT(&m->entries, dcp_entry, k);
    *entry = *VEC_AT(&m->entries, dcp_entry, i);
    entry->fqn = index->fqn;
    entry->offsets_at = index->offsets_at;
    entry->hint = index->hint;
    entry->has_info = 1;
    entry->paired = 1;
    return FSDPCK_OK;
}

static fsdpck_status on_pair(void *ctx, value_pool *pool, value key, value item, bool *taken,
                             fsdpck_error *err)
{
    dcp_parser *parser = ctx;
    dcp_metadata *m = parser->m;
    const unsigned key_what = dcp_note_what(key);
    const unsigned item_what = dcp_note_what(item);

    *taken = false;
    if (key_what == DCP_NOTE_INDEX) {
        *taken = true;
        return pair_entry(parser, key, item, err);
    }
    if ((item_what != DCP_NOTE_TENSOR && item_what != DCP_NOTE_BYTES) ||
        value_kind_of(key) != VALUE_STR)
        return FSDPCK_OK;
    dcp_item *made = vec_push(&m->items, err);
    if (made == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(dcp_parser_fqn(parser, pool, key, &made->fqn, err));
    made->tensor = item_what == DCP_NOTE_TENSOR ? dcp_note_index(item) : DCP_NONE;
    *taken = true;
    return FSDPCK_OK;
}

static fsdpck_status on_items(void *ctx, value_pool *pool, const value *items, size_t count,
                              uint64_t *list_note, bool *taken, fsdpck_error *err)
{
    (void)pool;
    *taken = false;
    for (size_t i = 0; i < count; i++)
        if (dcp_note_what(items[i]) != DCP_NOTE_CHUNK)
            return FSDPCK_OK;
    *taken = true;
    return dcp_list_add(ctx, items, count, list_note, err);
}

pickle_hooks dcp_hooks_make(dcp_parser *parser)
{
    return (pickle_hooks){
        .ctx = parser,
        .on_call = on_call,
        .on_build_host = on_build_host,
        .on_pair = on_pair,
        .on_items = on_items,
        .on_gap = dcp_on_gap,
        .on_gap_memo = dcp_on_gap_memo,
    };
}
