/* dcp_parser.c: classes, names and attributes of a `.metadata`, through caches. */
#include <string.h>

#include "formats/dcp/dcp_hooks.h"

fsdpck_status dcp_parser_init(dcp_parser *parser, value_pool *pool, fsdpck_error *err)
{
    static const char *const names[DCP_KEY_COUNT] = {
        [DCP_KEY_OFFSETS] = "offsets",
        [DCP_KEY_SIZES] = "sizes",
        [DCP_KEY_FQN] = "fqn",
        [DCP_KEY_INDEX] = "index",
        [DCP_KEY_OFFSET] = "offset",
        [DCP_KEY_RELATIVE_PATH] = "relative_path",
        [DCP_KEY_LENGTH] = "length",
        [DCP_KEY_TRANSFORMS] = "transform_descriptors",
        [DCP_KEY_PROPERTIES] = "properties",
        [DCP_KEY_SIZE] = "size",
        [DCP_KEY_CHUNKS] = "chunks",
        [DCP_KEY_DTYPE] = "dtype",
    };
    for (size_t i = 0; i < DCP_KEY_COUNT; i++)
        RETURN_IF(value_new_str(pool, names[i], strlen(names[i]), &parser->keys[i], err));
    return FSDPCK_OK;
}

dcp_symbol dcp_parser_symbol(dcp_parser *parser, const value_pool *pool, value callee)
{
    if (value_kind_of(callee) != VALUE_SYMBOL)
        return DCP_SYMBOL_OTHER;
    const size_t slot = dcp_cache_slot(callee, DCP_CACHE_SYMBOLS);
    if (parser->symbols[slot].handle != callee) {
        parser->symbols[slot].handle = callee;
        parser->symbols[slot].symbol = dcp_symbol_of(pool, callee);
    }
    return parser->symbols[slot].symbol;
}

fsdpck_status dcp_parser_fqn(dcp_parser *parser, const value_pool *pool, value text, uint32_t *id,
                             fsdpck_error *err)
{
    const size_t slot = dcp_cache_slot(text, DCP_CACHE_TEXTS);
    size_t nbytes;

    if (parser->fqns[slot].handle == text) {
        *id = parser->fqns[slot].id;
        return FSDPCK_OK;
    }
    const char *bytes = value_text(pool, text, &nbytes);
    RETURN_IF(strtab_intern(&parser->names->fqns, bytes, nbytes, id, err));
    parser->fqns[slot].handle = text;
    parser->fqns[slot].id = *id;
    return FSDPCK_OK;
}
