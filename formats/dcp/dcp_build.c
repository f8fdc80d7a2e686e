/* dcp_build.c: converts the states of BUILD to records. */
#include <string.h>

#include "formats/dcp/dcp_hooks.h"
#include "io/file.h"
#include "state/box.h"

#define WIDE_MARK (UINT32_C(1) << 31)

static fsdpck_status malformed(fsdpck_error *err, const char *record, const char *what)
{
    return FAIL(err, BADINPUT, DCP_META_TYPE, "%s in metadata: %s", record, what);
}

/* --- torch.Size --- */

fsdpck_status dcp_size_from(dcp_parser *parser, const value_pool *pool, value items, uint32_t *at,
                            fsdpck_error *err)
{
    const value_kind kind = value_kind_inline(items);
    uint64_t sizes[NDIM_MAX];

    if (dcp_note_what(items) == DCP_NOTE_SIZE) {
        *at = dcp_note_index(items);
        return FSDPCK_OK;
    }
    if (kind != VALUE_TUPLE && kind != VALUE_LIST)
        return malformed(err, "torch.Size", "expected a tuple of ints");
    size_t ndim;
    const value *cells = value_items(pool, items, &ndim);
    if (ndim > NDIM_MAX)
        return FAIL(err, BADINPUT, CHUNK_BOUNDS,
                    "torch.Size in metadata has %zu dims, torch allows %u", ndim, NDIM_MAX);
    for (size_t i = 0; i < ndim; i++) {
        const value item = cells[i];
        const value_kind item_kind = value_kind_inline(item);
        if (item_kind != VALUE_INT && item_kind != VALUE_BIGINT)
            return malformed(err, "torch.Size", "an item is not an int");
        if (!value_as_u64(pool, item, &sizes[i]))
            return FAIL(err, BADINPUT, CHUNK_BOUNDS,
                        "torch.Size in metadata holds a number that is negative or too large");
    }
    return dcp_size_add(parser->m, sizes, (unsigned)ndim, at, err);
}

fsdpck_status dcp_size_add(dcp_metadata *m, const uint64_t *sizes, unsigned ndim, uint32_t *at,
                           fsdpck_error *err)
{
    vec *dims = &m->dims;
    uint64_t all = 0;

    for (unsigned i = 0; i < ndim; i++)
        all |= sizes[i];
    const bool wide = all > UINT32_MAX;
    if (dims->count > UINT32_MAX - 1 - 2 * NDIM_MAX)
        return FAIL(err, LIMIT, PKL_LIMIT, "metadata holds too many sizes");
    uint32_t *words = vec_push_n(dims, 1 + (size_t)(wide ? 2 * ndim : ndim), err);
    if (words == NULL)
        return FSDPCK_LIMIT;
    *at = (uint32_t)(words - (uint32_t *)dims->items);
    *words++ = ndim | (wide ? WIDE_MARK : 0);
    for (unsigned i = 0; i < ndim; i++) {
        *words++ = (uint32_t)sizes[i];
        if (wide)
            *words++ = (uint32_t)(sizes[i] >> 32);
    }
    return FSDPCK_OK;
}

unsigned dcp_size_get(const dcp_metadata *m, uint32_t at, uint64_t *sizes)
{
    const uint32_t *words = VEC_AT(&m->dims, uint32_t, at);
    const unsigned ndim = *words & ~WIDE_MARK;
    const bool wide = (*words & WIDE_MARK) != 0;
    words++;
    for (unsigned i = 0; sizes != NULL && i < ndim; i++)
        sizes[i] = wide ? words[2 * i] | ((uint64_t)words[2 * i + 1] << 32) : words[i];
    return ndim;
}

bool dcp_size_is(const dcp_metadata *m, uint32_t at, const uint64_t *sizes, unsigned ndim)
{
    const uint32_t *words = VEC_AT(&m->dims, uint32_t, at);
    const bool wide = (*words & WIDE_MARK) != 0;
    bool is = (*words++ & ~WIDE_MARK) == ndim;
    for (unsigned i = 0; is && i < ndim; i++)
        is = sizes[i] == (wide ? words[2 * i] | ((uint64_t)words[2 * i + 1] << 32) : words[i]);
    return is;
}

/* Words of a record, its head included: equal sizes have equal words, since they determine the
 * width. */
size_t dcp_size_nwords(const dcp_metadata *m, uint32_t at)
{
    const uint32_t head = *VEC_AT(&m->dims, uint32_t, at);
    const size_t ndim = head & ~WIDE_MARK;
    return 1 + (head & WIDE_MARK ? 2 * ndim : ndim);
}

bool dcp_size_equal(const dcp_metadata *m, uint32_t a, uint32_t b)
{
    const uint32_t *wa = VEC_AT(&m->dims, uint32_t, a), *wb = VEC_AT(&m->dims, uint32_t, b);
    return a == b || (*wa == *wb && memcmp(wa, wb, dcp_size_nwords(m, a) * sizeof *wa) == 0);
}

uint64_t dcp_size_hash(const dcp_metadata *m, uint32_t at, uint64_t seed)
{
    const uint32_t *words = VEC_AT(&m->dims, uint32_t, at);
    uint64_t h = seed;
    for (size_t i = 0, n = dcp_size_nwords(m, at); i < n; i++) {
        h = (h ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    return h * (seed | 1);
}

dcp_entry *dcp_entry_add(dcp_metadata *m, fsdpck_error *err)
{
    if (m->entries.count >= DCP_NONE) {
        FAIL(err, LIMIT, PKL_LIMIT, "metadata holds more than 2^32 entries");
        return NULL;
    }
    dcp_entry *entry = vec_push(&m->entries, err);
    if (entry == NULL)
        return NULL;
    entry->fqn = DCP_NONE;
    entry->hint = DCP_NONE;
    entry->file = DCP_FILE_LIMIT - 1;
    return entry;
}

/* --- states --- */

/* The dict of attributes: the state itself, or the slots of a (dict or None, slots) pair. */
static bool state_dict(const value_pool *pool, value state, value *dict)
{
    if (value_kind_inline(state) == VALUE_TUPLE && value_count(pool, state) == 2) {
        const value slots = value_item(pool, state, 1);
        state = value_kind_of(slots) == VALUE_DICT ? slots : value_item(pool, state, 0);
    }
    *dict = state;
    return value_kind_inline(state) == VALUE_DICT;
}

typedef struct field {
    dcp_key key;
    bool has;
    value v;
} field;

/* Attributes by name; of two equal names the later one wins, as in Python. Writers use a fixed
 * order, so the i-th name is tried first for the i-th pair. */
static bool fields_get(const dcp_parser *parser, const value_pool *pool, value state, field *fields,
                       unsigned nfields)
{
    value dict;
    if (!state_dict(pool, state, &dict))
        return false;
    size_t count;
    const value *cells = value_items(pool, dict, &count);
    unsigned next = 0;
    for (size_t i = 0; i < count; i += 2) {
        unsigned k = next;
        next = next + 1 < nfields ? next + 1 : 0;
        for (unsigned tried = 0; tried < nfields; tried++) {
            if (parser->keys[fields[k].key] == cells[i]) {
                fields[k].has = true;
                fields[k].v = cells[i + 1];
                break;
            }
            k = k + 1 < nfields ? k + 1 : 0;
        }
    }
    return true;
}

static fsdpck_status build_chunk(dcp_parser *parser, const value_pool *pool, uint32_t index,
                                 value state, fsdpck_error *err)
{
    field f[] = {{.key = DCP_KEY_OFFSETS}, {.key = DCP_KEY_SIZES}};
    dcp_chunk made;

    if (!fields_get(parser, pool, state, f, 2) || !f[0].has || !f[1].has)
        return malformed(err, "ChunkStorageMetadata", "expected offsets and sizes");
    RETURN_IF(dcp_size_from(parser, pool, f[0].v, &made.offsets_at, err));
    RETURN_IF(dcp_size_from(parser, pool, f[1].v, &made.sizes_at, err));
    *VEC_AT(&parser->m->chunks, dcp_chunk, index) = made;
    return FSDPCK_OK;
}

static fsdpck_status build_properties(dcp_parser *parser, const value_pool *pool, uint32_t index,
                                      value state, fsdpck_error *err)
{
    dcp_properties *p = VEC_AT(&parser->m->properties, dcp_properties, index);
    field f[] = {{.key = DCP_KEY_DTYPE}};
    value symbol = VALUE_OF_NONE;

    if (value_kind_of(state) == VALUE_TUPLE && value_count(pool, state) >= 5) {
        symbol = value_item(pool, state, 0);
        if (value_count(pool, state) >= 6)
            parser->m->has_six_properties = true;
    } else if (fields_get(parser, pool, state, f, 1) && f[0].has) {
        symbol = f[0].v;
    }
    if (value_kind_of(symbol) != VALUE_SYMBOL)
        return malformed(err, "TensorProperties",
                         "expected a tuple of 5 or more that begins with a dtype");
    const char *name = value_symbol_name(pool, symbol);
    p->dtype_symbol = symbol;
    p->dtype = (uint8_t)dtype_from_name(name, strlen(name));
    return FSDPCK_OK;
}

static fsdpck_status list_new(dcp_metadata *m, uint64_t *list_note, fsdpck_error *err)
{
    RETURN_IF(
        vec_add(&m->lists, &(dcp_chunk_list){.first_run = DCP_NONE, .last_run = DCP_NONE}, err));
    *list_note = m->lists.count;
    return FSDPCK_OK;
}

static fsdpck_status list_add_run(dcp_metadata *m, dcp_chunk_list *list, uint32_t first,
                                  uint32_t count, fsdpck_error *err)
{
    if (count > DCP_NONE - 1 - list->count || m->runs.count >= DCP_NONE - 1)
        return FAIL(err, LIMIT, PKL_LIMIT, "a tensor has more than 2^32 chunks");
    list->count += count;
    dcp_run *run = list->last_run == DCP_NONE ? NULL : VEC_AT(&m->runs, dcp_run, list->last_run);
    if (run != NULL && run->first + run->count == first) {
        run->count += count;
        return FSDPCK_OK;
    }
    RETURN_IF(vec_add(&m->runs, &(dcp_run){.first = first, .count = count, .next = DCP_NONE}, err));
    const uint32_t at = (uint32_t)(m->runs.count - 1);
    if (list->last_run == DCP_NONE)
        list->first_run = at;
    else
        VEC_AT(&m->runs, dcp_run, list->last_run)->next = at;
    list->last_run = at;
    return FSDPCK_OK;
}

fsdpck_status dcp_list_add(dcp_parser *parser, const value *chunks, size_t count,
                           uint64_t *list_note, fsdpck_error *err)
{
    dcp_metadata *m = parser->m;
    if (count == 0)
        return FSDPCK_OK;
    if (*list_note == 0)
        RETURN_IF(list_new(m, list_note, err));
    for (size_t i = 0; i < count; i++)
        RETURN_IF(list_add_run(m, VEC_AT(&m->lists, dcp_chunk_list, *list_note - 1),
                               dcp_note_index(chunks[i]), 1, err));
    return FSDPCK_OK;
}

fsdpck_status dcp_list_add_run(dcp_metadata *m, uint32_t first, uint32_t count, uint64_t *list_note,
                               fsdpck_error *err)
{
    if (*list_note == 0)
        RETURN_IF(list_new(m, list_note, err));
    return list_add_run(m, VEC_AT(&m->lists, dcp_chunk_list, *list_note - 1), first, count, err);
}

static fsdpck_status tensor_chunks(dcp_parser *parser, const value_pool *pool, value list,
                                   uint32_t *made, fsdpck_error *err)
{
    const value_kind kind = value_kind_of(list);
    uint64_t note = 0;

    if (kind != VALUE_LIST && kind != VALUE_TUPLE)
        return malformed(err, "TensorStorageMetadata", "chunks is not a list");
    if (kind == VALUE_LIST)
        note = value_list_note(pool, list);
    const size_t count = value_count(pool, list);
    for (size_t i = 0; i < count; i++) {
        const value item = value_item(pool, list, i);
        if (dcp_note_what(item) != DCP_NOTE_CHUNK || (i == 0 && note != 0))
            return malformed(err, "TensorStorageMetadata",
                             "chunks contains values other than chunks");
        RETURN_IF(dcp_list_add(parser, &item, 1, &note, err));
    }
    *made = note == 0 ? DCP_NONE : (uint32_t)(note - 1);
    return FSDPCK_OK;
}

static fsdpck_status build_tensor(dcp_parser *parser, const value_pool *pool, uint32_t index,
                                  value state, fsdpck_error *err)
{
    field f[] = {{.key = DCP_KEY_PROPERTIES}, {.key = DCP_KEY_SIZE}, {.key = DCP_KEY_CHUNKS}};
    dcp_tensor made;

    if (!fields_get(parser, pool, state, f, 3) || !f[0].has || !f[1].has || !f[2].has ||
        dcp_note_what(f[0].v) != DCP_NOTE_PROPERTIES)
        return malformed(err, "TensorStorageMetadata", "expected properties, size and chunks");
    made.properties = dcp_note_index(f[0].v);
    RETURN_IF(dcp_size_from(parser, pool, f[1].v, &made.size_at, err));
    RETURN_IF(tensor_chunks(parser, pool, f[2].v, &made.list, err));
    *VEC_AT(&parser->m->tensors, dcp_tensor, index) = made;
    return FSDPCK_OK;
}

static fsdpck_status build_index(dcp_parser *parser, const value_pool *pool, uint32_t index,
                                 value state, fsdpck_error *err)
{
    field f[] = {{.key = DCP_KEY_FQN}, {.key = DCP_KEY_INDEX}, {.key = DCP_KEY_OFFSET}};
    uint32_t fqn, offsets_at = 0;
    uint64_t hint;

    if (!fields_get(parser, pool, state, f, 3) || !f[0].has || value_kind_of(f[0].v) != VALUE_STR)
        return malformed(err, "MetadataIndex", "expected a str fqn");
    RETURN_IF(dcp_parser_fqn(parser, pool, f[0].v, &fqn, err));
    if (f[2].has && !value_is_none(f[2].v))
        RETURN_IF(dcp_size_from(parser, pool, f[2].v, &offsets_at, err));
    dcp_entry *entry = VEC_AT(&parser->m->entries, dcp_entry, index);
    entry->fqn = fqn;
    entry->offsets_at = offsets_at;
    entry->hint = f[1].has && value_as_u64(pool, f[1].v, &hint) && hint < DCP_NONE ? (uint32_t)hint
                                                                                   : DCP_NONE;
    return FSDPCK_OK;
}

/* "FOLDER/TEXT" */
static fsdpck_status intern_inside(strtab *paths, const char *folder_name, const char *text,
                                   size_t nbytes, uint32_t *id, fsdpck_error *err)
{
    text_buf joined = {0};
    text_puts(&joined, folder_name);
    text_puts(&joined, "/");
    text_append(&joined, text, nbytes);
    fsdpck_status st = text_check(&joined, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(paths, joined.text, joined.nbytes, id, err);
    text_release(&joined);
    return st;
}

fsdpck_status dcp_parser_path(dcp_parser *parser, const char *text, size_t nbytes, uint32_t *id,
                              fsdpck_error *err)
{
    strtab *paths = &parser->names->paths;
    const size_t before = strtab_count(paths);

    if (parser->names->folder == NULL)
        RETURN_IF(strtab_intern(paths, text, nbytes, id, err));
    else
        RETURN_IF(intern_inside(paths, parser->names->folder, text, nbytes, id, err));
    if (strtab_count(paths) == before)
        return FSDPCK_OK;
    if (before >= DCP_FILE_LIMIT - 1)
        return FAIL(err, LIMIT, PKL_LIMIT, "metadata names more than %u files", DCP_FILE_LIMIT - 1);
    return path_check_inside(text, nbytes, FSDPCK_FINDING_DCP_PATH, err);
}

static fsdpck_status path_id(dcp_parser *parser, const value_pool *pool, value path, uint32_t *id,
                             fsdpck_error *err)
{
    size_t nbytes;
    if (value_kind_of(path) != VALUE_STR)
        return malformed(err, "_StorageInfo", "relative_path is not a str");
    const char *text = value_text(pool, path, &nbytes);
    return dcp_parser_path(parser, text, nbytes, id, err);
}

static fsdpck_status transform_id(dcp_parser *parser, const value_pool *pool, value list,
                                  uint32_t *id, fsdpck_error *err)
{
    const value_kind kind = value_kind_of(list);
    text_buf joined = {.limit_bytes = 4096};

    *id = 0;
    if (value_is_none(list))
        return FSDPCK_OK;
    if (kind != VALUE_LIST && kind != VALUE_TUPLE)
        return malformed(err, "_StorageInfo", "transform_descriptors is not a list");
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0, n = value_count(pool, list); i < n && st == FSDPCK_OK; i++) {
        const value item = value_item(pool, list, i);
        size_t nbytes;
        if (value_kind_of(item) != VALUE_STR) {
            st = malformed(err, "_StorageInfo", "a transform descriptor is not a str");
            break;
        }
        const char *text = value_text(pool, item, &nbytes);
        if (i > 0)
            text_puts(&joined, "\n");
        text_append(&joined, text, nbytes);
    }
    if (st == FSDPCK_OK)
        st = text_check(&joined, err);
    if (st == FSDPCK_OK && joined.nbytes > 0)
        st = strtab_intern(&parser->names->transforms, joined.text, joined.nbytes, id, err);
    text_release(&joined);
    if (st == FSDPCK_OK && *id > DCP_TRANSFORM_LIMIT)
        st = FAIL(err, LIMIT, PKL_LIMIT, "metadata names more than %u kinds of transforms",
                  DCP_TRANSFORM_LIMIT);
    return st;
}

static fsdpck_status build_info(dcp_parser *parser, const value_pool *pool, uint32_t index,
                                value state, fsdpck_error *err)
{
    field f[] = {{.key = DCP_KEY_RELATIVE_PATH},
                 {.key = DCP_KEY_OFFSET},
                 {.key = DCP_KEY_LENGTH},
                 {.key = DCP_KEY_TRANSFORMS}};
    uint32_t file_id, transform;
    uint64_t offset_bytes, nbytes;

    if (!fields_get(parser, pool, state, f, 4) || !f[0].has || !f[1].has || !f[2].has)
        return malformed(err, "_StorageInfo", "expected relative_path, offset and length");
    RETURN_IF(path_id(parser, pool, f[0].v, &file_id, err));
    if (!value_as_u64(pool, f[1].v, &offset_bytes) || !value_as_u64(pool, f[2].v, &nbytes))
        return FAIL(err, BADINPUT, DCP_RANGE,
                    "offset or length of a blob in '%s' is not a number of bytes",
                    strtab_text(&parser->names->paths, file_id));
    RETURN_IF(transform_id(parser, pool, f[3].has ? f[3].v : VALUE_OF_NONE, &transform, err));
    dcp_entry *entry = VEC_AT(&parser->m->entries, dcp_entry, index);
    entry->file = file_id & (DCP_FILE_LIMIT - 1);
    entry->transform = transform & DCP_TRANSFORM_LIMIT;
    entry->offset_bytes = offset_bytes;
    entry->nbytes = nbytes;
    return FSDPCK_OK;
}

fsdpck_status dcp_build(dcp_parser *parser, value_pool *pool, value note, value state,
                        fsdpck_error *err)
{
    const uint32_t index = dcp_note_index(note);
    switch (dcp_note_what(note)) {
    case DCP_NOTE_CHUNK:
        return build_chunk(parser, pool, index, state, err);
    case DCP_NOTE_TENSOR:
        return build_tensor(parser, pool, index, state, err);
    case DCP_NOTE_PROPERTIES:
        return build_properties(parser, pool, index, state, err);
    case DCP_NOTE_INDEX:
        return build_index(parser, pool, index, state, err);
    case DCP_NOTE_INFO:
        return build_info(parser, pool, index, state, err);
    case DCP_NOTE_BYTES:
        return FSDPCK_OK;
    default:
        return malformed(err, "torch.Size", "it has a state, which torch never writes");
    }
}
