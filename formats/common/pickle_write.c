#include "formats/common/pickle_opcodes.h"
#include "formats/common/pickle_write_internal.h"
#include "state/value_cells.h"

/* A value whose parts are being written. */
enum frame_kind {
    FRAME_ITEMS, /* of a list, in batches */
    FRAME_PAIRS, /* of a dict, in batches */
    FRAME_TUPLE,
    FRAME_SET,
    FRAME_CALL
};

struct frame {
    value v;
    size_t next;    /* next part, or phase */
    uint32_t batch; /* items (pairs) of the batch that is open */
    uint32_t kind;  /* enum frame_kind */
};

enum {
    BATCH_MOST = 1000, /* as Python's pickler */
    BEGUN_MOST = 100   /* how often an immutable value may be begun inside itself */
};

static void push_frame(pickle_writer *w, enum frame_kind kind, value v)
{
    if (w->st != FSDPCK_OK)
        return;
    struct frame *frame = vec_push(&w->frames, w->err);
    if (frame == NULL) {
        w->st = FSDPCK_LIMIT;
        return;
    }
    frame->v = v;
    frame->kind = kind;
}

static void put_symbol(pickle_writer *w, value v)
{
    pickle_put_global(w, value_symbol_module(w->pool, v), value_symbol_name(w->pool, v));
}

/* Protocol 2 has no opcode for bytes. */
static void put_byte_string(pickle_writer *w, value v)
{
    size_t nbytes = 0;
    const uint8_t *bytes = (const uint8_t *)value_text(w->pool, v, &nbytes);
    if (pickle_put_known(w, v))
        return;
    if (nbytes == 0) {
        pickle_put_global(w, "builtins", "bytes");
        pickle_put_tuple(w, 0);
    } else {
        pickle_put_global(w, "_codecs", "encode");
        pickle_put_latin1(w, bytes, nbytes);
        pickle_put_memo_unused(w);
        pickle_put_str(w, "latin1", 6);
        pickle_put_tuple(w, 2);
    }
    pickle_put_reduce(w);
    pickle_put_memo(w, v);
}

static void put_tensor(pickle_writer *w, value v)
{
    if (pickle_put_known(w, v))
        return;
    if (w->tensor_fn == NULL) {
        pickle_fail(w, FSDPCK_UNSUPPORTED, "tensor in an object that cannot hold tensors");
        return;
    }
    if (w->st == FSDPCK_OK)
        w->st = w->tensor_fn(w->ctx, w, value_tensor_index(v), w->err);
    pickle_put_memo(w, v);
}

static void put_leaf(pickle_writer *w, value v)
{
    size_t nbytes = 0;
    const char *text = value_text(w->pool, v, &nbytes);
    int64_t i = 0;
    double d = 0;
    switch (value_kind_inline(v)) {
    case VALUE_NONE:
        pickle_put_none(w);
        break;
    case VALUE_BOOL:
        pickle_put_bool(w, value_is_true(v));
        break;
    case VALUE_INT:
        (void)value_as_i64(w->pool, v, &i);
        pickle_put_int(w, i);
        break;
    case VALUE_BIGINT:
        pickle_put_bigint(w, (const uint8_t *)text, nbytes);
        break;
    case VALUE_FLOAT:
        (void)value_as_double(w->pool, v, &d);
        pickle_put_double(w, d);
        break;
    case VALUE_STR:
        pickle_put_str(w, text, nbytes);
        break;
    case VALUE_BYTES:
        put_byte_string(w, v);
        break;
    case VALUE_SYMBOL:
        put_symbol(w, v);
        break;
    case VALUE_TENSOR:
        put_tensor(w, v);
        break;
    default:
        pickle_fail(w, FSDPCK_INTERNAL, "object still contains a reader's internal mark");
        break;
    }
}

/* An immutable value (tuple, set, call) gets its memo entry only at its end. A value that contains
 * itself through a list or dict is begun again inside, finished there, and fetched by the outer
 * one. */
static bool begin_again(pickle_writer *w, value v)
{
    uint64_t *note = pickle_note_of(w, v);
    if (note == NULL)
        return false;
    *note += PICKLE_BEGUN_ONCE;
    if (*note / PICKLE_BEGUN_ONCE <= BEGUN_MOST)
        return true;
    pickle_fail(w, FSDPCK_UNSUPPORTED,
                "object contains itself in a way that a pickle cannot express");
    return false;
}

static void end(pickle_writer *w, const struct frame *f)
{
    uint64_t *note = value_map_find(&w->memo, f->v);
    if (f->kind != FRAME_ITEMS && f->kind != FRAME_PAIRS && note != NULL)
        *note -= PICKLE_BEGUN_ONCE;
}

/* Writes a value, or begins it. */
static void put_value(pickle_writer *w, value v)
{
    const value_kind kind = value_kind_inline(v);
    const size_t count = value_count(w->pool, v);
    switch (kind) {
    case VALUE_LIST:
    case VALUE_DICT:
        if (pickle_put_known(w, v))
            return;
        pickle_put_op(w, kind == VALUE_LIST ? OP_EMPTY_LIST : OP_EMPTY_DICT);
        pickle_put_memo(w, v);
        if (count > 0)
            push_frame(w, kind == VALUE_LIST ? FRAME_ITEMS : FRAME_PAIRS, v);
        break;
    case VALUE_TUPLE:
        if (count == 0) {
            pickle_put_tuple(w, 0);
        } else if (!pickle_put_known(w, v) && begin_again(w, v)) {
            if (count > 3)
                pickle_put_mark(w);
            push_frame(w, FRAME_TUPLE, v);
        }
        break;
    case VALUE_SET:
    case VALUE_FROZENSET:
        if (!pickle_put_known(w, v) && begin_again(w, v))
            push_frame(w, FRAME_SET, v);
        break;
    case VALUE_CALL:
        if (!pickle_put_known(w, v) && begin_again(w, v))
            push_frame(w, FRAME_CALL, v);
        break;
    default:
        put_leaf(w, v);
        break;
    }
}

/* One item or pair of the batch; `width` cells each. Returns false when all are written. */
static bool step_batch(pickle_writer *w, struct frame *f)
{
    const size_t width = f->kind == FRAME_PAIRS ? 2 : 1;
    size_t ncells = 0;
    const value *cells = value_items(w->pool, f->v, &ncells);
    const size_t count = ncells / width;
    const size_t done = f->next / width;
    if (f->next % width == 0 && f->batch > 0 && (done == count || done % BATCH_MOST == 0)) {
        const bool pairs = width == 2;
        const bool one = f->batch == 1;
        pickle_put_op(w, pairs ? (one ? OP_SETITEM : OP_SETITEMS) : one ? OP_APPEND : OP_APPENDS);
        f->batch = 0;
    }
    if (done == count)
        return false;
    if (f->batch == 0) {
        const size_t left = count - done;
        f->batch = (uint32_t)(left < BATCH_MOST ? left : BATCH_MOST);
        if (f->batch > 1)
            pickle_put_mark(w);
    }
    put_value(w, cells[f->next++]);
    return true;
}

/* If the tuple was finished inside itself, its items are popped and the finished one is fetched.
 */
static bool step_tuple(pickle_writer *w, struct frame *f)
{
    size_t count = 0;
    const value *cells = value_items(w->pool, f->v, &count);
    if (f->next < count) {
        put_value(w, cells[f->next++]);
        return true;
    }
    const uint64_t *note = value_map_find(&w->memo, f->v);
    if (note != NULL && (uint32_t)*note != 0) {
        if (count > 3)
            pickle_put_op(w, OP_POP_MARK);
        for (size_t i = 0; count <= 3 && i < count; i++)
            pickle_put_op(w, OP_POP);
        (void)pickle_put_known(w, f->v);
        return false;
    }
    static const uint8_t ops[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    pickle_put_op(w, count <= 3 ? ops[count] : OP_TUPLE);
    pickle_put_memo(w, f->v);
    return false;
}

/* The object on the stack gets a memo entry. If it already has one, fetches that and returns false.
 */
static bool remember(pickle_writer *w, value v)
{
    const uint64_t *note = value_map_find(&w->memo, v);
    if (note == NULL || (uint32_t)*note == 0) {
        pickle_put_memo(w, v);
        return true;
    }
    pickle_put_op(w, OP_POP);
    (void)pickle_put_known(w, v);
    return false;
}

static bool step_set(pickle_writer *w, struct frame *f)
{
    const value set = f->v;
    if (f->next++ == 0) {
        const bool frozen = value_kind_inline(set) == VALUE_FROZENSET;
        pickle_put_global(w, "builtins", frozen ? "frozenset" : "set");
        pickle_put_op(w, OP_EMPTY_LIST);
        pickle_put_memo_unused(w);
        if (value_count(w->pool, set) > 0)
            push_frame(w, FRAME_ITEMS, set);
        return true;
    }
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    (void)remember(w, set);
    return false;
}

/* The opcode that makes the call from the values on the stack. */
static bool make_call(pickle_writer *w, value v, uint8_t how)
{
    switch (how) {
    case CALL_PERSID:
        pickle_put_persid(w); /* Python requests the persistent id each time: no entry */
        return true;
    case CALL_NEWOBJ:
        pickle_put_op(w, OP_NEWOBJ);
        break;
    case CALL_NEWOBJ_EX:
        pickle_put_tuple(w, 3);
        pickle_put_reduce(w);
        break;
    default:
        pickle_put_reduce(w);
        break;
    }
    return remember(w, v);
}

static bool step_call(pickle_writer *w, struct frame *f)
{
    const value v = f->v;
    const value_call call = *value_call_of(w->pool, v);
    switch (f->next++) {
    case 0:
        if (call.how == CALL_NEWOBJ_EX)
            pickle_put_global(w, "copyreg", "__newobj_ex__");
        if (call.how != CALL_PERSID)
            put_value(w, call.callee);
        return true;
    case 1:
        put_value(w, call.args);
        return true;
    case 2:
        if (call.how == CALL_NEWOBJ_EX)
            put_value(w, call.kwargs);
        return true;
    case 3:
        return make_call(w, v, call.how);
    case 4:
        if (value_count(w->pool, call.list_items) > 0)
            push_frame(w, FRAME_ITEMS, call.list_items);
        return true;
    case 5:
        if (value_count(w->pool, call.dict_items) > 0)
            push_frame(w, FRAME_PAIRS, call.dict_items);
        return true;
    case 6:
        if (value_count(w->pool, call.set_items) > 0)
            pickle_fail(w, FSDPCK_UNSUPPORTED, "set items of an object require pickle protocol 4");
        if (call.has_state)
            put_value(w, call.state);
        return call.has_state;
    default:
        pickle_put_build(w);
        return false;
    }
}

static bool step(pickle_writer *w, struct frame *f)
{
    switch ((enum frame_kind)f->kind) {
    case FRAME_ITEMS:
    case FRAME_PAIRS:
        return step_batch(w, f);
    case FRAME_TUPLE:
        return step_tuple(w, f);
    case FRAME_SET:
        return step_set(w, f);
    default:
        return step_call(w, f);
    }
}

fsdpck_status pickle_write(const value_pool *pool, value root, pickle_tensor_fn tensor_fn,
                           void *ctx, text_buf *out, fsdpck_error *err)
{
    pickle_writer w = {.pool = pool,
                       .out = out,
                       .memo = VALUE_MAP(pool->owner),
                       .err = err,
                       .tensor_fn = tensor_fn,
                       .ctx = ctx,
                       .frames = VEC_OF(struct frame, pool->owner)};
    strtab_init(&w.extra, pool->owner);
    pickle_put_op(&w, OP_PROTO);
    pickle_put_op(&w, 2);
    put_value(&w, root);
    while (w.st == FSDPCK_OK && w.frames.count > 0 && !out->failed) {
        const size_t top = w.frames.count - 1;
        if (step(&w, VEC_AT(&w.frames, struct frame, top)))
            continue;
        end(&w, VEC_AT(&w.frames, struct frame, top));
        w.frames.count = top;
    }
    pickle_put_op(&w, OP_STOP);
    vec_release(&w.frames);
    value_map_release(&w.memo);
    strtab_release(&w.extra);
    return w.st != FSDPCK_OK ? w.st : text_check(out, err);
}
