#include "base/step_name.h"

#include <string.h>

#include "base/checked.h"

typedef enum word_use {
    USE_NONE, /* any other word */
    USE_CHECKPOINT,
    USE_BATCH,
    USE_EPOCH,
    USE_STEP,
    USE_VERSION,
    USE_OTHER, /* a number after it counts something else */
} word_use;

typedef struct word_row {
    const char *word;
    word_use use;
} word_row;

/* Whole words, without case. */
static const word_row word_rows[] = {
    {"step", USE_STEP},       {"steps", USE_STEP},
    {"globalstep", USE_STEP}, {"trainstep", USE_STEP},
    {"timestep", USE_STEP},   {"timesteps", USE_STEP},
    {"iter", USE_STEP},       {"iters", USE_STEP},
    {"iteration", USE_STEP},  {"iterations", USE_STEP},
    {"epoch", USE_EPOCH},     {"epochs", USE_EPOCH},
    {"batch", USE_BATCH},     {"checkpoint", USE_CHECKPOINT},
    {"ckpt", USE_CHECKPOINT}, {"v", USE_VERSION},
    {"seed", USE_OTHER},      {"rank", USE_OTHER},
    {"fold", USE_OTHER},      {"layer", USE_OTHER},
    {"expert", USE_OTHER},    {"bf", USE_OTHER},
    {"fp", USE_OTHER},        {"int", USE_OTHER},
    {"float", USE_OTHER},     {"bfloat", USE_OTHER},
    {"tp", USE_OTHER},        {"pp", USE_OTHER},
    {"dp", USE_OTHER},        {"loss", USE_OTHER},
    {"acc", USE_OTHER},       {"accuracy", USE_OTHER},
    {"wer", USE_OTHER},       {"cer", USE_OTHER},
    {"bleu", USE_OTHER},      {"lr", USE_OTHER},
    {"reward", USE_OTHER},    {"samples", USE_OTHER},
    {"tokens", USE_OTHER},    {"top", USE_OTHER},
    {"eval", USE_OTHER},      {"ep", USE_EPOCH}, /* Composer: ep1-ba500, batches of the whole run */
    {"ba", USE_STEP},
};

/* transformers, its users, and programs that write a folder before they rename it. */
static const char *const unfinished_words[] = {
    "tmp",     "temp",       "delete",     "deleted", "deleting", "old",     "bak",      "backup",
    "partial", "incomplete", "unfinished", "staging", "trash",    "corrupt", "corrupted"};
static const char *const evaluation_words[] = {"eval", "evals", "evaluation", "evaluations",
                                               "pred", "preds", "prediction", "predictions"};

typedef struct scan {
    const char *name;
    size_t nbytes, at;
    word_use word;     /* directly before `at`: only separators follow it */
    word_use previous; /* of the number before it, or USE_NONE */
    bool after_number; /* directly before `at` is a number that was read */
    unsigned plain_count;
    bool conflicts[STEP_STEP + 1];
    step_name found[STEP_STEP + 1]; /* by kind */
} scan;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Also the bytes of UTF-8. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_word(const char *text, size_t nbytes, const char *word)
{
    size_t i = 0;
    while (i < nbytes && word[i] != '\0' && lower(text[i]) == word[i])
        i++;
    return i == nbytes && word[i] == '\0';
}

static word_use use_of(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < sizeof word_rows / sizeof *word_rows; i++)
        if (is_word(text, nbytes, word_rows[i].word))
            return word_rows[i].use;
    return USE_NONE;
}

static size_t letters(const scan *s, size_t at)
{
    size_t n = 0;
    while (at + n < s->nbytes && is_letter(s->name[at + n]))
        n++;
    return n;
}

static size_t digits(const scan *s, size_t at)
{
    size_t n = 0;
    while (at + n < s->nbytes && is_digit(s->name[at + n]))
        n++;
    return n;
}

enum { GROUP_NBYTES = 3 };

/* The end of the groups of three digits after text[at..end), each after one of the separators; `end` if there are none, or
 * the digits before them are no first group. */
static size_t groups_end(const char *text, size_t nbytes, size_t at, size_t end,
                         const char *separators)
{
    size_t next = end;
    if (end == at || end - at > GROUP_NBYTES || text[at] == '0')
        return end;
    while (next + GROUP_NBYTES < nbytes && strchr(separators, text[next]) != NULL) {
        size_t n = 0;
        while (next + 1 + n < nbytes && is_digit(text[next + 1 + n]))
            n++;
        if (n != GROUP_NBYTES)
            return end;
        next += 1 + n;
    }
    return next;
}

/* "0.92", "1.2.0", "1e-05", "1e3", "7b": with fraction, exponent or unit it is no step. "1,000" is one. Returns its length. */
static size_t whole_number(const scan *s, size_t at, bool *is_step)
{
    size_t end = groups_end(s->name, s->nbytes, at, at + digits(s, at), ",");
    *is_step = true;
    while (end + 1 < s->nbytes && s->name[end] == '.' && is_digit(s->name[end + 1])) {
        *is_step = false;
        end += 1 + digits(s, end + 1);
    }
    if (end + 2 < s->nbytes && lower(s->name[end]) == 'e' &&
        (s->name[end + 1] == '-' || s->name[end + 1] == '+') && is_digit(s->name[end + 2])) {
        *is_step = false;
        end += 2 + digits(s, end + 2);
    }
    if (end + 1 < s->nbytes && lower(s->name[end]) == 'e' && is_digit(s->name[end + 1])) {
        *is_step = false;
        end += 1 + digits(s, end + 1);
    }
    const size_t unit = letters(s, end);
    const word_use use = use_of(s->name + end, unit);
    *is_step = *is_step && (unit == 0 || (use >= USE_CHECKPOINT && use <= USE_VERSION));
    return end - at;
}

static void read_number(const scan *s, size_t begin, size_t end, step_name *out)
{
    *out = (step_name){.begin = begin, .end = end};
    for (size_t i = begin; i < end && !out->is_too_large; i++)
        out->is_too_large =
            is_digit(s->name[i]) &&
            !checked_mul_add(out->step, 10, (uint64_t)(s->name[i] - '0'), &out->step);
    if (out->is_too_large)
        out->step = UINT64_MAX;
}

static void put(scan *s, step_kind kind, const step_name *number)
{
    step_name *to = &s->found[kind];
    if (to->kind == STEP_NONE) {
        *to = *number;
        to->kind = kind;
    } else if (to->step != number->step || number->is_too_large) {
        s->conflicts[kind] = true;
    }
}

static step_kind kind_of_use(word_use use)
{
    static const step_kind kinds[] = {
        [USE_NONE] = STEP_NUMBER, [USE_CHECKPOINT] = STEP_CHECKPOINT,
        [USE_BATCH] = STEP_BATCH, [USE_EPOCH] = STEP_EPOCH,
        [USE_STEP] = STEP_STEP,   [USE_VERSION] = STEP_NONE,
        [USE_OTHER] = STEP_NONE,
    };
    return kinds[use];
}

/* A plain number directly after that of a step belongs to it: "checkpoint_1_5000". */
static void take_number(scan *s, step_name *result)
{
    step_name number;
    bool is_step;
    const size_t n = whole_number(s, s->at, &is_step);
    read_number(s, s->at, s->at + n, &number);
    const step_kind kind = kind_of_use(s->word), before = kind_of_use(s->previous);
    result->has_numbers = true;
    if (is_step && s->word == USE_VERSION)
        result->version = number.step;
    else if (is_step && s->word == USE_NONE && s->after_number && before > STEP_NUMBER)
        s->found[before].minor = number.step;
    else if (is_step && kind == STEP_NUMBER) {
        s->plain_count++;
        put(s, kind, &number);
    } else if (is_step && kind != STEP_NONE)
        put(s, kind, &number);
    s->previous = is_step ? s->word : USE_OTHER;
    s->after_number = true;
    s->word = USE_NONE;
    s->at += n;
}

static void take_word(scan *s)
{
    const size_t n = letters(s, s->at);
    s->word = use_of(s->name + s->at, n);
    s->after_number = false;
    s->at += n;
}

static step_mark mark_of(const scan *s)
{
    const bool has_metric = memchr(s->name, '=', s->nbytes) != NULL;
    step_mark mark = STEP_UNMARKED;
    bool is_first = true;
    for (size_t at = 0; at < s->nbytes;) {
        const size_t n = letters(s, at);
        for (size_t i = 0; n > 0 && i < sizeof unfinished_words / sizeof *unfinished_words; i++)
            if (is_word(s->name + at, n, unfinished_words[i]))
                return STEP_UNFINISHED;
        for (size_t i = 0; n > 0 && i < sizeof evaluation_words / sizeof *evaluation_words; i++)
            if (!has_metric && (is_first || at + n == s->nbytes) &&
                is_word(s->name + at, n, evaluation_words[i]))
                mark = STEP_EVALUATION;
        is_first = is_first && n == 0;
        at += n > 0 ? n : 1;
    }
    return mark;
}

void step_name_read(const char *name, size_t nbytes, step_name *out)
{
    scan s = {.name = name, .nbytes = nbytes};
    step_kind kind = STEP_STEP;
    step_name rest = {0};
    while (s.at < nbytes) {
        if (is_digit(name[s.at]))
            take_number(&s, &rest);
        else if (is_letter(name[s.at]))
            take_word(&s);
        else
            s.at++;
    }
    while (kind > STEP_NUMBER && s.found[kind].kind == STEP_NONE)
        kind--;
    /* distil-whisper's "checkpoint-{step}-epoch-{epoch}": no run has more epochs than steps */
    const step_name *checkpoint = &s.found[STEP_CHECKPOINT];
    if (kind == STEP_EPOCH && checkpoint->kind != STEP_NONE && !s.conflicts[STEP_CHECKPOINT] &&
        checkpoint->step > s.found[STEP_EPOCH].step)
        kind = STEP_CHECKPOINT;
    *out = s.found[kind];
    if (s.conflicts[kind] || (kind == STEP_NUMBER && s.plain_count > 1))
        *out = (step_name){.kind = STEP_UNKNOWN};
    if (kind == STEP_EPOCH && s.found[STEP_BATCH].kind != STEP_NONE)
        out->minor = s.found[STEP_BATCH].step;
    out->has_epoch = s.found[STEP_EPOCH].kind != STEP_NONE && !s.conflicts[STEP_EPOCH];
    out->epoch = s.found[STEP_EPOCH].step;
    out->has_numbers = rest.has_numbers;
    out->version = rest.version;
    out->mark = mark_of(&s);
}

bool step_name_is_grouped(const char *name, size_t nbytes, const step_name *s)
{
    return s->end > s->begin && s->end <= nbytes &&
           groups_end(name, nbytes, s->begin, s->end, "_ '") > s->end;
}

int step_name_compare(const step_name *a, const step_name *b)
{
    const uint64_t x[] = {a->is_too_large, a->step, a->minor, a->version};
    const uint64_t y[] = {b->is_too_large, b->step, b->minor, b->version};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] > y[i] ? 1 : -1;
    return 0;
}

bool step_name_has_word(const step_name *s)
{
    return s->kind > STEP_NUMBER;
}

bool step_name_same_kind(const step_name *a, const step_name *b)
{
    const bool x = a->kind == STEP_STEP || a->kind == STEP_CHECKPOINT;
    const bool y = b->kind == STEP_STEP || b->kind == STEP_CHECKPOINT;
    return a->kind == b->kind || (x && y);
}

/* Without a suffix of letters, such as ".ckpt" of a folder. */
static size_t stem_nbytes(const char *name, size_t nbytes)
{
    size_t n = nbytes;
    while (n > 0 && name[n - 1] >= 'a' && name[n - 1] <= 'z')
        n--;
    return n > 1 && n < nbytes && name[n - 1] == '.' ? n - 1 : nbytes;
}

bool step_name_of_path(const char *path, size_t nbytes, step_name *out)
{
    for (size_t end = nbytes, begin; end > 0; end = begin > 0 ? begin - 1 : 0) {
        begin = end;
        while (begin > 0 && path[begin - 1] != '/')
            begin--;
        step_name_read(path + begin, stem_nbytes(path + begin, end - begin), out);
        if (step_name_has_word(out) && !out->is_too_large)
            return true;
    }
    return false;
}
