/* model_json.h: readers for the parts of a model description (model_json*.c).
 *
 * Keys come in any order, so the texts and numbers of one module are kept until its end, when the
 * module is added to the model. Nothing else of the document is kept.
 */
#ifndef FSDPCK_MODEL_MODEL_JSON_H
#define FSDPCK_MODEL_MODEL_JSON_H

#include "base/json.h"
#include "model/model_internal.h"

#define ACCEPT(kind) (1u << (kind))
#define ACCEPT_BOOL  (ACCEPT(JSON_TRUE) | ACCEPT(JSON_FALSE))

/* How model_next_key stores a value in the object that is read. */
typedef enum key_store {
    STORE_NOT, /* the caller reads it */
    STORE_BOOL,
    STORE_COUNT, /* uint32_t, at least 1 */
    STORE_DIM,   /* uint8_t; NDIM_MAX for a larger one */
    STORE_DTYPE, /* uint8_t */
    STORE_WORD   /* word */
} key_store;

typedef struct key_rule {
    const char *name;
    unsigned kinds; /* of values: ACCEPT(...) */
    key_store store;
    size_t at; /* offset of the member */
} key_rule;

#define KEY_AS(name, kinds, store, type, member)   \
    {                                              \
        name, kinds, store, offsetof(type, member) \
    }
#define KEY_BOOL(name, type, member)  KEY_AS(name, ACCEPT_BOOL, STORE_BOOL, type, member)
#define KEY_COUNT(name, type, member) KEY_AS(name, ACCEPT(JSON_NUMBER), STORE_COUNT, type, member)
#define KEY_DIM(name, type, member)   KEY_AS(name, ACCEPT(JSON_NUMBER), STORE_DIM, type, member)
#define KEY_DTYPE(name, type, member) KEY_AS(name, ACCEPT(JSON_STRING), STORE_DTYPE, type, member)
#define KEY_WORD(name, type, member)  KEY_AS(name, ACCEPT(JSON_STRING), STORE_WORD, type, member)

/* A text kept in model_reader.words. */
typedef struct word {
    size_t at, nbytes;
    size_t offset_bytes; /* in the document; 0: not given */
} word;

/* A parameter or buffer as in the document. */
typedef struct raw_tensor {
    word name;
    word same_as;
    unsigned seen;                 /* bits of TENSOR_KEYS */
    uint32_t shape_at, strides_at; /* in model_reader.numbers */
    uint8_t ndim, nstrides;
    uint8_t dtype;
    uint8_t shard_dim;
    bool requires_grad;
    bool ignored;
    bool flattened;
    bool persistent;
    uint32_t first_input, ninputs; /* in model_reader.inputs */
    size_t offset_bytes;
} raw_tensor;

/* One of "all_gather". */
typedef struct raw_input {
    uint32_t shape_at; /* in model_reader.numbers */
    uint8_t ndim;
    uint8_t dtype;
} raw_input;

typedef enum tensor_key {
    TENSOR_NAME,
    TENSOR_SHAPE,
    TENSOR_DTYPE,
    TENSOR_STRIDES,
    TENSOR_REQUIRES_GRAD,
    TENSOR_IGNORED,
    TENSOR_SAME_AS,
    TENSOR_SHARD_DIM,
    TENSOR_ALL_GATHER,
    TENSOR_FLATTENED,
    TENSOR_KEYS
} tensor_key;

typedef struct raw_module {
    word name;
    word class_name;
    word same_as;
    word with; /* of fully_shard */
    word override;
    uint16_t kinds;
    unsigned seen;
    model_sharding sharding;
    size_t offset_bytes;
} raw_module;

typedef struct model_reader {
    model *m;
    json_reader json;
    text_buf words;
    text_buf fqn;
    vec numbers; /* uint64_t */
    vec params;  /* raw_tensor */
    vec buffers; /* raw_tensor */
    vec inputs;  /* raw_input */
    model_wrap wrap;
    text_buf wrap_path;
    bool wraps;
} model_reader;

/* Reads members of an object up to the next that the caller reads: *key is the index in rules, and
 * *value the first token of its value; *key is -1 at the object's end. The other values are stored in
 * `object`. `seen` has a bit for each key so far. `what` names the object in messages. */
fsdpck_status model_next_key(model_reader *r, const char *what, const key_rule *rules,
                             unsigned nrules, void *object, unsigned *seen, int *key,
                             json_token *value, fsdpck_error *err) FSDPCK_MUST_CHECK;

const char *model_word(const model_reader *r, const word *w);

fsdpck_status model_refuse_value(const json_token *value, const char *key, const char *expected,
                                 fsdpck_error *err);

/* Values of a kind already checked. */
fsdpck_status model_get_u32(const json_token *value, uint32_t least, const char *key,
                            uint32_t *number, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Reads the array of sizes whose first token was read, onto r->numbers. */
fsdpck_status model_get_sizes(model_reader *r, uint32_t *at, uint8_t *count,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_json_settings.c: the objects "fsdp", "fully_shard" and "auto_wrap", whose first token was
 * read. */
fsdpck_status model_read_fsdp(model_reader *r, model_sharding *s,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status model_read_fully_shard(model_reader *r, raw_module *raw,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status model_read_wrap(model_reader *r, size_t offset_bytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_json_tensor.c: "params" or "buffers", whose first token was read, onto r->params or
 * r->buffers; after the module is in the model, from there into the model. */
fsdpck_status model_read_tensors(model_reader *r, bool buffers,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status model_add_tensors(model_reader *r, uint32_t module,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_json_optim.c: "optimizers", whose first token was read; and, after all modules, the check
 * that its members are parameters. */
fsdpck_status model_read_optimizers(model_reader *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status model_check_optimizers(const model *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_json_path.c: the module's path in state; raw may be NULL. */
fsdpck_status model_find_state_path(model_reader *r, const raw_module *raw, model_module *module,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The name of a tensor of a module into r->fqn. like: its name in another module. */
fsdpck_status model_name_in(model_reader *r, uint32_t module, bool in_state, uint32_t like,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Where a module's path in state is not that of the walk, its tensor, which has
 * the name `name` there, can be found by the other, too. */
fsdpck_status model_add_walk_name(model_reader *r, uint32_t module, model_use kind, size_t index,
                                  uint32_t name, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a parameter to a module, under the name in r->fqn. */
fsdpck_status model_add_param(model_reader *r, uint32_t module, model_param *p,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* model_json_module.c: "modules", whose first token was read. */
fsdpck_status model_read_modules(model_reader *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
