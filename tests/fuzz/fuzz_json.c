/* fuzz_json: strict JSON.
 *
 * Accepted text is written again from its tokens, compact and indented; both texts must be accepted
 * and give the same tokens. Skipping a value must accept exactly what walking accepts, and so must
 * another reader. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/must.h"
#include "tests/support/st_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Walks; writes what it sees where `out` is given. */
static bool rewrite(const char *text, size_t nbytes, text_buf *out, unsigned indent)
{
    json_reader r;
    json_writer w;
    json_token t = {.kind = JSON_NULL};
    fsdpck_error err;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_ST_JSON);
    json_writer_init(&w, out, indent);
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK) {
        st = json_next(&r, &t, &err);
        if (st != FSDPCK_OK || t.kind == JSON_END)
            break;
        must(t.offset_bytes < nbytes, "token begins behind the text");
        json_put_token(&w, &t);
    }
    if (st != FSDPCK_OK) {
        must(st == FSDPCK_BADINPUT, "refused with another status");
        must(err.has_offset && err.offset_bytes <= nbytes, "refused at no place");
        must(json_next(&r, &t, NULL) != FSDPCK_OK, "accepted after a refusal");
    }
    json_reader_release(&r);
    return st == FSDPCK_OK;
}

static void compare_tokens(const char *a, size_t a_nbytes, const text_buf *b)
{
    json_reader ra;
    json_reader rb;
    json_token ta = {.kind = JSON_NULL};
    json_token tb;
    json_reader_init(&ra, a, a_nbytes, FSDPCK_FINDING_NONE);
    json_reader_init(&rb, b->text, b->nbytes, FSDPCK_FINDING_NONE);
    while (ta.kind != JSON_END) {
        must(json_next(&ra, &ta, NULL) == FSDPCK_OK, "accepted once, refused the second time");
        must(json_next(&rb, &tb, NULL) == FSDPCK_OK, "what was written is refused");
        must(ta.kind == tb.kind, "another kind of token");
        must(ta.nbytes == tb.nbytes && (ta.nbytes == 0 || memcmp(ta.text, tb.text, ta.nbytes) == 0),
             "another text of a token");
        must(ta.is_u64 == tb.is_u64 && ta.u64 == tb.u64, "another number");
    }
    json_reader_release(&ra);
    json_reader_release(&rb);
}

static bool skips(const char *text, size_t nbytes)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_ST_JSON);
    const bool ok = json_next(&r, &t, NULL) == FSDPCK_OK && json_skip(&r, &t, NULL) == FSDPCK_OK &&
                    json_expect(&r, JSON_END, &t, NULL) == FSDPCK_OK;
    json_reader_release(&r);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    const char *text = (const char *)data;
    for (unsigned indent = 0; indent <= 2; indent += 2) {
        text_buf out = {0};
        const bool accepted = rewrite(text, nbytes, &out, indent);
        must(skips(text, nbytes) == accepted, "skipping and walking disagree");
        must(json_reference(data, nbytes) == accepted, "another reader says otherwise");
        if (accepted) {
            must(text_check(&out, NULL) == FSDPCK_OK, "the writer failed");
            compare_tokens(text, nbytes, &out);
        }
        text_release(&out);
    }
    return 0;
}
