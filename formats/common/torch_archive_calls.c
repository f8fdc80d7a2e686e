#include <string.h>

#include "formats/common/torch_archive_internal.h"

/* Constructors of plain data that state dicts are known to hold; "*" at the end of a module covers
 * its submodules. Names are listed one by one: a dotted name ("os.system" of pathlib) reaches into
 * another module. */
static const struct {
    const char *module;
    const char *names; /* separated and enclosed by spaces */
} known_calls[] = {
    {"collections", " OrderedDict defaultdict Counter deque "},
    {"__builtin__",
     " set frozenset list dict tuple complex bytearray int long float str unicode bytes bool slice "
     "range xrange object "},
    {"builtins", " set frozenset list dict tuple complex bytearray int float str bytes bool slice "
                 "range object "},
    {"_codecs", " encode "},
    {"torch", " Size device Generator "},
    {"torch._C", " Generator "},
    {"torch.serialization", " _get_layout "},
    {"torch._utils",
     " _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter "
     "_rebuild_parameter_with_state _rebuild_sparse_tensor _rebuild_sparse_csr_tensor "
     "_rebuild_qtensor _rebuild_nested_tensor _rebuild_meta_tensor_no_storage "
     "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor "
     "_rebuild_xla_tensor _rebuild_wrapper_subclass "},
    {"torch._tensor", " _rebuild_from_type _rebuild_from_type_v2 "},
    {"torch.tensor", " _rebuild_from_type _rebuild_from_type_v2 "},
    {"numpy", " dtype ndarray "},
    {"numpy.core.multiarray", " scalar _reconstruct "},
    {"numpy._core.multiarray", " scalar _reconstruct "},
    {"numpy.core.numeric", " _frombuffer "},
    {"numpy._core.numeric", " _frombuffer "},
    {"numpy.random._pickle", " __randomstate_ctor __bit_generator_ctor __generator_ctor "},
    {"pathlib", " Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath "},
    {"pathlib._local", " Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath "},
    {"argparse", " Namespace "},
    {"types", " SimpleNamespace "},
    {"datetime", " datetime date time timedelta timezone "},
    {"decimal", " Decimal "},
    {"fractions", " Fraction "},
    {"uuid", " UUID "},
    {"copy_reg", " _reconstructor __newobj__ __newobj_ex__ "},
    {"copyreg", " _reconstructor __newobj__ __newobj_ex__ "},
};

/* Modules and builtins with side effects. */
static const struct {
    const char *module;
    const char *names; /* NULL: all names not in known_calls */
} code_runs[] = {
    {"os", NULL},
    {"posix", NULL},
    {"nt", NULL},
    {"subprocess", NULL},
    {"__builtin__", NULL},
    {"builtins", NULL},
    {"sys", NULL},
    {"runpy", NULL},
    {"pip*", NULL},
    {"timeit", NULL},
    {"asyncio*", NULL},
    {"pkgutil", NULL},
    {"importlib*", NULL},
    {"shutil", NULL},
    {"socket", NULL},
    {"pickle", NULL},
    {"cPickle", NULL},
    {"_pickle", NULL},
    {"marshal", NULL},
    {"ctypes*", NULL},
    {"code", NULL},
    {"codeop", NULL},
    {"pty", NULL},
    {"webbrowser", NULL},
    {"commands", NULL},
    {"popen2", NULL},
    {"platform", NULL},
    {"operator", NULL},
    {"_operator", NULL},
    {"functools", NULL},
    {"types", NULL},
    {"inspect", NULL},
    {"pydoc*", NULL},
    {"cProfile", NULL},
    {"profile", NULL},
    {"pdb", NULL},
    {"bdb", NULL},
    {"trace", NULL},
    {"idlelib*", NULL},
    {"lib2to3*", NULL},
    {"doctest", NULL},
    {"multiprocessing*", NULL},
    {"threading", NULL},
    {"_thread", NULL},
    {"thread", NULL},
    {"signal", NULL},
    {"http*", NULL},
    {"urllib*", NULL},
    {"requests*", NULL},
    {"httplib*", NULL},
    {"smtplib", NULL},
    {"ftplib", NULL},
    {"ssl", NULL},
    {"tempfile", NULL},
    {"venv*", NULL},
    {"ensurepip*", NULL},
    {"distutils*", NULL},
    {"setuptools*", NULL},
    {"zipimport", NULL},
    {"numpy.testing*", NULL},
    {"numpy.f2py*", NULL},
    {"torch.hub", NULL},
    {"torch.package*", NULL},
    {"torch.jit*", NULL},
    {"torch.utils.cpp_extension", NULL},
    {"torch._inductor*", NULL},
    {"torch._dynamo*", NULL},
    {"torch", " load save compile hub jit "},
    {"torch.serialization", " load save "},
    {"dill*", NULL},
    {"cloudpickle*", NULL},
    {"joblib*", NULL},
    {"getpass", NULL},
    {"concurrent*", NULL},
    {"site", NULL},
    {"linecache", NULL},
    {"io", " open "},
    {"_io", " open FileIO "},
    {"fileinput", NULL},
    {"glob", NULL},
    {"imp", NULL},
};

static bool module_matches(const char *pattern, const char *module)
{
    const size_t n = strlen(pattern);

    if (pattern[n - 1] != '*')
        return strcmp(pattern, module) == 0;
    /* The module itself, or a submodule. */
    return strncmp(pattern, module, n - 1) == 0 && (module[n - 1] == '\0' || module[n - 1] == '.');
}

static bool name_listed(const char *names, const char *name)
{
    const size_t n = strlen(name);

    if (names == NULL)
        return true;
    if (n == 0 || strchr(name, ' ') != NULL)
        return false;
    for (const char *at = names; (at = strstr(at, name)) != NULL; at++)
        if (at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

static bool symbol_known(const char *module, const char *name)
{
    for (size_t i = 0; i < sizeof(known_calls) / sizeof(known_calls[0]); i++)
        if (module_matches(known_calls[i].module, module) &&
            name_listed(known_calls[i].names, name))
            return true;
    return false;
}

bool torch_symbol_runs_code(const char *module, const char *name)
{
    if (symbol_known(module, name))
        return false;
    for (size_t i = 0; i < sizeof(code_runs) / sizeof(code_runs[0]); i++)
        if (module_matches(code_runs[i].module, module) && name_listed(code_runs[i].names, name))
            return true;
    return false;
}

bool torch_callee_runs_code(const value_pool *pool, value callee)
{
    return value_kind_of(callee) == VALUE_SYMBOL &&
           torch_symbol_runs_code(value_symbol_module(pool, callee),
                                  value_symbol_name(pool, callee));
}

/* Class names begin with a capital, function names do not: torch._load_from_bytes is not an enum.
 */
bool torch_name_is_class(const char *name)
{
    const char *dot = strrchr(name, '.');
    name = dot == NULL ? name : dot + 1;
    name += strspn(name, "_");
    return *name >= 'A' && *name <= 'Z';
}

bool torch_call_is_enum(const value_pool *pool, const value_call *call)
{
    if (value_kind_of(call->callee) != VALUE_SYMBOL ||
        !torch_name_is_class(value_symbol_name(pool, call->callee)) ||
        value_kind_of(call->args) != VALUE_TUPLE || value_count(pool, call->args) != 1 ||
        torch_callee_runs_code(pool, call->callee))
        return false;
    switch (value_kind_of(value_item(pool, call->args, 0))) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_BIGINT:
    case VALUE_FLOAT:
    case VALUE_STR:
    case VALUE_BYTES:
        return true;
    default:
        return false;
    }
}

bool torch_call_is_known(const value_pool *pool, const value_call *call)
{
    if (value_kind_of(call->callee) != VALUE_SYMBOL)
        return false;
    return symbol_known(value_symbol_module(pool, call->callee),
                        value_symbol_name(pool, call->callee)) ||
           torch_call_is_enum(pool, call);
}

fsdpck_status torch_call_refuse(const value_pool *pool, const value_call *call, fsdpck_error *err)
{
    char module[128] = "", name[128] = "?";
    bool runs_code = false;

    if (value_kind_of(call->callee) == VALUE_SYMBOL) {
        const char *m = value_symbol_module(pool, call->callee);
        const char *n = value_symbol_name(pool, call->callee);
        runs_code = torch_symbol_runs_code(m, n);
        escape_text(module, sizeof(module), m, strlen(m));
        escape_text(name, sizeof(name), n, strlen(n));
    }
    text_buf shown = {.limit_bytes = 4096};
    value_print(pool, call->args, 120, &shown);
    const fsdpck_status st = FAIL_AS(
        err, FSDPCK_BADINPUT, runs_code ? FSDPCK_FINDING_PKL_GLOBAL : FSDPCK_FINDING_PKL_CALL,
        (runs_code ? "pickle would run code when loaded by Python: '%s.%s'"
                   : "pickle calls an unknown function: '%s.%s'",
         module, name),
        (found, "arguments %s", shown.text == NULL ? "()" : shown.text),
        (next, runs_code ? "do not load this file in Python; fsdpck did not call the function"
                         : "keep the call as a record with fsdpck consolidate --objects opaque; "
                           "fsdpck did not call the function"));
    text_release(&shown);
    return st;
}
