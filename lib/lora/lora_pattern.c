/* lora_pattern.c: keys of rank_pattern and alpha_pattern, which are regular expressions of Python. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "lora/lora_internal.h"

/* Steps of one match: real keys need some hundred. */
#define MATCH_LIMIT 1000000u

static fsdpck_status refuse(const char *key, int number, fsdpck_error *err)
{
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(number, why, sizeof why);
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG, ("'%s' is no pattern of module names", key),
                     (found, "%s", (const char *)why),
                     (next, "correct the key in adapter_config.json: it is a regular expression"));
}

fsdpck_status lora_pattern_compile(const char *key, size_t nbytes, bool whole, void **code,
                                   fsdpck_error *err)
{
    text_buf re = {.limit_bytes = 1u << 20};
    char shown[200];
    int number = 0;
    PCRE2_SIZE where;
    *code = NULL;
    text_puts(&re, whole ? "(?:" : "(.*\\.)?(");
    text_append(&re, key, nbytes);
    text_puts(&re, ")$");
    fsdpck_status st = text_check(&re, err);
    if (st == FSDPCK_OK) {
        *code = pcre2_compile((PCRE2_SPTR)re.text, re.nbytes,
                              PCRE2_ANCHORED | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF |
                                  PCRE2_NEVER_BACKSLASH_C | (whole ? PCRE2_DOLLAR_ENDONLY : 0),
                              &number, &where, NULL);
        if (*code == NULL)
            st = refuse(escape_text(shown, sizeof shown, key, nbytes), number, err);
    }
    text_release(&re);
    return st;
}

fsdpck_status lora_pattern_match(const void *code, const char *path, size_t nbytes, bool *matches,
                                 fsdpck_error *err)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    fsdpck_status st = FSDPCK_OK;
    char shown[200];
    *matches = false;
    if (data == NULL || context == NULL) {
        st = error_set_nomem(err, 0);
    } else {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        const int found = pcre2_match(code, (PCRE2_SPTR)path, nbytes, 0, 0, data, context);
        *matches = found > 0;
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            st = refuse(escape_text(shown, sizeof shown, path, nbytes), found, err);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    return st;
}

void lora_pattern_free(void *code)
{
    pcre2_code_free(code);
}
