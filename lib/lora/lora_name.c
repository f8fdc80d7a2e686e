/* lora_name.c: one name of a tensor, taken apart. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

#define PREFIX "base_model.model."

bool lora_name_next(const char *name, size_t nbytes, size_t *at, size_t *begin, size_t *end)
{
    if (*at > nbytes)
        return false;
    const char *dot = memchr(name + *at, '.', nbytes - *at);
    *begin = *at;
    *end = dot == NULL ? nbytes : (size_t)(dot - name);
    *at = *end + 1;
    return true;
}

size_t lora_name_prefix(const char *name, size_t nbytes)
{
    const size_t n = strlen(PREFIX);
    for (size_t i = 0; i + n <= nbytes; i++)
        if ((i == 0 || name[i - 1] == '.') && memcmp(name + i, PREFIX, n) == 0)
            return i + n;
    return 0;
}

/* Whether a segment belongs to another method, or to a part of LoRA with unknown arithmetic. */
static bool is_foreign(const char *text, size_t nbytes)
{
    static const char *const begins[] = {"lora_", "ia3_",  "hada_",    "lokr_",     "oft_",
                                         "boft_", "vera_", "randlora", "fourierft", "hra_"};
    static const char *const words[] = {"prompt_encoder", "trainable_tokens_delta",
                                        "adaption_prompt"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const size_t n = strlen(begins[i]);
        if (nbytes >= n && memcmp(text, begins[i], n) == 0)
            return true;
    }
    return TEXT_IS_IN(text, nbytes, words);
}

/* The rest of the name after a mark: a name of an adapter, which has no dot, then one of two endings.
 * Without either, the mark itself ends the name. */
static bool parse_tail(lora_name *n, size_t at, const char *first, const char *second)
{
    const size_t nbytes = n->nbytes > at ? n->nbytes - at : 0;
    const char *rest = n->name + (n->nbytes - nbytes);
    const char *const ends[] = {first, second};
    n->adapter = "";
    n->adapter_nbytes = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *end = ends[i];
        if (end == NULL)
            continue;
        n->tail = end;
        if (text_is(rest, nbytes, end[0] == '.' ? end + 1 : end))
            return end[0] == '.' || n->nbytes < at;
        const size_t longer = strlen(end);
        if (nbytes <= longer || !text_ends_with(rest, nbytes, end) ||
            memchr(rest, '.', nbytes - longer) != NULL)
            continue;
        n->adapter = rest;
        n->adapter_nbytes = nbytes - longer;
        return true;
    }
    return false;
}

static uint32_t parse_mark(lora_name *n, size_t begin, size_t end)
{
    static const struct {
        const char *word;
        lora_role role;
        bool is_embedding;
        const char *first, *second;
    } marks[] = {
        {"lora_A", LORA_ROLE_A, false, ".weight", ".bias"},
        {"lora_B", LORA_ROLE_B, false, ".weight", ".bias"},
        {"lora_embedding_A", LORA_ROLE_A, true, "", NULL},
        {"lora_embedding_B", LORA_ROLE_B, true, "", NULL},
        {"lora_magnitude_vector", LORA_ROLE_MAGNITUDE, false, ".weight", ""},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!text_is(n->name + begin, end - begin, marks[i].word))
            continue;
        if (!parse_tail(n, end + 1, marks[i].first, marks[i].second))
            return LORA_ROLE_FOREIGN;
        n->is_embedding = marks[i].is_embedding;
        n->mark = n->name + begin;
        n->mark_nbytes = end - begin;
        if (strcmp(n->tail, ".bias") == 0)
            return marks[i].role == LORA_ROLE_A ? LORA_ROLE_A_BIAS : LORA_ROLE_B_BIAS;
        return marks[i].role;
    }
    return LORA_ROLE_BASE;
}

/* NAME.KEY after modules_to_save, trainable_tokens_delta after token_adapter. */
static uint32_t parse_wrapper(lora_name *n, size_t begin, size_t end)
{
    static const char delta[] = "trainable_tokens_delta";
    const size_t nbytes = end - begin;
    const size_t left = n->nbytes > end ? n->nbytes - end - 1 : 0;
    const char *rest = n->name + (n->nbytes - left);
    if (text_is(n->name + begin, nbytes, "original_module") && left > 0) {
        n->mark = rest;
        n->mark_nbytes = left;
        return LORA_ROLE_ORIGINAL;
    }
    if (text_is(n->name + begin, nbytes, "modules_to_save") && left > 0) {
        const char *dot = memchr(rest, '.', left);
        if (dot == NULL) /* a second name that PEFT's file has for a bias */
            return LORA_ROLE_BASE;
        if (dot == rest || (size_t)(dot + 1 - rest) == left)
            return LORA_ROLE_FOREIGN;
        n->adapter = rest;
        n->adapter_nbytes = (size_t)(dot - rest);
        n->mark = dot + 1;
        n->mark_nbytes = left - n->adapter_nbytes - 1;
        return LORA_ROLE_SAVED;
    }
    const size_t m = sizeof delta - 1;
    if (!text_is(n->name + begin, nbytes, "token_adapter") || left < m ||
        memcmp(rest, delta, m) != 0 || (left > m && rest[m] != '.'))
        return LORA_ROLE_BASE;
    n->mark = n->name + begin;
    n->mark_nbytes = nbytes + 1 + m;
    return parse_tail(n, end + 1 + m + 1, "", NULL) ? LORA_ROLE_TOKENS : LORA_ROLE_FOREIGN;
}

void lora_name_parse(const char *name, size_t nbytes, lora_name *n)
{
    const size_t prefix = lora_name_prefix(name, nbytes);
    *n = (lora_name){
        .role = LORA_ROLE_BASE, .name = name + prefix, .nbytes = nbytes - prefix, .adapter = ""};
    n->tail = "";
    size_t at = 0, begin, end;
    while (n->role == LORA_ROLE_BASE && lora_name_next(n->name, n->nbytes, &at, &begin, &end)) {
        if (begin < 2)
            continue; /* the model itself is no module with a name */
        n->role = parse_mark(n, begin, end);
        if (n->role == LORA_ROLE_BASE)
            n->role = parse_wrapper(n, begin, end);
        if (n->role == LORA_ROLE_BASE && prefix > 0 && is_foreign(n->name + begin, end - begin))
            n->role = LORA_ROLE_FOREIGN;
        if (n->role != LORA_ROLE_BASE)
            n->wrapped_nbytes = begin - 1;
    }
}

uint32_t lora_role_of_name(const char *name, size_t nbytes)
{
    lora_name n;
    lora_name_parse(name, nbytes, &n);
    return n.role;
}

void lora_name_append_saved(const lora_name *n, text_buf *out)
{
    text_puts(out, PREFIX);
    if (n->role == LORA_ROLE_BASE || n->role == LORA_ROLE_ORIGINAL ||
        n->role == LORA_ROLE_FOREIGN) {
        text_append(out, n->name, n->nbytes);
        return;
    }
    text_append(out, n->name, n->wrapped_nbytes + 1);
    text_append(out, n->mark, n->mark_nbytes);
    if (n->role != LORA_ROLE_MAGNITUDE)
        text_puts(out, n->tail);
}

void lora_name_append_base(const strtab *wrappers, const char *name, size_t nbytes, text_buf *out)
{
    static const char *const added[] = {"base_layer", "original_module", "token_adapter"};
    size_t at = 0, begin, end;
    bool first = true;
    while (lora_name_next(name, nbytes, &at, &begin, &end)) {
        if (begin > 0 && TEXT_IS_IN(name + begin, end - begin, added) &&
            strtab_find(wrappers, name, begin - 1) != STRTAB_NONE)
            continue;
        if (!first)
            text_puts(out, ".");
        text_append(out, name + begin, end - begin);
        first = false;
    }
}
