#include "formats/dcp/dcp_planner_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define KEYS_NAMED 20u
/* Many keys may share one long path. */
#define ITEM_NAME_MAX 4096u

fsdpck_status dcp_planner_path(value_pool *pool, value given, value *path, fsdpck_error *err)
{
    const value_kind kind = value_kind_of(given);
    const size_t count = value_count(pool, given);

    *path = VALUE_OF_NONE;
    if ((kind != VALUE_TUPLE && kind != VALUE_LIST) || count == 0)
        return FSDPCK_OK;
    for (size_t i = 0; i < count; i++) {
        const value_kind key = value_kind_of(value_item(pool, given, i));
        if (key != VALUE_STR && key != VALUE_INT)
            return FSDPCK_OK;
    }
    *path = given;
    if (kind == VALUE_TUPLE)
        return FSDPCK_OK;
    vec items = VEC_OF(value, pool->owner);
    value *copy = vec_push_n(&items, count, err);
    fsdpck_status st = copy != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
    if (copy != NULL) {
        for (size_t i = 0; i < count; i++)
            copy[i] = value_item(pool, given, i);
        st = value_new_from(pool, VALUE_TUPLE, copy, count, path, err);
    }
    vec_release(&items);
    return st;
}

/* A key as text, that of a number in digits; NULL for any other value. */
static const char *key_text(const value_pool *pool, value key, char digits[24], size_t *nbytes)
{
    int64_t number;

    if (value_kind_of(key) == VALUE_STR)
        return value_text(pool, key, nbytes);
    if (!value_as_i64(pool, key, &number))
        return NULL;
    *nbytes = (size_t)snprintf(digits, 24, "%" PRId64, number);
    return digits;
}

bool dcp_path_gives_name(const value_pool *pool, value path, const char *name, size_t nbytes)
{
    size_t at = 0;
    for (size_t i = 0, n = value_count(pool, path); i < n; i++) {
        char digits[24];
        size_t key_nbytes;
        const char *text = key_text(pool, value_item(pool, path, i), digits, &key_nbytes);
        if (text == NULL || (i > 0 && (at == nbytes || name[at++] != '.')))
            return false;
        if (key_nbytes > nbytes - at || memcmp(name + at, text, key_nbytes) != 0)
            return false;
        at += key_nbytes;
    }
    return at == nbytes;
}

/* Whether the keys, joined with dots, are the name of an item that has none of its own. */
static bool path_gives_item(const dcp_builder *b, value path, const uint8_t *seen,
                            const value *paths)
{
    const value_pool *pool = &b->cat->pool;
    text_buf name = {.limit_bytes = ITEM_NAME_MAX};

    for (size_t i = 0, n = value_count(pool, path); i < n && !name.failed; i++) {
        char digits[24];
        size_t nbytes;
        const char *text = key_text(pool, value_item(pool, path, i), digits, &nbytes);
        if (text == NULL)
            continue;
        if (i > 0)
            text_append(&name, ".", 1);
        text_append(&name, text, nbytes);
    }
    const uint32_t fqn = name.text == NULL || name.failed
                             ? STRTAB_NONE
                             : strtab_find(&b->names->fqns, name.text, name.nbytes);
    text_release(&name);
    return fqn != STRTAB_NONE && seen[fqn] && value_is_none(paths[fqn]);
}

/* Another planner may store a dict of its own: only where some items have keys are the rest lost. */
static fsdpck_status note_keyless(dcp_builder *b, const uint8_t *seen, const value *paths,
                                  fsdpck_error *err)
{
    const strtab *fqns = &b->names->fqns;
    bool any = false;
    uint32_t id;

    for (uint32_t i = 0; i < strtab_count(fqns) && !any; i++)
        any = seen[i] && !value_is_none(paths[i]);
    for (uint32_t i = 0; i < strtab_count(fqns) && any; i++)
        if (seen[i] && value_is_none(paths[i]))
            RETURN_IF(
                strtab_intern(&b->keyless, strtab_text(fqns, i), strtab_nbytes(fqns, i), &id, err));
    return FSDPCK_OK;
}

fsdpck_status dcp_note_unlisted(dcp_builder *b, const dcp_metadata *m, const uint8_t *seen,
                                const value *paths, fsdpck_error *err)
{
    value_pool *pool = &b->cat->pool;

    for (size_t i = 0, n = value_count(pool, m->planner); i < n; i++) {
        const value key = value_key(pool, m->planner, i);
        size_t nbytes;
        uint32_t id;
        value path;
        if (value_kind_of(key) != VALUE_STR)
            continue;
        const char *text = value_text(pool, key, &nbytes);
        const uint32_t fqn = strtab_find(&b->names->fqns, text, nbytes);
        if (fqn != STRTAB_NONE && seen[fqn])
            continue;
        RETURN_IF(dcp_planner_path(pool, value_item(pool, m->planner, i), &path, err));
        text = value_text(pool, key, &nbytes);
        /* An altered key leaves the path of the item that it belonged to. */
        if (!value_is_none(path) && (dcp_path_gives_name(pool, path, text, nbytes) ||
                                     path_gives_item(b, path, seen, paths)))
            RETURN_IF(strtab_intern(&b->unlisted, text, nbytes, &id, err));
    }
    return note_keyless(b, seen, paths, err);
}

/* torch loads such an item into a state dict that has it, so another planner may have added it. */
static void warn_keyless(const dcp_builder *b, const open_request *req)
{
    const size_t count = strtab_count(&b->keyless);
    text_buf names = {.limit_bytes = 4096};

    for (uint32_t i = 0; i < count && i < KEYS_NAMED; i++)
        text_printf(&names, "%s'%s'", i > 0 ? ", " : "", strtab_text(&b->keyless, i));
    if (count > 0)
        log_warn(&req->log, FSDPCK_FINDING_DCP_KEY_LOST,
                 "use another copy of the metadata if these names belong to dicts of the state",
                 "the metadata lacks the nested keys of %zu tensor%s or object%s, but has those of "
                 "others; without them the name is a key of the whole state: %s%s",
                 count, text_plural(count), text_plural(count),
                 names.text != NULL ? names.text : "", count > KEYS_NAMED ? ", ..." : "");
    text_release(&names);
}

fsdpck_status dcp_check_unlisted(const dcp_builder *b, const open_request *req, fsdpck_error *err)
{
    text_buf names = {.limit_bytes = 4096};
    uint64_t count = 0;
    const char *first = "";

    warn_keyless(b, req);
    for (uint32_t i = 0; i < strtab_count(&b->unlisted); i++) {
        const char *text = strtab_text(&b->unlisted, i);
        const uint32_t fqn = strtab_find(&b->names->fqns, text, strtab_nbytes(&b->unlisted, i));
        if (fqn != STRTAB_NONE && *VEC_AT(&b->listed, const uint8_t, fqn))
            continue; /* in the metadata of another rank */
        if (count == 0)
            first = text;
        if (count++ < KEYS_NAMED)
            text_printf(&names, "%s'%s'", count > 1 ? ", " : "", text);
    }
    if (count > 0 && req->assume_lost_keys)
        log_warn(&req->log, FSDPCK_FINDING_DCP_KEY_LOST,
                 "use another copy of the metadata, or an earlier checkpoint, if these keys are "
                 "required",
                 "%" PRIu64 " key%s of the state %s omitted: the metadata records neither a tensor "
                 "nor an object for %s: %s%s",
                 count, text_plural(count), count == 1 ? "is" : "are", count == 1 ? "it" : "them",
                 names.text != NULL ? names.text : "", count > KEYS_NAMED ? ", ..." : "");
    text_release(&names);
    if (count == 0 || req->assume_lost_keys)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, DCP_KEY_LOST,
                     ("the metadata lists keys of the state without a tensor or an object"),
                     (tensor, first),
                     (expected, "a tensor or an object for each key in planner_data"),
                     (found, "%" PRIu64 " key%s without one", count, text_plural(count)));
}
