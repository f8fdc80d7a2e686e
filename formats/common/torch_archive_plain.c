#include <string.h>

#include "base/bytes.h"
#include "formats/common/torch_archive_internal.h"

/* A DCP folder holds tens of thousands of pickles of this form. The parts that vary are read here
 * without a pool or a memo; on false the caller uses the pickle machine. */
typedef struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
    bool has_value; /* on top of the stack, not a mark or nothing */
    size_t nbytes;  /* of the pickle */
} cursor;

static const uint8_t *take(cursor *c, size_t nbytes)
{
    if (c->failed || (size_t)(c->end - c->at) < nbytes) {
        c->failed = true;
        return NULL;
    }
    c->at += nbytes;
    return c->at - nbytes;
}

/* This form fetches nothing from the memo, so stored values do not matter. Check only that there is
 * a value to store and that the index is valid, as the machine does. */
static void skip_puts(cursor *c)
{
    while (!c->failed && c->has_value && c->at < c->end && (*c->at == 'q' || *c->at == 'r')) {
        const bool is_long = *c->at == 'r';
        const uint8_t *p = take(c, is_long ? 5 : 2);
        if (p != NULL && (is_long ? load_le32(p + 1) : p[1]) >= c->nbytes)
            c->failed = true;
    }
}

static uint8_t next_opcode(cursor *c)
{
    skip_puts(c);
    const uint8_t *p = take(c, 1);
    c->has_value = p != NULL && *p != '(';
    return p == NULL ? 0 : *p;
}

static void expect(cursor *c, uint8_t opcode)
{
    if (next_opcode(c) != opcode)
        c->failed = true;
}

static const char *line(cursor *c, size_t *nbytes)
{
    if (c->failed)
        return NULL;
    const uint8_t *newline = memchr(c->at, '\n', (size_t)(c->end - c->at));
    if (newline == NULL) {
        c->failed = true;
        return NULL;
    }
    const char *text = (const char *)c->at;
    *nbytes = (size_t)(newline - c->at);
    c->at = newline + 1;
    return text;
}

/* GLOBAL of this module; its name. */
static const char *global(cursor *c, const char *module, size_t *name_nbytes)
{
    size_t n = 0;

    expect(c, 'c');
    const char *found = line(c, &n);
    if (found == NULL || n != strlen(module) || memcmp(found, module, n) != 0)
        c->failed = true;
    return line(c, name_nbytes);
}

static void expect_global(cursor *c, const char *module, const char *name)
{
    size_t n = 0;
    const char *found = global(c, module, &n);

    if (found == NULL || n != strlen(name) || memcmp(found, name, n) != 0)
        c->failed = true;
}

static const char *text(cursor *c, size_t *nbytes)
{
    expect(c, 'X');
    const uint8_t *p = take(c, 4);
    if (p == NULL)
        return NULL;
    *nbytes = load_le32(p);
    p = take(c, *nbytes);
    for (size_t i = 0; p != NULL && i < *nbytes; i++)
        if (p[i] >= 0x80) /* the machine checks that it is UTF-8 */
            c->failed = true;
    return (const char *)p;
}

static void integer_of(cursor *c, uint8_t opcode, uint64_t *v)
{
    const uint8_t *p;
    uint8_t wide[8] = {0};

    switch (opcode) {
    case 'K':
        *v = (p = take(c, 1)) == NULL ? 0 : *p;
        return;
    case 'M':
        *v = (p = take(c, 2)) == NULL ? 0 : load_le16(p);
        return;
    case 'J':
        *v = (p = take(c, 4)) == NULL ? 0 : load_le32(p);
        break;
    case 0x8A:
        p = take(c, 1);
        const size_t n = p == NULL ? 0 : *p;
        p = take(c, n);
        if (p == NULL || n == 0 || n > 8) {
            c->failed = true;
            return;
        }
        memcpy(wide, p, n);
        *v = load_le64(wide);
        if (p[n - 1] & 0x80)
            c->failed = true;
        return;
    default:
        c->failed = true;
        return;
    }
    if (*v > INT32_MAX)
        c->failed = true;
}

static void integer(cursor *c, uint64_t *v)
{
    integer_of(c, next_opcode(c), v);
}

/* (), or up to three integers and TUPLE1..3, or MARK, integers, TUPLE. */
static unsigned dims(cursor *c, uint64_t *out)
{
    uint8_t opcode = next_opcode(c);
    const bool marked = opcode == '(';
    unsigned n = 0;

    if (opcode == ')')
        return 0;
    if (marked)
        opcode = next_opcode(c);
    for (; !c->failed; opcode = next_opcode(c)) {
        if (marked ? opcode == 't' : opcode >= 0x85 && opcode <= 0x87)
            break;
        if (n == NDIM_MAX || (!marked && n == 3)) {
            c->failed = true;
            return 0;
        }
        integer_of(c, opcode, &out[n++]);
    }
    if (!marked && opcode != 0x84 + n)
        c->failed = true;
    return n;
}

static void storage(cursor *c, plain_pickle *p, dtype *d)
{
    size_t n = 0, location_nbytes = 0;
    uint64_t nelems = 0;

    expect(c, '(');
    const char *tag = text(c, &n);
    if (tag == NULL || n != 7 || memcmp(tag, "storage", 7) != 0) {
        c->failed = true;
        return;
    }
    const uint8_t *before = c->at;
    const char *name = global(c, "torch", &n);
    if (c->failed) {
        *c = (cursor){.at = before, .end = c->end, .has_value = true, .nbytes = c->nbytes};
        expect_global(c, "torch.storage", "UntypedStorage");
        *d = DTYPE_UINT8;
    } else {
        *d = dtype_from_storage_class(name, n);
    }
    const char *key = text(c, &n);
    const char *location = text(c, &location_nbytes);
    integer(c, &nelems);
    expect(c, 't');
    expect(c, 'Q');
    if (c->failed || *d == DTYPE_NONE || n == 0 || n >= sizeof(p->key) ||
        memchr(key, '/', n) != NULL || memchr(key, 0, n) != NULL || key[0] == '.' ||
        (location_nbytes == 4 && memcmp(location, "meta", 4) == 0) ||
        torch_storage_nbytes(*d, nelems, &p->claim.storage_nbytes, NULL) != FSDPCK_OK) {
        c->failed = true;
        return;
    }
    memcpy(p->key, key, n);
    p->key[n] = '\0';
}

bool torch_plain_pickle_match(const uint8_t *bytes, size_t nbytes, plain_pickle *p)
{
    cursor c = {.at = bytes, .end = bytes + nbytes, .nbytes = nbytes};
    declared_tensor *claim = &p->claim;
    size_t n = 0;

    const uint8_t *proto = take(&c, 2);
    if (proto == NULL || proto[0] != 0x80 || proto[1] != 2)
        return false;
    const char *name = global(&c, "torch._utils", &n);
    const bool v3 = name != NULL && n == 18 && memcmp(name, "_rebuild_tensor_v3", n) == 0;
    if (!v3 && !(name != NULL && n == 18 && memcmp(name, "_rebuild_tensor_v2", n) == 0))
        return false;
    expect(&c, '(');
    storage(&c, p, &claim->dtype);
    integer(&c, &claim->offset_nelems);
    claim->ndim = dims(&c, claim->sizes);
    if (dims(&c, claim->strides) != claim->ndim)
        return false;
    const uint8_t grad = next_opcode(&c);
    if (grad != 0x88 && grad != 0x89)
        return false;
    expect_global(&c, "collections", "OrderedDict");
    expect(&c, ')');
    expect(&c, 'R');
    if (v3) {
        name = global(&c, "torch", &n);
        claim->dtype = name == NULL ? DTYPE_NONE : dtype_from_name(name, n);
    }
    expect(&c, 't');
    expect(&c, 'R');
    expect(&c, '.');
    p->nbytes = (size_t)(c.at - bytes);
    return !c.failed && claim->dtype != DTYPE_NONE &&
           declared_tensor_check(claim, NULL) == FSDPCK_OK;
}
