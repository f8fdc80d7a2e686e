/* cat_metadata.h: texts that files contain about themselves: `__metadata__` of safetensors files, or
 * `metadata` of their index, whose texts are JSON values.
 *
 *     cat_metadata_init(&m, &budget);
 *     RETURN_IF(cat_metadata_add(&m, "step", 4, "3", 1, err));     // once per file that has the key
 *     for (uint32_t key = 0; key < cat_metadata_count(&m); key++)
 *         cat_metadata_key(&m, key, &nbytes), cat_metadata_text(&m, key, &nbytes)
 *     cat_metadata_release(&m);
 */
#ifndef FSDPCK_STATE_CAT_METADATA_H
#define FSDPCK_STATE_CAT_METADATA_H

#include "base/alloc.h"

typedef struct cat_metadata {
    strtab keys;
    strtab texts;
    vec text_of; /* uint32_t: the text of each key, by the key's id; STRTAB_NONE: texts differ */
    vec ties; /* uint32_t: keys whose text is the name of a tensor that their own tensor is tied to */
    uint64_t nelems; /* of an index: of all tensors that it describes */
} cat_metadata;

void cat_metadata_init(cat_metadata *m, budget *owner);
/* A key with another text before has none afterwards. */
fsdpck_status cat_metadata_add(cat_metadata *m, const char *key, size_t key_nbytes,
                               const char *text, size_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The key is a name that the files lack, and its text the name of a tensor of the files with the same data. */
fsdpck_status cat_metadata_add_tie(cat_metadata *m, const char *key, size_t nbytes,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
bool cat_metadata_is_tie(const cat_metadata *m, uint32_t key);
/* Copies it into an empty one. */
fsdpck_status cat_metadata_copy(cat_metadata *m, const cat_metadata *from,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether two keys have the same text. A key whose files have different texts equals only another such key. */
bool cat_metadata_is_same(const cat_metadata *a, uint32_t key_a, const cat_metadata *b,
                          uint32_t key_b);
/* Keys of m for which the other has another text, or none that is of all its files, have none afterwards. */
void cat_metadata_keep_same(cat_metadata *m, const cat_metadata *other);
uint32_t cat_metadata_count(const cat_metadata *m);
const char *cat_metadata_key(const cat_metadata *m, uint32_t key, size_t *nbytes);
/* NULL: files have different texts for this key. */
const char *cat_metadata_text(const cat_metadata *m, uint32_t key, size_t *nbytes);
void cat_metadata_release(cat_metadata *m);

#endif
