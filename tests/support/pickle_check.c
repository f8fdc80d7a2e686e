/* Pickles: an accepted one is written, read again and compared. Then it is read once more by hooks
 * that replace calls: reusing memory of replaced calls must make no difference. */
#include "tests/support/pickle_check.h"

#include <stdlib.h>
#include <string.h>

#include "formats/common/pickle.h"
#include "state/python_names.h"
#include "tests/support/must.h"

enum { MEMORY_BYTES = 64 << 20, PRINT_BYTES = 1 << 16, WRITE_BYTES = 8 << 20 };

typedef struct reading {
    budget memory;
    value_pool pool;
    value root;
    size_t used_nbytes;
    fsdpck_status st;
} reading;

static void read_pickle(reading *r, const void *bytes, size_t nbytes, const pickle_hooks *hooks)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    memset(r, 0, sizeof(*r));
    budget_init(&r->memory, MEMORY_BYTES, "metadata", NULL);
    value_pool_init(&r->pool, &r->memory);
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    r->st = pickle_read(&in, &limits, &r->pool, hooks, &r->root, &r->used_nbytes, &err);
    MUST(r->st == FSDPCK_OK || r->st == FSDPCK_BADINPUT || r->st == FSDPCK_LIMIT);
    if (r->st == FSDPCK_OK) {
        MUST(r->used_nbytes <= nbytes);
    } else {
        MUST(err.message[0] != '\0' && err.has_offset && err.offset_bytes <= nbytes);
    }
}

static void release(reading *r)
{
    value_pool_release(&r->pool);
    MUST(r->memory.used_bytes == 0);
}

/* Small limits refuse it as such, or do not matter. */
static void check_limits(const void *bytes, size_t nbytes)
{
    static const pickle_limits few[] = {
        {.max_depth = 3, .max_memo = 1u << 20, .max_stack = 1u << 20},
        {.max_depth = 1000, .max_memo = 2, .max_stack = 1u << 20},
        {.max_depth = 1000, .max_memo = 1u << 20, .max_stack = 4},
    };
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        reading r = {0};
        fsdpck_error err;
        fsdpck_error_init(&err);
        budget_init(&r.memory, MEMORY_BYTES, "metadata", NULL);
        value_pool_init(&r.pool, &r.memory);
        r.st = pickle_read(&in, &few[i], &r.pool, NULL, &r.root, &r.used_nbytes, &err);
        MUST(r.st == FSDPCK_OK || err.message[0] != '\0');
        release(&r);
    }
}

static fsdpck_status on_plain_call(void *ctx, value_pool *pool, const value_call *call, bool built,
                                   value *replacement, bool *replaced, fsdpck_error *err)
{
    (void)ctx;
    if (built)
        return FSDPCK_OK;
    RETURN_IF(pickle_plain_call(pool, call, replacement, replaced, err));
    return *replaced ? FSDPCK_OK : pickle_getattr_symbol(pool, call, replacement, replaced, err);
}

const pickle_hooks pickle_plain_hooks = {.on_call = on_plain_call};

/* --- writing --- */

typedef struct names {
    const value_pool *pool;
    bool changed; /* protocol 2 has another name for something */
} names;

static fsdpck_status inspect_name(void *ctx, value v, fsdpck_error *err)
{
    names *n = ctx;
    (void)err;
    const value_call *call = value_call_of(n->pool, v);
    if (call != NULL && call->how == CALL_NEWOBJ_EX)
        n->changed = true;
    if (value_kind_of(v) != VALUE_SYMBOL)
        return FSDPCK_OK;
    const char *module = value_symbol_module(n->pool, v);
    const char *name = value_symbol_name(n->pool, v);
    const char *old_module = module;
    const char *old_name = name;
    python2_names(&old_module, &old_name);
    n->changed = n->changed || module != old_module || name != old_name;
    return FSDPCK_OK;
}

static bool write_pickle(const reading *r, text_buf *out)
{
    *out = (text_buf){.limit_bytes = WRITE_BYTES};
    const fsdpck_status st = pickle_write(&r->pool, r->root, NULL, NULL, out, NULL);
    MUST(st == FSDPCK_OK || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT);
    return st == FSDPCK_OK;
}

static void check_writing(const reading *first)
{
    text_buf once;
    text_buf twice;
    reading second;
    names n = {.pool = &first->pool};
    bool equal = false;
    if (!write_pickle(first, &once)) {
        text_release(&once);
        return;
    }
    read_pickle(&second, once.text, once.nbytes, &pickle_plain_hooks);
    MUST(second.st == FSDPCK_OK || second.st == FSDPCK_LIMIT);
    if (second.st == FSDPCK_OK) {
        MUST(second.used_nbytes == once.nbytes);
        MUST(value_walk(&first->pool, first->root, inspect_name, &n, NULL) == FSDPCK_OK);
        MUST(value_equal(&first->pool, first->root, &second.pool, second.root, &equal, NULL) ==
             FSDPCK_OK);
        MUST(equal || n.changed);
        MUST(write_pickle(&second, &twice));
        /* An old name may be the new name of something else (dbm.ndbm, dbm, anydbm). */
        MUST(n.changed ||
             (once.nbytes == twice.nbytes && memcmp(once.text, twice.text, once.nbytes) == 0));
        text_release(&twice);
    }
    text_release(&once);
    release(&second);
}

static void check_copy(const reading *r)
{
    budget memory;
    value_pool copies;
    value copy = VALUE_OF_NONE;
    bool equal = false;
    budget_init(&memory, MEMORY_BYTES, "metadata", NULL);
    value_pool_init(&copies, &memory);
    const fsdpck_status st = value_copy(&r->pool, r->root, &copies, NULL, &copy, NULL);
    MUST(st == FSDPCK_OK || st == FSDPCK_LIMIT);
    if (st == FSDPCK_OK && value_equal(&r->pool, r->root, &copies, copy, &equal, NULL) == FSDPCK_OK)
        MUST(equal);
    value_pool_release(&copies);
    MUST(memory.used_bytes == 0);
}

/* --- replacing --- */

typedef struct replacer {
    bool keep_memory; /* replace by a value with cells, so that nothing is reused */
    uint64_t notes;
    text_buf seen; /* what the hooks were shown */
} replacer;

/* Some classes at BUILD, some when made, some never. */
static unsigned fate_of(const value_pool *pool, value callee)
{
    const char *name = value_symbol_name(pool, callee);
    return value_kind_of(callee) == VALUE_SYMBOL ? (unsigned char)name[0] % 3 : 2;
}

static fsdpck_status on_replaced_call(void *ctx, value_pool *pool, const value_call *call,
                                      bool built, value *replacement, bool *replaced,
                                      fsdpck_error *err)
{
    replacer *r = ctx;
    if (fate_of(pool, call->callee) != (built ? 0u : 1u))
        return FSDPCK_OK;
    value_print(pool, call->args, 200, &r->seen);
    if (built)
        value_print(pool, call->state, 200, &r->seen);
    *replaced = true;
    *replacement = value_of_host(++r->notes);
    if (r->keep_memory) {
        const value note = *replacement;
        return value_new_from(pool, VALUE_FROZENSET, &note, 1, replacement, err);
    }
    return FSDPCK_OK;
}

static fsdpck_status on_replaced_build(void *ctx, value_pool *pool, value host, value state,
                                       fsdpck_error *err)
{
    replacer *r = ctx;
    (void)host;
    (void)err;
    value_print(pool, state, 200, &r->seen);
    return FSDPCK_OK;
}

/* Prints without what keep_memory adds: frozenset({<note 1>}) becomes <note 1>. */
static void print_notes(const reading *r, text_buf *out)
{
    static const char around[] = "frozenset({<note ";
    text_buf text = {0};
    bool open = false;
    value_print(&r->pool, r->root, PRINT_BYTES, &text);
    for (size_t i = 0; i < text.nbytes; i++) {
        if (strncmp(text.text + i, around, sizeof(around) - 1) == 0) {
            i += sizeof("frozenset({") - 1;
            open = true;
        }
        text_append(out, text.text + i, 1);
        if (open && strncmp(text.text + i, ">})", 3) == 0) {
            i += 2;
            open = false;
        }
    }
    text_release(&text);
}

static void read_replacing(reading *r, replacer *by, const uint8_t *data, size_t size)
{
    const pickle_hooks hooks = {
        .ctx = by, .on_call = on_replaced_call, .on_build_host = on_replaced_build};
    read_pickle(r, data, size, &hooks);
}

static void check_replacing(const uint8_t *data, size_t size)
{
    replacer reuses = {0};
    replacer keeps = {.keep_memory = true};
    reading a;
    reading b;
    read_replacing(&a, &reuses, data, size);
    read_replacing(&b, &keeps, data, size);
    if (a.st == FSDPCK_OK && b.st == FSDPCK_OK) {
        text_buf text_a = {0};
        text_buf text_b = {0};
        print_notes(&a, &text_a);
        print_notes(&b, &text_b);
        MUST(reuses.notes == keeps.notes);
        if (strstr(text_a.text, "...") == NULL && strstr(text_b.text, "...") == NULL)
            MUST(text_a.nbytes == text_b.nbytes &&
                 memcmp(text_a.text, text_b.text, text_a.nbytes) == 0);
        text_release(&text_a);
        text_release(&text_b);
        check_copy(&a);
    }
    text_release(&reuses.seen);
    text_release(&keeps.seen);
    release(&a);
    release(&b);
}

bool pickle_check(const uint8_t *data, size_t size)
{
    reading plain;
    reading raw;
    size_t skimmed = 0;
    read_pickle(&plain, data, size, &pickle_plain_hooks);
    read_pickle(&raw, data, size, NULL);
    check_limits(data, size);
    if (raw.st == FSDPCK_OK) {
        const pickle_input in = {.bytes = data, .nbytes = size};
        MUST(pickle_skim(&in, &skimmed, NULL) == FSDPCK_OK && skimmed == raw.used_nbytes);
        check_copy(&raw);
    }
    if (plain.st == FSDPCK_OK)
        check_writing(&plain);
    check_replacing(data, size);
    const bool accepted = raw.st == FSDPCK_OK;
    release(&plain);
    release(&raw);
    return accepted;
}
