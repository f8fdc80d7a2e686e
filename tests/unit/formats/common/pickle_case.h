/* A pickle read from a literal, for the tests of pickle.h. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_COMMON_PICKLE_CASE_H
#define FSDPCK_TESTS_UNIT_FORMATS_COMMON_PICKLE_CASE_H

#include "formats/common/pickle.h"
#include "tests/support/pickle_check.h"

typedef struct pickle_case {
    budget memory;
    value_pool pool;
    value root;
    size_t used_nbytes;
    fsdpck_status st;
    fsdpck_error err;
    text_buf text; /* printed form */
} pickle_case;

void pickle_case_read(pickle_case *c, const void *bytes, size_t nbytes, const pickle_hooks *hooks);
/* Also checks that all memory was given back. */
void pickle_case_release(pickle_case *c);

/* What reading gives: the printed value, or "FINDING @offset". Released by the next call. */
const char *pickle_case_outcome(const void *bytes, size_t nbytes, const pickle_hooks *hooks);

#define OUTCOME(literal) pickle_case_outcome((literal), sizeof(literal) - 1, NULL)
#define PLAIN_OUTCOME(literal) \
    pickle_case_outcome((literal), sizeof(literal) - 1, &pickle_plain_hooks)

#endif
