/* pt_state.h: nested states made by hand, written as .pt files.
 *
 *     pt_state s;
 *     pt_state_begin(&s);
 *     const value t = pt_state_tensor(&s, "weight", 2);   // float32: 0, 1, ...
 *     value d; value_new_dict(&s.t.cat.pool, &d, NULL) ...
 *     pt_state_write(&s, root, path);
 *     pt_state_end(&s);
 */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_PT_PT_STATE_H
#define FSDPCK_TESTS_UNIT_FORMATS_PT_PT_STATE_H

#include "formats/pt/pt.h"

typedef struct pt_state {
    budget owner;
    target t;
} pt_state;

void pt_state_begin(pt_state *s);
value pt_state_tensor(pt_state *s, const char *name, uint64_t nelems);
value pt_state_str(pt_state *s, const char *text);
value pt_state_dict(pt_state *s);
void pt_state_put(pt_state *s, value dict, const char *key, value item);
value pt_state_tuple(pt_state *s, const value *items, size_t count);
value pt_state_call(pt_state *s, const char *module, const char *name, const value *args,
                    size_t count);
value pt_state_symbol(pt_state *s, const char *module, const char *name);
fsdpck_status pt_state_write(pt_state *s, value root, const char *path, fsdpck_error *err);
void pt_state_end(pt_state *s);

#endif
