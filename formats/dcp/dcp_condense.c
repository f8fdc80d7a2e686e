#include "formats/dcp/dcp_condense.h"

#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_condense_internal.h"
#include "state/value_map.h"

/* Sizes that were stored last, by their hash: layers have the same shapes. */
#define SIZE_SLOTS 8192u
/* An argument of more bytes than this is not in the window. */
#define ARGUMENT_MOST (DCP_LOOK - 16)

typedef struct condenser {
    dcp_metadata *m;
    dcp_condensed *c;
    dcp_window w;
    dcp_roles roles;
    uint64_t memoized;
    size_t kept_from; /* in the window: opcodes from here on are to be kept */
    bool in_part;     /* the opcodes before w.at are of the last part */
    bool stopped;
    bool has_index; /* the last entry has no info yet */
    /* Of the opcodes that are kept. */
    uint8_t last_op;
    dcp_role attribute, named; /* that the last str names: an attribute, a class */
    dcp_role callee;           /* the class that was made or fetched last */
    /* Words */
    vec next_text; /* uint32_t: the text after this one */
    uint32_t last_fqn;
    value_map memo_words; /* memo entry + 1 -> position in fetched_words, + 1 */
    uint32_t last_memo_word;
    uint32_t size_slots[SIZE_SLOTS];
} condenser;

/* --- records --- */

static fsdpck_status put_size(condenser *t, const dcp_raw_size *size, uint32_t *at)
{
    uint64_t h = size->ndim;
    *at = 0;
    if (!size->has)
        return FSDPCK_OK;
    for (unsigned i = 0; i < size->ndim; i++)
        h = (h ^ size->dims[i]) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t *slot = &t->size_slots[h >> 51];
    if (*slot == 0 || !dcp_size_is(t->m, *slot, size->dims, size->ndim))
        RETURN_IF(dcp_size_add(t->m, size->dims, size->ndim, slot, NULL));
    *at = *slot;
    return FSDPCK_OK;
}

static bool is_utf8(const uint8_t *text, size_t nbytes)
{
    uint32_t c;
    for (size_t i = 0; i < nbytes;) {
        const unsigned n = utf8_decode(text + i, nbytes - i, &c);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static fsdpck_status new_text(condenser *t, const dcp_raw_text *text, uint32_t *word)
{
    strtab *texts = &t->c->texts;
    const size_t before = strtab_count(texts);
    RETURN_IF(strtab_intern(texts, (const char *)text->text, text->nbytes, word, NULL));
    if (strtab_count(texts) == before)
        return FSDPCK_OK;
    if (!is_utf8(text->text, text->nbytes) || before >= DCP_WORD_IS_MEMO - 1)
        return DCP_ODD;
    return vec_add(&t->next_text, &(uint32_t){0}, NULL);
}

static fsdpck_status memo_word(condenser *t, uint32_t memo, uint32_t *word)
{
    vec *words = &t->c->fetched_words;
    if (memo >= t->memoized)
        return DCP_ODD;
    /* In the same order as before, with ranks in turn. */
    uint32_t at = t->last_memo_word;
    if (at >= words->count || *VEC_AT(words, uint64_t, at) != memo)
        at = at + 1 < words->count ? at + 1 : 0;
    if (at >= words->count || *VEC_AT(words, uint64_t, at) != memo) {
        uint64_t *slot = value_map_put(&t->memo_words, (uint64_t)memo + 1, NULL, NULL);
        if (slot == NULL || words->count >= DCP_WORD_IS_MEMO - 1)
            return DCP_ODD;
        if (*slot == 0) {
            RETURN_IF(vec_add(words, &(uint64_t){memo}, NULL));
            RETURN_IF(vec_add(&t->c->gaps.fetched, &(uint64_t){memo}, NULL));
            *slot = words->count;
        }
        at = (uint32_t)(*slot - 1);
    }
    t->last_memo_word = at;
    *word = at | DCP_WORD_IS_MEMO;
    return FSDPCK_OK;
}

/* Names come in the same order from each rank, or many times in a row. */
static fsdpck_status fqn_word(condenser *t, const dcp_raw_text *text, uint32_t *word)
{
    const strtab *texts = &t->c->texts;
    if (text->text == NULL)
        return memo_word(t, text->memo, word);
    if (t->last_fqn < strtab_count(texts)) {
        *word = t->last_fqn;
        if (strtab_is(texts, *word, (const char *)text->text, text->nbytes))
            return FSDPCK_OK;
        *word = *VEC_AT(&t->next_text, uint32_t, *word);
        if (strtab_is(texts, *word, (const char *)text->text, text->nbytes)) {
            t->last_fqn = *word;
            return FSDPCK_OK;
        }
    }
    RETURN_IF(new_text(t, text, word));
    if (t->last_fqn < strtab_count(texts))
        *VEC_AT(&t->next_text, uint32_t, t->last_fqn) = *word;
    t->last_fqn = *word;
    return FSDPCK_OK;
}

static fsdpck_status put_chunk(condenser *t, const dcp_raw_record *r)
{
    dcp_chunk made;
    RETURN_IF(put_size(t, &r->offsets, &made.offsets_at));
    RETURN_IF(put_size(t, &r->sizes, &made.sizes_at));
    return vec_add(&t->m->chunks, &made, NULL);
}

static fsdpck_status put_entry(condenser *t, const dcp_raw_record *r)
{
    uint32_t file;
    dcp_entry made = {.hint = (uint32_t)r->hint,
                      .has_info = 1,
                      .paired = 1,
                      .offset_bytes = r->offset_bytes,
                      .nbytes = r->nbytes};
    RETURN_IF(put_size(t, &r->offsets, &made.offsets_at));
    RETURN_IF(fqn_word(t, &r->fqn, &made.fqn));
    if (r->path.text != NULL)
        RETURN_IF(new_text(t, &r->path, &file));
    else
        RETURN_IF(memo_word(t, r->path.memo, &file));
    made.file = file & (DCP_FILE_LIMIT - 1);
    t->has_index = false;
    return vec_add(&t->m->entries, &made, NULL);
}

/* --- opcodes that are kept --- */

static fsdpck_status keep(condenser *t, size_t end)
{
    return vec_add_n(&t->c->kept, t->w.bytes + t->kept_from, end - t->kept_from, NULL);
}

static fsdpck_status begin_part(condenser *t, const dcp_raw_record *r)
{
    const vec *records = r->pairs ? &t->m->entries : &t->m->chunks;
    dcp_part part = {
        .first = (uint32_t)records->count, .per_record = r->memoized, .pairs = r->pairs};
    memcpy(part.places, r->places, sizeof part.places);
    if (t->c->parts.count >= DCP_NONE)
        return DCP_ODD;
    RETURN_IF(keep(t, t->w.at));
    RETURN_IF(vec_add(&t->c->kept, &(uint8_t){PICKLE_GAP}, NULL));
    RETURN_IF(vec_add(&t->c->gaps.gaps, &(pickle_gap){.pairs = r->pairs}, NULL));
    return vec_add(&t->c->parts, &part, NULL);
}

/* The record at w.at, if it has a known form. A part begins only where a batch of items may be under
 * way: after MARK, or after another object. */
static fsdpck_status take_record(condenser *t, bool *taken)
{
    dcp_raw_record r;
    const size_t n = dcp_record_match(&t->roles, t->w.bytes + t->w.at, &r);
    const vec *records = r.pairs ? &t->m->entries : &t->m->chunks;

    *taken = n > 0 && (t->in_part || t->last_op == OP_MARK || t->last_op == OP_BUILD);
    if (!*taken)
        return FSDPCK_OK;
    if (records->count >= DCP_NONE - 1)
        return DCP_ODD;
    const dcp_part *last =
        t->in_part ? VEC_AT(&t->c->parts, dcp_part, t->c->parts.count - 1) : NULL;
    if (last == NULL || last->pairs != r.pairs || last->per_record != r.memoized ||
        memcmp(last->places, r.places, sizeof r.places) != 0)
        RETURN_IF(begin_part(t, &r));
    RETURN_IF(r.pairs ? put_entry(t, &r) : put_chunk(t, &r));
    VEC_AT(&t->c->parts, dcp_part, t->c->parts.count - 1)->count++;
    VEC_AT(&t->c->gaps.gaps, pickle_gap, t->c->gaps.gaps.count - 1)->memoized += r.memoized;
    t->memoized += r.memoized;
    t->w.at += n;
    t->kept_from = t->w.at;
    t->in_part = true;
    return dcp_window_passed(&t->w, t->w.at - n) ? FSDPCK_OK : DCP_ODD;
}

static fsdpck_status add_role(condenser *t, dcp_role role)
{
    size_t i = t->memoized % DCP_ROLE_SLOTS;
    if (t->c->roles.count >= DCP_ROLES_MAX || t->memoized >= UINT32_MAX)
        return DCP_ODD;
    while (t->roles.memo1[i] != 0)
        i = (i + 1) % DCP_ROLE_SLOTS;
    t->roles.memo1[i] = (uint32_t)t->memoized + 1;
    t->roles.role[i] = (uint8_t)role;
    RETURN_IF(vec_add(&t->c->gaps.fetched, &(uint64_t){t->memoized}, NULL));
    return vec_add(&t->c->roles, &(dcp_named){t->memoized, role}, NULL);
}

static fsdpck_status note_memoize(condenser *t)
{
    dcp_role role = DCP_ROLE_NONE;
    if (t->last_op == OP_SHORT_BINUNICODE) {
        role = t->attribute;
    } else if (t->last_op == OP_STACK_GLOBAL) {
        role = t->callee = t->named;
    }
    if (role != DCP_ROLE_NONE)
        RETURN_IF(add_role(t, role));
    t->memoized++;
    return FSDPCK_OK;
}

/* A record that is made by opcodes that are kept: its place. */
static fsdpck_status note_newobj(condenser *t)
{
    dcp_metadata *m = t->m;
    switch (t->callee) {
    case DCP_ROLE_CHUNK:
        return vec_push(&m->chunks, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    case DCP_ROLE_INFO:
        if (t->has_index) {
            t->has_index = false;
            return FSDPCK_OK;
        }
        return dcp_entry_add(m, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    case DCP_ROLE_INDEX:
        t->has_index = true;
        return dcp_entry_add(m, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
    default:
        return FSDPCK_OK;
    }
}

/* Length of an opcode with a counted argument; 0: unknown opcode. */
static size_t counted_nbytes(const uint8_t *p)
{
    switch (p[0]) {
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINBYTES:
        return 2u + p[1];
    case OP_BINUNICODE:
    case OP_BINBYTES:
        return 5u + (size_t)load_le32(p + 1);
    default:
        return 0;
    }
}

/* By opcode, of those without a counted argument. */
static const uint8_t fixed_nbytes[256] = {
    [OP_MARK] = 1,        [OP_POP] = 1,          [OP_POP_MARK] = 1,   [OP_DUP] = 1,
    [OP_NONE] = 1,        [OP_BINPERSID] = 1,    [OP_REDUCE] = 1,     [OP_APPEND] = 1,
    [OP_BUILD] = 1,       [OP_DICT] = 1,         [OP_EMPTY_DICT] = 1, [OP_APPENDS] = 1,
    [OP_LIST] = 1,        [OP_EMPTY_LIST] = 1,   [OP_SETITEM] = 1,    [OP_TUPLE] = 1,
    [OP_EMPTY_TUPLE] = 1, [OP_SETITEMS] = 1,     [OP_NEWOBJ] = 1,     [OP_TUPLE1] = 1,
    [OP_TUPLE2] = 1,      [OP_TUPLE3] = 1,       [OP_NEWTRUE] = 1,    [OP_NEWFALSE] = 1,
    [OP_EMPTY_SET] = 1,   [OP_ADDITEMS] = 1,     [OP_FROZENSET] = 1,  [OP_NEWOBJ_EX] = 1,
    [OP_MEMOIZE] = 1,     [OP_STACK_GLOBAL] = 1, [OP_STOP] = 1,       [OP_BININT1] = 2,
    [OP_BINGET] = 2,      [OP_BININT2] = 3,      [OP_BININT] = 5,     [OP_LONG_BINGET] = 5,
    [OP_BINFLOAT] = 9};

/* Notes what one opcode tells of classes and names. */
static fsdpck_status note_opcode(condenser *t, const uint8_t *p)
{
    const uint8_t op = p[0];
    switch (op) {
    case OP_MEMOIZE:
        return note_memoize(t);
    case OP_SHORT_BINUNICODE:
        t->attribute = dcp_role_by_name(p + 2, p[1], false);
        t->named = dcp_role_by_name(p + 2, p[1], true);
        return FSDPCK_OK;
    case OP_BINGET:
    case OP_LONG_BINGET:
        t->callee = dcp_role_of(&t->roles, op == OP_BINGET ? p[1] : load_le32(p + 1));
        return FSDPCK_OK;
    case OP_NEWOBJ:
        return t->last_op == OP_EMPTY_TUPLE ? note_newobj(t) : FSDPCK_OK;
    case OP_STOP:
        t->stopped = true;
        return FSDPCK_OK;
    default:
        return FSDPCK_OK;
    }
}

/* One opcode that is kept. */
static fsdpck_status pass_opcode(condenser *t)
{
    const uint8_t *p = t->w.bytes + t->w.at;
    const size_t n = fixed_nbytes[p[0]] > 0 ? fixed_nbytes[p[0]] : counted_nbytes(p);
    if (n == 0 || n > ARGUMENT_MOST || n > t->w.end - t->w.at)
        return DCP_ODD;
    RETURN_IF(note_opcode(t, p));
    t->last_op = p[0];
    t->in_part = false;
    t->w.at += n;
    return dcp_window_passed_one(&t->w) ? FSDPCK_OK : DCP_ODD;
}

static fsdpck_status condense(condenser *t)
{
    while (!t->stopped) {
        RETURN_IF(keep(t, t->w.at));
        RETURN_IF(dcp_window_fill(&t->w));
        t->kept_from = 0;
        while (!t->stopped && !dcp_window_is_low(&t->w)) {
            const uint8_t op = t->w.bytes[t->w.at];
            bool taken = false;
            if (op == OP_BINGET || op == OP_LONG_BINGET)
                RETURN_IF(take_record(t, &taken));
            if (!taken)
                RETURN_IF(pass_opcode(t));
        }
    }
    /* STOP is the last byte, also of the last frame. */
    if (!t->w.whole || t->w.at != t->w.end || t->w.ncuts > 0)
        return DCP_ODD;
    return keep(t, t->w.at);
}

fsdpck_status dcp_condense(const dcp_bytes *from, dcp_metadata *m, dcp_condensed *c)
{
    budget *const owner = m->owner;
    *c = (dcp_condensed){
        .kept = VEC_OF(uint8_t, owner),
        .gaps = {.gaps = VEC_OF(pickle_gap, owner),
                 .fetched = VEC_OF(uint64_t, owner),
                 .whole_nbytes = from->nbytes},
        .parts = VEC_OF(dcp_part, owner),
        .roles = VEC_OF(dcp_named, owner),
        .fetched_words = VEC_OF(uint64_t, owner),
    };
    strtab_init(&c->texts, owner);
    condenser *t = budget_alloc(owner, sizeof *t, NULL);
    if (t == NULL)
        return DCP_ODD;
    t->m = m;
    t->c = c;
    t->next_text = VEC_OF(uint32_t, owner);
    t->last_fqn = DCP_NONE;
    t->memo_words = VALUE_MAP(owner);
    fsdpck_status st = dcp_window_open(&t->w, from, owner);
    if (st == FSDPCK_OK)
        st = condense(t);
    dcp_window_release(&t->w);
    vec_release(&t->next_text);
    value_map_release(&t->memo_words);
    budget_free(owner, t, sizeof *t);
    return st == FSDPCK_OK ? FSDPCK_OK : DCP_ODD;
}

pickle_input dcp_condensed_input(const dcp_condensed *c)
{
    return (pickle_input){.bytes = c->kept.items, .nbytes = c->kept.count, .gaps = &c->gaps};
}

void dcp_condensed_release(dcp_condensed *c)
{
    VEC_RELEASE_ALL(&c->kept, &c->gaps.gaps, &c->gaps.fetched, &c->parts, &c->roles,
                    &c->fetched_words);
    strtab_release(&c->texts);
}
