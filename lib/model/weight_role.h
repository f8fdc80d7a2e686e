/* weight_role.h: weights whose sizes config.json states, by the names that families have for them. */
#ifndef FSDPCK_MODEL_WEIGHT_ROLE_H
#define FSDPCK_MODEL_WEIGHT_ROLE_H

typedef enum weight_role {
    WEIGHT_OTHER,
    WEIGHT_TABLE, /* [vocab_size, hidden_size]: embedding, output projection */
    WEIGHT_NORM   /* [hidden_size] */
} weight_role;

/* By the last parts of the name. Those of towers and adapters, which have sizes of their own, are WEIGHT_OTHER. */
weight_role weight_role_of(const char *name);

#endif
