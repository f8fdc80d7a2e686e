/* dcp_symbols.c: the callables that a `.metadata` may contain, and their replacements. Nothing is
 * called. */
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp_metadata.h"

typedef struct known_class {
    const char *name;
    dcp_symbol symbol;
} known_class;

/* Most frequent first. */
static const known_class known_classes[] = {
    {"Size", DCP_SYMBOL_SIZE},
    {"ChunkStorageMetadata", DCP_SYMBOL_CHUNK},
    {"MetadataIndex", DCP_SYMBOL_INDEX},
    {"_StorageInfo", DCP_SYMBOL_INFO},
    {"TensorStorageMetadata", DCP_SYMBOL_TENSOR},
    {"TensorProperties", DCP_SYMBOL_PROPERTIES},
    {"BytesStorageMetadata", DCP_SYMBOL_BYTES},
    {"Metadata", DCP_SYMBOL_METADATA},
    {"StorageMeta", DCP_SYMBOL_STORAGE_META},
};

typedef struct known_call {
    const char *module;
    const char *name;
} known_call;

/* Symbols that torch and Python write in a `.metadata` besides DCP's classes; the getattr of early
 * 3.11 is separate. */
static const known_call harmless_calls[] = {
    {"torch.serialization", "_get_layout"},
    {"torch", "device"},
    {"_codecs", "encode"},
    {"collections", "OrderedDict"},
    {"collections", "defaultdict"},
    {"collections", "Counter"},
    {"pathlib", "PosixPath"},
    {"pathlib", "WindowsPath"},
    {"pathlib", "PurePosixPath"},
    {"pathlib", "PureWindowsPath"},
    {"pathlib", "Path"},
    {"pathlib._local", "PosixPath"},
    {"pathlib._local", "WindowsPath"},
    {"pathlib._local", "PurePosixPath"},
    {"pathlib._local", "PureWindowsPath"},
    {"builtins", "set"},
    {"builtins", "frozenset"},
    {"builtins", "list"},
    {"builtins", "dict"},
    {"builtins", "bytearray"},
    {"builtins", "complex"},
    {"builtins", "slice"},
    {"__builtin__", "set"},
    {"__builtin__", "frozenset"},
    {"__builtin__", "list"},
    {"__builtin__", "dict"},
    {"__builtin__", "bytearray"},
    {"__builtin__", "complex"},
    {"__builtin__", "slice"},
};

dcp_symbol dcp_symbol_of(const value_pool *pool, value callee)
{
    if (value_kind_of(callee) != VALUE_SYMBOL)
        return DCP_SYMBOL_OTHER;
    const char *name = value_symbol_name(pool, callee);
    for (size_t i = 0; i < sizeof known_classes / sizeof *known_classes; i++)
        if (strcmp(known_classes[i].name, name) == 0)
            return known_classes[i].symbol;
    const char *module = value_symbol_module(pool, callee);
    if (strcmp(name, "getattr") == 0 &&
        (strcmp(module, "builtins") == 0 || strcmp(module, "__builtin__") == 0))
        return DCP_SYMBOL_GETATTR;
    for (size_t i = 0; i < sizeof harmless_calls / sizeof *harmless_calls; i++)
        if (strcmp(harmless_calls[i].name, name) == 0 &&
            strcmp(harmless_calls[i].module, module) == 0)
            return DCP_SYMBOL_DATA;
    return DCP_SYMBOL_OTHER;
}

fsdpck_status dcp_getattr(value_pool *pool, const value_call *call, value *symbol,
                          fsdpck_error *err)
{
    static const char *const enums[] = {"_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING",
                                        "TensorProperties"};
    const bool two = value_count(pool, call->args) == 2;
    const value class = two ? value_item(pool, call->args, 0) : VALUE_OF_NONE;
    bool known = false;

    for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
        known = known || value_is_symbol_named(pool, class, enums[i]);
    if (!known && value_is_symbol_named(pool, class, "ShardedTensor"))
        known = value_is_str(pool, value_item(pool, call->args, 1), "ProcessGroupState");
    if (known)
        RETURN_IF(pickle_getattr_symbol(pool, call, symbol, &known, err));
    if (known)
        return FSDPCK_OK;
    text_buf args = {.limit_bytes = 1024};
    value_print(pool, call->args, 200, &args);
    FAIL(err, BADINPUT, PKL_GETATTR,
         "pickle calls getattr%s, but torch calls getattr only on its own classes",
         args.text != NULL ? args.text : "");
    text_release(&args);
    return FSDPCK_BADINPUT;
}

fsdpck_status dcp_call_check(const value_pool *pool, const value_call *call, fsdpck_error *err)
{
    if (torch_call_is_enum(pool, call))
        return FSDPCK_OK;
    text_buf args = {.limit_bytes = 1024};
    value_print(pool, call->args, 160, &args);
    const char *shown = args.text != NULL ? args.text : "";
    const bool runs_code = torch_callee_runs_code(pool, call->callee);
    if (value_kind_of(call->callee) == VALUE_SYMBOL) {
        const char *module = value_symbol_module(pool, call->callee);
        const char *name = value_symbol_name(pool, call->callee);
        error_set(err, FSDPCK_BADINPUT,
                  runs_code ? FSDPCK_FINDING_PKL_GLOBAL : FSDPCK_FINDING_PKL_CALL,
                  "pickle calls '%s.%s' with %s", module, name, shown);
    } else {
        FAIL(err, BADINPUT, PKL_CALL, "pickle calls a computed object with %s", shown);
    }
    text_release(&args);
    error_expected(err, "only calls that torch's metadata contains, such as torch.Size");
    error_next(
        err, runs_code
                 ? "fsdpck ran no code; do not load this file in Python"
                 : "fsdpck ran no code; check the origin of this file before loading it elsewhere, "
                   "or keep the call as a record: fsdpck consolidate --objects opaque");
    return FSDPCK_BADINPUT;
}
