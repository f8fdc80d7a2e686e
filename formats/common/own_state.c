#include "formats/common/own_state.h"

#include <string.h>

static const char *const rng[] = {"rng", "rngs", "rngstate"};
static const char *const own[] = {
    "random",  "randomstate", "generator",   "seed",        "seeds",   "data",     "loader",
    "loaders", "dataloader",  "dataset",     "datasets",    "sampler", "samplers", "iterator",
    "worker",  "workers",     "rank",        "ranks",       "host",    "hostname", "pid",
    "device",  "local",       "trainloader", "dataiterator"};
/* Composer's Timestamp counts too, alike on all ranks: "timestamp.Timestamp.batch". */
static const char *const times[] = {"time",    "times",    "timer",     "timers",
                                    "timing",  "timings",  "timestamp", "seconds",
                                    "elapsed", "duration", "datetime"};
static const char *const counters[] = {"batch", "epoch", "iteration", "sample",
                                       "step",  "steps", "token"};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_word_in(const char *const *words, size_t count, const char *text, size_t nbytes)
{
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < nbytes && words[i][k] != '\0' && lower(text[k]) == words[i][k])
            k++;
        if (k == nbytes && words[i][k] == '\0')
            return true;
    }
    return false;
}

/* Whether a name has one of the words, between characters that are no letters. */
static bool has_word(const char *const *words, size_t count, const char *text, size_t nbytes)
{
    for (size_t from = 0, to; from < nbytes; from = to + 1) {
        for (to = from; to < nbytes && is_letter(text[to]); to++)
            ;
        if (to > from && is_word_in(words, count, text + from, to - from))
            return true;
    }
    return false;
}

static bool is_counter(const char *text, size_t nbytes)
{
    return has_word(counters, sizeof counters / sizeof *counters, text, nbytes);
}

/* counts: the last key is that of a counter. */
static bool is_own(const char *text, size_t nbytes, bool of_model, bool counts)
{
    return has_word(rng, sizeof rng / sizeof *rng, text, nbytes) ||
           (!of_model && has_word(own, sizeof own / sizeof *own, text, nbytes)) ||
           (!of_model && !counts && has_word(times, sizeof times / sizeof *times, text, nbytes));
}

bool own_state_is(const value_pool *pool, value path, bool of_model)
{
    bool counts = false;
    for (size_t i = value_count(pool, path); i-- > 0;) {
        size_t nbytes = 0;
        const value v = value_item(pool, path, i);
        const char *text = value_kind_of(v) == VALUE_STR ? value_text(pool, v, &nbytes) : NULL;
        counts = counts ||
                 (text != NULL && i + 1 == value_count(pool, path) && is_counter(text, nbytes));
        if (text != NULL && is_own(text, nbytes, of_model, counts))
            return true;
    }
    return false;
}

bool own_state_is_name(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot != NULL ? dot + 1 : name;
    return is_own(name, strlen(name), false, is_counter(last, strlen(last)));
}
