#include "verify/latest_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/state_files.h"
#include "verify/step_inventory.h"

enum { OLDER_MAX = 8, LACKS_MAX = 64, LIST_NBYTES = 240 };

typedef struct older_step {
    const latest_step *first;
    step_inventory has;
} older_step;

typedef struct parts_comparison {
    const latest_step *chosen;
    step_inventory has;
    older_step older[OLDER_MAX];
    size_t older_count;
    bool without_state;
    strtab lacks;               /* names */
    const older_step *of_first; /* the newest that contains one of them */
} parts_comparison;

/* ---- the steps ---- */

static bool is_same_number(const latest_step *a, const latest_step *b)
{
    return step_name_compare(&a->name, &b->name) == 0;
}

/* All candidates of the number of list[*at]; *at: after them. */
static fsdpck_status add_number(step_inventory *s, const latest_step *list, size_t count,
                                size_t *at, fsdpck_error *err)
{
    const size_t first = *at;
    fsdpck_status st = FSDPCK_OK;
    for (; *at < count && is_same_number(&list[*at], &list[first]); ++*at)
        if (st == FSDPCK_OK && latest_step_may_count(&list[*at]))
            st = step_inventory_add(s, list[*at].path, NULL, &list[*at].name, err);
    return st;
}

/* The name of an older step's folder, with its number marked; NULL: none. */
static char *folder_of_older(const latest_step *list, size_t count, size_t at)
{
    for (size_t i = at + 1; i < count; i++) {
        const step_name *n = &list[i].name;
        const char *base = text_file_name(list[i].path);
        path_kind kind;
        if (is_same_number(&list[i], &list[at]) || list[i].is_recorded ||
            !latest_step_may_count(&list[i]) || n->end <= n->begin ||
            path_probe(NULL, list[i].path, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FOLDER)
            continue;
        text_buf marked = {0};
        text_append(&marked, base, n->begin);
        text_append(&marked, &(const char){STEP_INVENTORY_NUMBER}, 1);
        text_puts(&marked, base + n->end);
        char *copy = marked.failed || marked.text == NULL ? NULL : strdup(marked.text);
        text_release(&marked);
        return copy;
    }
    return NULL;
}

/* A folder without a number in its name, such as 'last', is compared as if it had the name of the others. A copy of it
 * beside it is another step. */
static fsdpck_status add_recorded(step_inventory *s, const latest_step *list, size_t count,
                                  size_t at, fsdpck_error *err)
{
    path_kind kind;
    char *as =
        path_probe(NULL, list[at].path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER
            ? folder_of_older(list, count, at)
            : NULL;
    const fsdpck_status st = step_inventory_add(s, list[at].path, as, &list[at].name, err);
    free(as);
    return st;
}

/* Steps without a common name are named or saved in another way. The folder itself is none. */
static bool is_alike(const step_inventory *a, const step_inventory *b)
{
    for (uint32_t i = 0; i < strtab_count(&a->patterns); i++) {
        const char *pattern = strtab_text(&a->patterns, i);
        const char *slash = strchr(pattern, '/');
        if ((slash == NULL || slash[1] != '\0') &&
            step_inventory_count(b, pattern, strtab_nbytes(&a->patterns, i)) > 0)
            return true;
    }
    return false;
}

static fsdpck_status gather(parts_comparison *p, const latest_step *list, size_t count, size_t at,
                            fsdpck_error *err)
{
    const latest_step *chosen = &list[at];
    if (chosen->is_recorded) {
        RETURN_IF(add_recorded(&p->has, list, count, at, err));
        while (at < count && is_same_number(&list[at], chosen))
            at++;
    } else {
        while (at > 0 && is_same_number(&list[at - 1], &list[at]))
            at--;
        RETURN_IF(add_number(&p->has, list, count, &at, err));
    }
    while (at < count && p->older_count < OLDER_MAX) {
        older_step *o = &p->older[p->older_count];
        o->first = &list[at];
        step_inventory_init(&o->has);
        if (add_number(&o->has, list, count, &at, NULL) == FSDPCK_OK && is_alike(&p->has, &o->has))
            p->older_count++;
        else
            step_inventory_release(&o->has);
    }
    return FSDPCK_OK;
}

/* ---- comparison ---- */

static size_t count_votes(const parts_comparison *p, const char *pattern, size_t nbytes)
{
    const uint32_t here = step_inventory_count(&p->has, pattern, nbytes);
    size_t votes = 0;
    for (size_t i = 0; i < p->older_count; i++)
        votes += step_inventory_count(&p->older[i].has, pattern, nbytes) > here;
    return votes;
}

static bool is_usual(const parts_comparison *p, const char *pattern, size_t nbytes)
{
    const size_t votes = count_votes(p, pattern, nbytes);
    return votes > 0 && 2 * votes >= p->older_count;
}

/* The topmost folder of the name that is missing, or the name. */
static size_t missing_nbytes(const parts_comparison *p, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (name[i] == '/' && strtab_find(&p->has.names, name, i + 1) == STRTAB_NONE)
            return i + 1;
    return nbytes;
}

/* Whether the chosen step has state under a name that the older one has not. */
static bool has_new_state(const parts_comparison *p, const older_step *o)
{
    const strtab *patterns = &p->has.patterns;
    for (uint32_t i = 0; i < strtab_count(&p->has.names); i++) {
        const uint32_t id = *VEC_AT(&p->has.pattern_of, const uint32_t, i);
        if (resume_state_is_name(strtab_text(&p->has.names, i)) &&
            step_inventory_count(&o->has, strtab_text(patterns, id), strtab_nbytes(patterns, id)) ==
                0)
            return true;
    }
    return false;
}

/* A folder named as state, such as 'optim', that most older steps have. The chosen step has state of this kind somewhere
 * else, as they may have too, or it would not be complete. */
static bool lacks_state_folder(const parts_comparison *p, const older_step *o, const char *pattern,
                               size_t nbytes)
{
    return pattern[nbytes - 1] == '/' && 2 * count_votes(p, pattern, nbytes) > p->older_count &&
           !has_new_state(p, o);
}

/* LATEST-STATE decides about state, wherever it is; not whether that of some ranks, or a folder of it, is missing. */
static bool is_judged_as_state(const parts_comparison *p, const older_step *o, const char *name,
                               const char *pattern, size_t nbytes)
{
    return resume_state_is_name(name) &&
           (p->without_state || (step_inventory_count(&p->has, pattern, nbytes) == 0 &&
                                 !lacks_state_folder(p, o, pattern, nbytes)));
}

static fsdpck_status compare_older(parts_comparison *p, const older_step *o, fsdpck_error *err)
{
    const step_inventory *has = &o->has;
    for (uint32_t i = 0; i < strtab_count(&has->names) && strtab_count(&p->lacks) < LACKS_MAX;
         i++) {
        const char *name = strtab_text(&has->names, i);
        const size_t nbytes = strtab_nbytes(&has->names, i);
        const uint32_t id = *VEC_AT(&has->pattern_of, const uint32_t, i);
        const char *pattern = strtab_text(&has->patterns, id);
        const size_t pattern_nbytes = strtab_nbytes(&has->patterns, id);
        uint32_t added;
        if (strtab_find(&p->has.names, name, nbytes) != STRTAB_NONE ||
            is_judged_as_state(p, o, name, pattern, pattern_nbytes) ||
            !is_usual(p, pattern, pattern_nbytes))
            continue;
        p->of_first = p->of_first == NULL ? o : p->of_first;
        RETURN_IF(strtab_intern(&p->lacks, name, missing_nbytes(p, name, nbytes), &added, err));
    }
    return FSDPCK_OK;
}

/* ---- other names ---- */

/* Bytes of the folder that contains it; the '/' at the end of a folder is not its own. */
static size_t parent_nbytes(const char *name, size_t nbytes)
{
    size_t at = nbytes - 1;
    while (at > 0 && name[at - 1] != '/')
        at--;
    return at;
}

static bool is_beside(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    return text_equal(a, parent_nbytes(a, a_nbytes), b, parent_nbytes(b, b_nbytes));
}

/* Weights that the older step has not. */
static bool is_new(const parts_comparison *p, uint32_t name)
{
    const strtab *patterns = &p->has.patterns;
    const uint32_t id = *VEC_AT(&p->has.pattern_of, const uint32_t, name);
    const char *text = strtab_text(&p->has.names, name);
    return step_inventory_count(&p->of_first->has, strtab_text(patterns, id),
                                strtab_nbytes(patterns, id)) == 0 &&
           !resume_state_is_name(text) && !trainer_state_has_name(text_file_name(text));
}

/* As many new names are at its place: the run saves the same in another way. */
static bool is_renamed(const parts_comparison *p, uint32_t lack)
{
    const strtab *lacks = &p->lacks, *names = &p->has.names;
    const char *name = strtab_text(lacks, lack);
    const size_t nbytes = strtab_nbytes(lacks, lack);
    size_t missing = 0, added = 0;
    for (uint32_t i = 0; i < strtab_count(lacks); i++)
        missing += is_beside(name, nbytes, strtab_text(lacks, i), strtab_nbytes(lacks, i));
    for (uint32_t i = 0; i < strtab_count(names); i++)
        added +=
            is_beside(name, nbytes, strtab_text(names, i), strtab_nbytes(names, i)) && is_new(p, i);
    return added >= missing;
}

/* ---- the warning ---- */

static void print_name(const latest_step *chosen, const char *name, text_buf *out)
{
    const char *base = text_file_name(chosen->path);
    text_buf full = {.limit_bytes = 4096};
    char text[256];
    if (chosen->is_recorded) { /* compared under the name of another */
        text_puts(&full, base);
        name += strcspn(name, "/");
    }
    for (; *name != '\0'; name++) {
        if (*name == STEP_INVENTORY_NUMBER && chosen->is_recorded)
            text_printf(&full, "%" PRIu64, chosen->name.step);
        else if (*name == STEP_INVENTORY_NUMBER)
            text_append(&full, base + chosen->name.begin, chosen->name.end - chosen->name.begin);
        else
            text_append(&full, name, 1);
    }
    if (!full.failed && full.text != NULL)
        text_printf(out, "%s'%s'", out->nbytes > 0 ? ", " : "",
                    escape_text(text, sizeof text, full.text, full.nbytes));
    text_release(&full);
}

static void print_warning(const parts_comparison *p, const logger *log)
{
    text_buf list = {.limit_bytes = LIST_NBYTES};
    size_t count = 0;
    for (uint32_t i = 0; i < strtab_count(&p->lacks); i++) {
        if (is_renamed(p, i))
            continue;
        print_name(p->chosen, strtab_text(&p->lacks, i), &list);
        count++;
    }
    if (count > 0 && list.text != NULL)
        log_warn(log, FSDPCK_FINDING_LATEST_PARTS, "",
                 "step '%s' lacks %zu file%s or folder%s that older steps contain, such as '%s': "
                 "%s%s",
                 text_file_name(p->chosen->path), count, text_plural(count), text_plural(count),
                 text_file_name(p->of_first->first->path), list.text, list.failed ? ", ..." : "");
    text_release(&list);
}

void latest_parts_warn(const latest_step *list, size_t count, size_t at, bool without_state,
                       const logger *log)
{
    parts_comparison *p = calloc(1, sizeof *p);
    if (p == NULL)
        return;
    p->chosen = &list[at];
    p->without_state = without_state;
    step_inventory_init(&p->has);
    strtab_init(&p->lacks, NULL);
    fsdpck_status st = gather(p, list, count, at, NULL);
    for (size_t i = 0; st == FSDPCK_OK && i < p->older_count; i++)
        st = compare_older(p, &p->older[i], NULL);
    if (st == FSDPCK_OK)
        print_warning(p, log);
    for (size_t i = 0; i < p->older_count; i++)
        step_inventory_release(&p->older[i].has);
    step_inventory_release(&p->has);
    strtab_release(&p->lacks);
    free(p);
}
