#include "pickle_case.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pickle_case_read(pickle_case *c, const void *bytes, size_t nbytes, const pickle_hooks *hooks)
{
    memset(c, 0, sizeof(*c));
    budget_init(&c->memory, 256u << 20, "metadata", NULL);
    value_pool_init(&c->pool, &c->memory);
    fsdpck_error_init(&c->err);
    uint8_t *copy = malloc(nbytes > 0 ? nbytes : 1); /* so that a read past the end is seen */
    memcpy(copy, bytes, nbytes);
    const pickle_input in = {.bytes = copy, .nbytes = nbytes, .file_offset_bytes = 1000};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    c->st = pickle_read(&in, &limits, &c->pool, hooks, &c->root, &c->used_nbytes, &c->err);
    if (c->st == FSDPCK_OK)
        value_print(&c->pool, c->root, 4000, &c->text);
    free(copy);
}

void pickle_case_release(pickle_case *c)
{
    text_release(&c->text);
    value_pool_release(&c->pool);
    cr_assert_eq(c->memory.used_bytes, 0, "memory was not given back");
}

const char *pickle_case_outcome(const void *bytes, size_t nbytes, const pickle_hooks *hooks)
{
    static char outcome[5000];
    pickle_case c;
    pickle_case_read(&c, bytes, nbytes, hooks);
    if (c.st == FSDPCK_OK)
        snprintf(outcome, sizeof(outcome), "%s", c.text.text);
    else
        snprintf(outcome, sizeof(outcome), "%s%s @%" PRIu64, c.st == FSDPCK_LIMIT ? "limit " : "",
                 fsdpck_finding_name(c.err.finding),
                 c.err.has_offset ? c.err.offset_bytes - 1000 : UINT64_MAX);
    pickle_case_release(&c);
    return outcome;
}
