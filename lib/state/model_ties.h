/* model_ties.h: whether transformers ties the output projection of a model to its embedding, by config.json.
 *
 *     model_ties_config stated = {0};
 *     model_ties_take(&stated, nested, key, nbytes, &value);   // of each member, at the top and in text_config
 *     model_ties_of(&stated, &by_default)
 *
 * transformers has a default for each model type. model_ties.def lists those of release 5.23.0
 * (scripts/make_tie_defaults). For other model types only the members count: at the top, else in text_config.
 */
#ifndef FSDPCK_STATE_MODEL_TIES_H
#define FSDPCK_STATE_MODEL_TIES_H

#include "base/json.h"

typedef enum model_ties { MODEL_TIES_UNKNOWN, MODEL_TIES_NO, MODEL_TIES_YES } model_ties;

/* "tie_word_embeddings" and "model_type" of one object. */
typedef struct model_ties_members {
    model_ties ties; /* null is NO, as in Python */
    char type[64];   /* "": absent, or longer */
} model_ties_members;

typedef struct model_ties_config {
    model_ties_members top, nested;
    bool has_nested; /* text_config is an object: set by the caller */
} model_ties_config;

/* One member; ignores other keys than those two. */
void model_ties_take(model_ties_config *c, bool nested, const char *key, size_t nbytes,
                     const json_token *value);
/* *by_default: the model type decides, not a member. */
model_ties model_ties_of(const model_ties_config *c, bool *by_default);
/* The module of the embedding whose weight "lm_head.weight" of this model type is, if it is tied: "embed_tokens".
 * NULL: none, or an unknown type. */
const char *model_ties_module(const char *type);
/* Of the text of a config.json; UNKNOWN for other texts. */
model_ties model_ties_read(const char *text, size_t nbytes);

#endif
