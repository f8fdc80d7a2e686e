#include "state/python_names.h"

#include <stdbool.h>
#include <string.h>

struct renamed {
    const char *now;
    const char *then;
};

/* Python's _compat_pickle.REVERSE_IMPORT_MAPPING (3.11). */
static const struct renamed modules[] = {
    {"builtins", "__builtin__"},
    {"copyreg", "copy_reg"},
    {"queue", "Queue"},
    {"socketserver", "SocketServer"},
    {"configparser", "ConfigParser"},
    {"reprlib", "repr"},
    {"tkinter.filedialog", "tkFileDialog"},
    {"tkinter.simpledialog", "tkSimpleDialog"},
    {"tkinter.colorchooser", "tkColorChooser"},
    {"tkinter.commondialog", "tkCommonDialog"},
    {"tkinter.dialog", "Dialog"},
    {"tkinter.dnd", "Tkdnd"},
    {"tkinter.font", "tkFont"},
    {"tkinter.messagebox", "tkMessageBox"},
    {"tkinter.scrolledtext", "ScrolledText"},
    {"tkinter.constants", "Tkconstants"},
    {"tkinter.tix", "Tix"},
    {"tkinter.ttk", "ttk"},
    {"tkinter", "Tkinter"},
    {"_markupbase", "markupbase"},
    {"winreg", "_winreg"},
    {"_thread", "thread"},
    {"_dummy_thread", "dummy_thread"},
    {"dbm.bsd", "dbhash"},
    {"dbm.dumb", "dumbdbm"},
    {"dbm.ndbm", "dbm"},
    {"dbm.gnu", "gdbm"},
    {"xmlrpc.client", "xmlrpclib"},
    {"xmlrpc.server", "SimpleXMLRPCServer"},
    {"http.client", "httplib"},
    {"html.entities", "htmlentitydefs"},
    {"html.parser", "HTMLParser"},
    {"http.cookies", "Cookie"},
    {"http.cookiejar", "cookielib"},
    {"http.server", "BaseHTTPServer"},
    {"test.support", "test.test_support"},
    {"subprocess", "commands"},
    {"urllib.parse", "urlparse"},
    {"urllib.robotparser", "robotparser"},
    {"urllib.request", "urllib2"},
    {"dbm", "anydbm"},
    {"collections.abc", "_abcoll"},
};

struct renamed_symbol {
    struct renamed module;
    struct renamed name;
};

/* The names of REVERSE_NAME_MAPPING that may occur in a checkpoint. Exceptions are left out: their
 * old names are ambiguous, and Python also reads `__builtin__`. */
static const struct renamed_symbol symbols[] = {
    {{"builtins", "__builtin__"}, {"range", "xrange"}},
    {{"builtins", "__builtin__"}, {"chr", "unichr"}},
    {{"builtins", "__builtin__"}, {"str", "unicode"}},
    {{"builtins", "__builtin__"}, {"int", "long"}},
    {{"builtins", "itertools"}, {"zip", "izip"}},
    {{"builtins", "itertools"}, {"map", "imap"}},
    {{"builtins", "itertools"}, {"filter", "ifilter"}},
    {{"itertools", "itertools"}, {"filterfalse", "ifilterfalse"}},
    {{"itertools", "itertools"}, {"zip_longest", "izip_longest"}},
    {{"functools", "__builtin__"}, {"reduce", "reduce"}},
    {{"_functools", "__builtin__"}, {"reduce", "reduce"}},
    {{"sys", "__builtin__"}, {"intern", "intern"}},
    {{"collections", "UserDict"}, {"UserDict", "IterableUserDict"}},
    {{"collections", "UserList"}, {"UserList", "UserList"}},
    {{"collections", "UserString"}, {"UserString", "UserString"}},
};

static const char *side(const struct renamed *r, bool then)
{
    return then ? r->then : r->now;
}

static void rename_symbol(const char **module, const char **name, bool to_then)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        const struct renamed_symbol *s = &symbols[i];
        if (strcmp(*module, side(&s->module, !to_then)) == 0 &&
            strcmp(*name, side(&s->name, !to_then)) == 0) {
            *module = side(&s->module, to_then);
            *name = side(&s->name, to_then);
            return;
        }
    }
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (strcmp(*module, side(&modules[i], !to_then)) == 0) {
            *module = side(&modules[i], to_then);
            return;
        }
    }
}

void python2_names(const char **module, const char **name)
{
    rename_symbol(module, name, true);
}

void python3_names(const char **module, const char **name)
{
    rename_symbol(module, name, false);
}
