#include "open/open_record.h"

#include <string.h>

#include "base/checked.h"

/* Texts of a log_line, in this order, each with its NUL; nbytes 0: NULL. */
enum { TEXT, NEXT, FOLDER, MISSING, TEXTS };

/* Before the texts of a line, or an fsdpck_error. */
typedef struct record_head {
    uint32_t is_finding;
    uint32_t level; /* log_level or format_severity */
    uint32_t finding;
    uint32_t nbytes[TEXTS];
} record_head;

void open_record_init(open_record *r, format_found_fn found, void *found_ctx)
{
    *r = (open_record){.bytes = VEC_OF(uint8_t, NULL), .found = found, .found_ctx = found_ctx};
    (void)pthread_mutex_init(&r->lock, NULL);
}

void open_record_release(open_record *r)
{
    vec_release(&r->bytes);
    pthread_mutex_destroy(&r->lock);
}

static bool add(open_record *r, const void *bytes, size_t nbytes)
{
    return vec_add_n(&r->bytes, bytes, nbytes, NULL) == FSDPCK_OK;
}

void open_record_line(open_record *r, const log_line *line)
{
    const char *const texts[TEXTS] = {line->text, line->next, line->folder, line->missing};
    record_head head = {.level = (uint32_t)line->level, .finding = (uint32_t)line->finding};
    for (unsigned i = 0; i < TEXTS; i++)
        head.nbytes[i] = texts[i] == NULL ? 0 : (uint32_t)strlen(texts[i]) + 1;
    pthread_mutex_lock(&r->lock);
    bool is_kept = add(r, &head, sizeof head);
    for (unsigned i = 0; i < TEXTS; i++)
        is_kept = is_kept && add(r, texts[i], head.nbytes[i]);
    r->lost = r->lost || !is_kept;
    pthread_mutex_unlock(&r->lock);
}

void open_record_found(void *ctx, format_severity severity, const fsdpck_error *what)
{
    open_record *r = ctx;
    const record_head head = {.is_finding = 1, .level = (uint32_t)severity};
    pthread_mutex_lock(&r->lock);
    const bool is_kept = add(r, &head, sizeof head) && add(r, what, sizeof *what);
    r->lost = r->lost || !is_kept;
    pthread_mutex_unlock(&r->lock);
    r->found(r->found_ctx, severity, what);
}

static fsdpck_status fail_form(fsdpck_error *err)
{
    return FAIL(err, INTERNAL, NONE, "record of another rank's messages has another form");
}

static fsdpck_status replay_finding(const record_head *head, const uint8_t *bytes, uint64_t nbytes,
                                    format_found_fn found, void *found_ctx, fsdpck_error *err)
{
    fsdpck_error what;
    if (nbytes < sizeof what || head->level > FORMAT_ERROR || found == NULL)
        return fail_form(err);
    memcpy(&what, bytes, sizeof what);
    found(found_ctx, (format_severity)head->level, &what);
    return FSDPCK_OK;
}

static fsdpck_status replay_line(const record_head *head, const uint8_t *bytes, uint64_t nbytes,
                                 const logger *log, uint64_t *used, fsdpck_error *err)
{
    const char *texts[TEXTS];
    for (unsigned i = 0; i < TEXTS; i++) {
        const uint64_t n = head->nbytes[i];
        if (!checked_range(*used, n, nbytes) || (n > 0 && bytes[*used + n - 1] != '\0'))
            return fail_form(err);
        texts[i] = n > 0 ? (const char *)bytes + *used : NULL;
        *used += n;
    }
    if (texts[TEXT] == NULL || texts[NEXT] == NULL)
        return fail_form(err);
    const log_line line = {.level = (log_level)head->level,
                           .finding = (fsdpck_finding_id)head->finding,
                           .text = texts[TEXT],
                           .next = texts[NEXT],
                           .folder = texts[FOLDER],
                           .missing = texts[MISSING]};
    if (log->fn != NULL)
        log->fn(log->ctx, &line);
    return FSDPCK_OK;
}

fsdpck_status open_record_replay(const vec *bytes, const logger *log, format_found_fn found,
                                 void *found_ctx, fsdpck_error *err)
{
    const uint8_t *from = bytes->items;
    for (uint64_t at = 0; at < bytes->count;) {
        record_head head;
        uint64_t used = 0;
        if (!checked_range(at, sizeof head, bytes->count))
            return fail_form(err);
        memcpy(&head, from + at, sizeof head);
        at += sizeof head;
        if (head.is_finding) {
            RETURN_IF(replay_finding(&head, from + at, bytes->count - at, found, found_ctx, err));
            used = sizeof(fsdpck_error);
        } else {
            RETURN_IF(replay_line(&head, from + at, bytes->count - at, log, &used, err));
        }
        at += used;
    }
    return FSDPCK_OK;
}
