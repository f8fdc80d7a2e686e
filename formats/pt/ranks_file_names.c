/* Selects the files of one checkpoint in a folder, one per rank, by their names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "formats/pt/pt.h"
#include "formats/pt/ranks_internal.h"

enum { GENERIC = RANKS_TRAINER_FAMILIES, NUMBER_DIGITS = 9 };

/* A parsed name. */
typedef struct parts {
    unsigned order; /* of its family: index in ranks_trainer_families, GENERIC */
    uint64_t rank, world, number;
    size_t rank_at, rank_nbytes; /* digits of the rank in the name */
    char key[64];
    const char *trainer;
    const char *prefix; /* of all names of the family; NULL: the text before the rank */
} parts;

static size_t read_number(const char *text, uint64_t *number)
{
    size_t n = 0;
    *number = 0;
    while (text[n] >= '0' && text[n] <= '9' && n < NUMBER_DIGITS)
        *number = *number * 10 + (uint64_t)(text[n++] - '0');
    return n;
}

static bool matches(const char *pattern, const char *name, parts *p)
{
    const char *at = name;
    p->rank_nbytes = 0;
    p->world = 0;
    p->number = 0;
    while (*pattern != '\0') {
        uint64_t number;
        if (pattern[0] != '{' || pattern[1] == '\0' || pattern[2] != '}' ||
            strchr("rWi", pattern[1]) == NULL) {
            if (*at++ != *pattern++)
                return false;
            continue;
        }
        const size_t n = read_number(at, &number);
        if (n == 0)
            return false;
        if (pattern[1] == 'r') {
            p->rank = number;
            p->rank_at = (size_t)(at - name);
            p->rank_nbytes = n;
        } else if (pattern[1] == 'W') {
            p->world = number;
        } else {
            p->number = number;
        }
        at += n;
        pattern += 3;
    }
    return *at == '\0' && p->rank_nbytes > 0;
}

static bool ends_with_weights(const char *name)
{
    static const char *const suffixes[] = {".pt", ".pth", ".bin", ".ckpt"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t m = strlen(suffixes[i]);
        if (n > m && strcmp(name + n - m, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* Position of the number of ranks in a text. */
typedef struct world_text {
    size_t word_at;    /* "world_size_8": the word */
    size_t at, nbytes; /* its digits */
    uint64_t world;    /* 0: it does not */
} world_text;

static bool is_separator(char c)
{
    return c != '\0' && strchr("_-=.", c) != NULL;
}

/* "world_size_8", "world-size8", "world8" in text[0..nbytes). */
static world_text find_world(const char *text, size_t nbytes)
{
    world_text w = {0};
    for (const char *word = text; (word = strstr(word, "world")) != NULL; word++) {
        const char *at = word + strlen("world");
        if (is_separator(at[0]) && strncmp(at + 1, "size", 4) == 0)
            at += 5;
        at += is_separator(*at);
        w.nbytes = read_number(at, &w.world);
        w.word_at = (size_t)(word - text);
        w.at = (size_t)(at - text);
        if (w.nbytes > 0 && w.at + w.nbytes <= nbytes)
            return w;
    }
    return (world_text){0};
}

/* After the rank: the same, or "_of_8". */
static world_text find_world_after(const char *text)
{
    const size_t of = is_separator(text[0]) ? 1 : 0;
    world_text w = {0};
    if (strncmp(text + of, "of", 2) != 0)
        return find_world(text, strlen(text));
    w.at = of + 2 + is_separator(text[of + 2]);
    w.nbytes = read_number(text + w.at, &w.world);
    return w.nbytes > 0 ? w : (world_text){0};
}

/* "weights_world_size_8_" -> "weights", and its 8; "" if nothing is left. */
static void stem_of(const char *name, size_t nbytes, parts *p)
{
    const world_text before = find_world(name, nbytes);
    p->world = before.world > 0 ? before.world
                                : find_world_after(name + p->rank_at + p->rank_nbytes).world;
    if (before.world > 0)
        nbytes = before.word_at;
    while (nbytes > 0 && strchr("_-.=", name[nbytes - 1]) != NULL)
        nbytes--;
    if (nbytes >= sizeof p->key)
        nbytes = sizeof p->key - 1;
    memcpy(p->key, name, nbytes);
    p->key[nbytes] = '\0';
}

/* metaseq's 'checkpoint_last-model_part-0-shard3.pt', '...-shard3.pt': "-shard", a number, the end. */
static bool shard(const char *name, parts *p)
{
    const char *found = strstr(name, "-shard");
    if (found == NULL)
        return false;
    const char *digits = found + 6;
    *p = (parts){.order = GENERIC, .trainer = ""};
    p->rank_nbytes = read_number(digits, &p->rank);
    p->rank_at = (size_t)(digits - name);
    stem_of(name, (size_t)(found - name), p);
    return p->rank_nbytes > 0 && digits[p->rank_nbytes] == '.';
}

/* Any name with "rank", perhaps a separator, and a number. Files of tensor parallel ranks
 * (mp_rank_00: Megatron, DeepSpeed) and low-rank adapters are different. */
static bool generic(const char *name, parts *p)
{
    const char *found = NULL;
    ranks_replica r;
    if (ranks_replica_name(name, &r)) {
        *p = (parts){.order = GENERIC,
                     .trainer = "",
                     .rank = r.rank,
                     .world = r.world,
                     .rank_at = r.rank_at,
                     .rank_nbytes = r.rank_nbytes,
                     .prefix = RANKS_REPLICA_PREFIX};
        return true;
    }
    if (!ends_with_weights(name) || strstr(name, "mp_rank") != NULL ||
        strstr(name, "pp_rank") != NULL || strstr(name, "lora") != NULL ||
        strstr(name, "adapter") != NULL)
        return false;
    for (const char *at = name; (at = strstr(at, "rank")) != NULL; at++)
        found = at;
    if (found == NULL)
        return shard(name, p);
    const char *digits = found + 4;
    if (*digits != '\0' && strchr("_-=.", *digits) != NULL)
        digits++;
    *p = (parts){.order = GENERIC, .trainer = ""};
    p->rank_nbytes = read_number(digits, &p->rank);
    p->rank_at = (size_t)(digits - name);
    stem_of(name, (size_t)(found - name), p);
    return p->rank_nbytes > 0;
}

static bool take_apart(const char *name, const char *pattern, parts *p)
{
    if (pattern != NULL) {
        *p = (parts){.trainer = ""};
        return matches(pattern, name, p);
    }
    for (unsigned i = 0; i < RANKS_TRAINER_FAMILIES; i++) {
        const ranks_trainer_family *known = &ranks_trainer_families[i];
        *p = (parts){.order = i, .trainer = known->trainer};
        if (!matches(known->pattern, name, p))
            continue;
        if (p->number > 0)
            snprintf(p->key, sizeof p->key, "%s_%" PRIu64, known->key, p->number);
        else
            snprintf(p->key, sizeof p->key, "%s", known->key);
        return true;
    }
    return generic(name, p);
}

/* Whether the word and its number stand alone: not in "frank_7b.pt". */
static bool is_rank_alone(const char *name, const parts *p)
{
    const char after = name[p->rank_at + p->rank_nbytes];
    size_t begin = p->rank_at;
    if (p->prefix != NULL)
        return true;
    if (begin > 0 && is_separator(name[begin - 1]))
        begin--;
    while (begin > 0 && name[begin - 1] >= 'a' && name[begin - 1] <= 'z')
        begin--;
    const size_t word = strncmp(name + begin, "rank", 4) == 0    ? 4
                        : strncmp(name + begin, "shard", 5) == 0 ? 5
                                                                 : 0;
    return word > 0 && p->rank < MESH_RANKS_MAX && is_separator(after) &&
           begin + word + (is_separator(name[begin + word]) ? 1 : 0) == p->rank_at &&
           (begin == 0 || is_separator(name[begin - 1]));
}

bool ranks_names_any(char *const *entries, size_t count, const char **sample)
{
    size_t generic_count = 0;
    bool first_rank = false; /* or a later one, which shows that rank 0 is missing */
    parts p;
    for (size_t i = 0; i < count; i++) {
        if (!take_apart(entries[i], NULL, &p))
            continue;
        if (generic_count == 0 || p.order != GENERIC)
            *sample = entries[i];
        if (p.order != GENERIC)
            return true;
        generic_count++;
        first_rank = first_rank || p.rank == 0 || is_rank_alone(entries[i], &p);
    }
    return first_rank || generic_count > 1;
}

bool ranks_name_is_known(const char *name)
{
    parts p;
    return take_apart(name, NULL, &p) && p.order != GENERIC;
}

bool ranks_name_is_generic(const char *name)
{
    parts p;
    return take_apart(name, NULL, &p) && p.order == GENERIC;
}

bool ranks_name_has_rank(const char *name, bool *known)
{
    parts p;
    const bool has = take_apart(name, NULL, &p);
    *known = has && p.order != GENERIC;
    return *known || (has && is_rank_alone(name, &p));
}

/* --- families --- */

static void family_release(ranks_family *f)
{
    free(f->prefix);
    free(f->suffix);
}

static fsdpck_status mixed(const ranks_family *f, const char *name, fsdpck_error *err)
{
    char first[512];
    ranks_file_name(f, 0, first, sizeof first);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, RANK_MIXED, ("folder holds rank files of two saves"),
                  (expected, "names like '%s'", first), (found, "also '%s'", name));
    if (f->trainer[0] == '\0')
        error_next(
            err,
            "give --source-rank-pattern '%s{r}%s', or a pattern for the others, or move the files "
            "of one save",
            f->prefix, f->suffix);
    return st;
}

static bool family_has(const ranks_family *f, const char *name, const parts *p)
{
    if (p->prefix != NULL)
        return strcmp(f->prefix, p->prefix) == 0 && f->world == p->world;
    return strncmp(f->prefix, name, p->rank_at) == 0 && f->prefix[p->rank_at] == '\0' &&
           strcmp(f->suffix, name + p->rank_at + p->rank_nbytes) == 0;
}

static fsdpck_status family_of(ranks_list *l, const char *name, const parts *p, uint32_t *index,
                               fsdpck_error *err)
{
    for (size_t i = 0; i < l->families.count; i++) {
        const ranks_family *f = VEC_AT(&l->families, const ranks_family, i);
        *index = (uint32_t)i;
        if (family_has(f, name, p))
            return FSDPCK_OK;
        if (strcmp(f->key, p->key) == 0)
            return mixed(f, name, err);
    }
    ranks_family *f = vec_push(&l->families, err);
    if (f == NULL)
        return FSDPCK_LIMIT;
    *index = (uint32_t)(l->families.count - 1);
    *f = (ranks_family){.world = p->world, .trainer = p->trainer};
    memcpy(f->key, p->key, sizeof f->key);
    ranks_save_stem(f->key, f->stem, sizeof f->stem);
    f->prefix = p->prefix != NULL ? strdup(p->prefix) : strndup(name, p->rank_at);
    f->suffix = strdup(name + p->rank_at + p->rank_nbytes);
    if (f->prefix == NULL || f->suffix == NULL)
        return error_set_nomem(err, strlen(name));
    if (p->rank_nbytes > 1 && name[p->rank_at] == '0')
        f->digits = (unsigned)p->rank_nbytes;
    return FSDPCK_OK;
}

static fsdpck_status add_name(ranks_list *l, const char *name, const parts *p, fsdpck_error *err)
{
    uint32_t family;
    if (p->rank >= MESH_RANKS_MAX || p->world > MESH_RANKS_MAX)
        return FAIL_WITH(err, LIMIT, LIMIT_COUNT, ("rank in a file name is too large: '%s'", name),
                         (expected, "at most %u", MESH_RANKS_MAX));
    RETURN_IF(family_of(l, name, p, &family, err));
    ranks_file *f = vec_push(&l->files, err);
    if (f == NULL)
        return FSDPCK_LIMIT;
    *f = (ranks_file){.family = family, .rank = (uint32_t)p->rank, .name = name};
    return FSDPCK_OK;
}

static int by_family_and_rank(const void *a, const void *b)
{
    const ranks_file *x = a, *y = b;
    if (x->family != y->family)
        return x->family < y->family ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Names of tensors begin with it, which are text in every format. */
static fsdpck_status check_key(const char *key, fsdpck_error *err)
{
    const size_t nbytes = strlen(key);
    for (size_t at = 0; at < nbytes;) {
        uint32_t c;
        const unsigned n = utf8_decode((const uint8_t *)key + at, nbytes - at, &c);
        if (n == 0 || utf8_hidden(c))
            return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                             ("folder has several sets of rank files, and a file name is not UTF-8 "
                              "or has hidden characters"),
                             (next, "rename the files, or give --source-rank-pattern"));
        at += n;
    }
    return FSDPCK_OK;
}

/* The key is the first element of every path: with one family it is omitted. */
static fsdpck_status name_families(ranks_list *l, fsdpck_error *err)
{
    if (l->families.count == 1) {
        VEC_AT(&l->families, ranks_family, 0)->key[0] = '\0';
        return FSDPCK_OK;
    }
    RETURN_IF(ranks_check_saves(l, err));
    for (size_t i = 0; i < l->families.count; i++) {
        ranks_family *f = VEC_AT(&l->families, ranks_family, i);
        if (f->key[0] == '\0')
            memcpy(f->key, "rank", 5);
        RETURN_IF(check_key(f->key, err));
        for (size_t k = 0; k < i; k++) {
            const ranks_family *other = VEC_AT(&l->families, const ranks_family, k);
            if (strcmp(other->key, f->key) == 0)
                return mixed(other, f->prefix, err);
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status check_doubles(const ranks_list *l, fsdpck_error *err)
{
    for (size_t i = 1; i < l->files.count; i++) {
        const ranks_file *a = VEC_AT(&l->files, const ranks_file, i - 1);
        const ranks_file *b = VEC_AT(&l->files, const ranks_file, i);
        if (a->family != b->family || a->rank != b->rank)
            continue;
        return FAIL_WITH(err, BADINPUT, RANK_DOUBLE, ("two files belong to rank %" PRIu32, a->rank),
                         (found, "'%s' and '%s'", a->name, b->name));
    }
    return FSDPCK_OK;
}

static fsdpck_status pattern_check(const char *pattern, fsdpck_error *err)
{
    if (pattern == NULL || strstr(pattern, "{r}") != NULL)
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE, ("pattern of rank files does not contain the rank"),
                     (found, "'%s'", pattern),
                     (expected, "'{r}' in it, such as 'model_rank_{r}.pt'"));
}

/* Known families come in the order of the table, whatever the order of names. */
static fsdpck_status gather(ranks_list *l, char *const *entries, size_t count, const char *pattern,
                            fsdpck_error *err)
{
    parts p;
    bool any_known = false;
    for (size_t i = 0; i < count && pattern == NULL; i++)
        any_known = any_known || (take_apart(entries[i], NULL, &p) && p.order != GENERIC);
    for (unsigned order = 0; order <= GENERIC; order++) {
        /* Beside a trainer's own files, others with a rank in their name are not its state. */
        if (order == GENERIC && any_known)
            break;
        for (size_t i = 0; i < count; i++)
            if (take_apart(entries[i], pattern, &p) && p.order == order)
                RETURN_IF(add_name(l, entries[i], &p, err));
    }
    return FSDPCK_OK;
}

/* "world2_rank3.pt" does not mean rank 3 of 2: "world2" is part of the model's name. */
static void check_suspect_worlds(ranks_list *l)
{
    for (size_t i = 0; i < l->files.count; i++) {
        const ranks_file *of_rank = VEC_AT(&l->files, const ranks_file, i);
        ranks_family *f = VEC_AT(&l->families, ranks_family, of_rank->family);
        if (f->trainer[0] == '\0' && of_rank->rank >= f->world &&
            strstr(f->prefix, "world_size_") == NULL &&
            strcmp(f->prefix, RANKS_REPLICA_PREFIX) != 0)
            f->world = 0;
    }
}

fsdpck_status ranks_list_make(ranks_list *l, char *const *entries, size_t count,
                              const char *pattern, fsdpck_error *err)
{
    RETURN_IF(pattern_check(pattern, err));
    RETURN_IF(gather(l, entries, count, pattern, err));
    if (l->files.count == 0)
        return FAIL_WITH(err, BADINPUT, RANK_NONE, ("folder holds no rank files"),
                         (expected, "names like '%s'",
                          pattern != NULL ? pattern : "model_world_size_{W}_rank_{r}.pt"));
    if (pattern == NULL)
        check_suspect_worlds(l);
    RETURN_IF(name_families(l, err));
    qsort(l->files.items, l->files.count, sizeof(ranks_file), by_family_and_rank);
    return check_doubles(l, err);
}

bool ranks_family_pattern(const ranks_family *f, const char *given, char *pattern, size_t capacity)
{
    const world_text none = {0};
    const world_text before = f->world > 0 ? find_world(f->prefix, strlen(f->prefix)) : none;
    const world_text after = f->world > 0 ? find_world_after(f->suffix) : none;
    int n;

    if (given != NULL) {
        n = strstr(given, "{i}") != NULL ? 0 : snprintf(pattern, capacity, "%s", given);
    } else if (strpbrk(f->prefix, "{}") != NULL || strpbrk(f->suffix, "{}") != NULL) {
        n = 0;
    } else if (before.world > 0) {
        n = snprintf(pattern, capacity, "%.*s{W}%s{r}%s", (int)before.at, f->prefix,
                     f->prefix + before.at + before.nbytes, f->suffix);
    } else if (after.world > 0) {
        n = snprintf(pattern, capacity, "%s{r}%.*s{W}%s", f->prefix, (int)after.at, f->suffix,
                     f->suffix + after.at + after.nbytes);
    } else {
        n = snprintf(pattern, capacity, "%s{r}%s", f->prefix, f->suffix);
    }
    if (n <= 0 || (size_t)n >= capacity)
        pattern[0] = '\0';
    return pattern[0] != '\0';
}

void ranks_list_release(ranks_list *l)
{
    for (size_t i = 0; i < l->families.count; i++)
        family_release(VEC_AT(&l->families, ranks_family, i));
    vec_release(&l->families);
    vec_release(&l->files);
}

void ranks_file_name(const ranks_family *f, uint64_t rank, char *name, size_t capacity)
{
    snprintf(name, capacity, "%s%0*" PRIu64 "%s", f->prefix, (int)f->digits, rank, f->suffix);
}

uint64_t ranks_name_world_size(const char *name)
{
    parts p;
    bool known;
    return ranks_name_has_rank(name, &known) && take_apart(name, NULL, &p) ? p.world : 0;
}
