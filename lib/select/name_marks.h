/* name_marks.h: which bytes of a name a rule may change, as one letter for each byte.
 *
 * A flat name joins the keys of a path with dots. Rules change keys of dicts and names of
 * parameters; they never change a list index, a number or a key of an optimizer's state dict.
 */
#ifndef FSDPCK_SELECT_NAME_MARKS_H
#define FSDPCK_SELECT_NAME_MARKS_H

#include "base/alloc.h"

enum {
    MARK_FREE = 'f',
    MARK_DOT = '.',    /* separates two keys */
    MARK_BOUND = ',',  /* a dot beside a parameter in 'state.FQN.exp_avg', one key */
    MARK_KEY = 'k',    /* unchanged: such as 'param_groups' */
    MARK_PARAM = 'p',  /* unchanged by the rules: gets the name of its parameter in the model */
    MARK_INDEX = 'i',  /* list index */
    MARK_NUMBER = 'n', /* int key */
    MARK_DIGITS = 'd', /* digits of a number in a name without path: free, but not in place */
    MARK_RANK = 'r',   /* '.rank3' after the path */
};

/* Replaces bytes [begin, end) of the name, and adapts the marks; without marks, all bytes are free.
 * The bytes that stay the same do not count as replaced. *applied: whether the marks permit it. */
fsdpck_status name_marks_edit(text_buf *name, text_buf *marks, size_t begin, size_t end,
                              const char *text, size_t nbytes, bool *applied,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The first run of a letter; false if none. */
bool name_marks_find(const text_buf *marks, char letter, size_t *begin, size_t *end);
/* Replaces a parameter that is marked so by its name in the model. */
fsdpck_status name_marks_put_param(text_buf *name, text_buf *marks, size_t begin, size_t end,
                                   const char *text, size_t nbytes,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
