/* dcp_calls.c: which callables a `.metadata` may name, and what is made of them. Nothing is called. */
#include <string.h>

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

/* What torch and Python write in a `.metadata` besides DCP's own classes; an early-3.11 getattr is apart. */
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

/* Top-level modules whose callables run code, touch files or the network: never taken for an enum class. */
static const char *const running_modules[] = {
    "os",        "posix",     "nt",          "ntpath",    "posixpath",   "subprocess", "builtins",
    "__builtin__", "sys",     "shutil",      "importlib", "runpy",       "pty",        "socket",
    "ctypes",    "_ctypes",   "pickle",      "_pickle",   "cPickle",     "marshal",    "types",
    "operator",  "_operator", "functools",   "code",      "codeop",      "commands",   "webbrowser",
    "platform",  "tempfile",  "urllib",      "urllib2",   "http",        "ftplib",     "smtplib",
    "requests",  "aiohttp",   "httpx",       "asyncio",   "signal",      "threading",  "_thread",
    "multiprocessing", "concurrent", "bdb",  "pdb",       "timeit",      "profile",    "cProfile",
    "trace",     "doctest",   "site",        "pip",       "ensurepip",   "venv",       "zipimport",
    "zipapp",    "pkgutil",   "io",          "_io",       "fileinput",   "linecache",  "glob",
    "sqlite3",   "dill",      "cloudpickle", "joblib",    "_posixsubprocess", "imp",   "distutils",
    "setuptools", "popen2",   "pydoc",       "inspect",   "ast",         "dis",        "gc",
    "copyreg",   "copy_reg",  "weakref",     "atexit",    "logging",     "xmlrpc",     "telnetlib",
};

static size_t top_module_nbytes(const char *module)
{
    return strcspn(module, ".");
}

static bool module_runs_code(const char *module)
{
    const size_t nbytes = top_module_nbytes(module);
    for (size_t i = 0; i < sizeof running_modules / sizeof *running_modules; i++)
        if (strlen(running_modules[i]) == nbytes && memcmp(running_modules[i], module, nbytes) == 0)
            return true;
    return strncmp(module, "torch.hub", 9) == 0 || strncmp(module, "torch.jit", 9) == 0 ||
           strncmp(module, "torch.utils", 11) == 0 || strncmp(module, "numpy.testing", 13) == 0;
}

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
        if (strcmp(harmless_calls[i].name, name) == 0 && strcmp(harmless_calls[i].module, module) == 0)
            return DCP_SYMBOL_HARMLESS;
    return DCP_SYMBOL_OTHER;
}

fsdpck_status dcp_getattr(value_pool *pool, const value_call *call, value *symbol, fsdpck_error *err)
{
    static const char *const enums[] = {"_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING", "TensorProperties"};
    const bool two = value_count(pool, call->args) == 2;
    const value class = two ? value_item(pool, call->args, 0) : VALUE_OF_NONE;
    const value name = two ? value_item(pool, call->args, 1) : VALUE_OF_NONE;
    bool known = false;

    if (value_kind_of(class) == VALUE_SYMBOL && value_kind_of(name) == VALUE_STR) {
        for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
            known = known || value_is_symbol_named(pool, class, enums[i]);
        known = known || (value_is_symbol_named(pool, class, "ShardedTensor") &&
                          value_is_str(pool, name, "ProcessGroupState"));
    }
    text_buf text = {.limit_bytes = 1024};
    if (!known) {
        value_print(pool, call->args, 200, &text);
        error_set(err, FSDPCK_BADINPUT, "PKL-GETATTR",
                  "pickle asks for an attribute by getattr%s, which torch does for one enum alone",
                  text.text != NULL ? text.text : "");
        error_next(err, "treat this file as hostile: do not load it with torch or pickle");
        text_release(&text);
        return FSDPCK_BADINPUT;
    }
    size_t nbytes;
    text_puts(&text, value_symbol_name(pool, class));
    text_puts(&text, ".");
    const char *attribute = value_text(pool, name, &nbytes);
    text_append(&text, attribute, nbytes);
    const char *module = value_symbol_module(pool, class);
    text_buf module_text = {.limit_bytes = 4096};
    text_puts(&module_text, module);
    fsdpck_status st = text_check(&text, err);
    value module_str, name_str;
    if (st == FSDPCK_OK)
        st = text_check(&module_text, err);
    if (st == FSDPCK_OK)
        st = value_new_str(pool, module_text.text, module_text.nbytes, &module_str, err);
    if (st == FSDPCK_OK)
        st = value_new_str(pool, text.text, text.nbytes, &name_str, err);
    if (st == FSDPCK_OK)
        st = value_new_symbol(pool, module_str, name_str, symbol, err);
    text_release(&text);
    text_release(&module_text);
    return st;
}

/* An enum member as Python 3.8 to 3.14 write it: the class called with one scalar. */
static bool is_enum_shaped(const value_pool *pool, const value_call *call)
{
    if (value_kind_of(call->callee) != VALUE_SYMBOL || value_count(pool, call->args) != 1 ||
        module_runs_code(value_symbol_module(pool, call->callee)))
        return false;
    switch (value_kind_of(value_item(pool, call->args, 0))) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
    case VALUE_STR:
        return true;
    default:
        return false;
    }
}

fsdpck_status dcp_call_judge(const value_pool *pool, const value_call *call, fsdpck_error *err)
{
    if (is_enum_shaped(pool, call))
        return FSDPCK_OK;
    text_buf args = {.limit_bytes = 1024};
    value_print(pool, call->args, 160, &args);
    const char *shown = args.text != NULL ? args.text : "";
    if (value_kind_of(call->callee) == VALUE_SYMBOL)
        error_set(err, FSDPCK_BADINPUT, "PKL-CALL", "pickle asks to call '%s.%s' with %s",
                  value_symbol_module(pool, call->callee), value_symbol_name(pool, call->callee), shown);
    else
        error_set(err, FSDPCK_BADINPUT, "PKL-CALL", "pickle asks to call a computed object with %s",
                  shown);
    text_release(&args);
    error_expected(err, "calls that torch's metadata is made of, such as torch.Size");
    error_next(err, "nothing was run; find out who wrote this file before loading it elsewhere, or "
                    "keep the call as a record with --objects opaque");
    return FSDPCK_BADINPUT;
}
