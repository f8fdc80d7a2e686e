/* ranks_state.c: what a file adds to the state that all files share: shards and members. */
#include <inttypes.h>

#include "formats/pt/ranks_internal.h"

fsdpck_status ranks_shard_of(ranks_parse *p, uint64_t tensor, uint32_t *piece, fsdpck_error *err)
{
    return torch_folder_shard_of(p->s->reader, p->file->index, &p->archive, tensor, piece, err);
}

fsdpck_status ranks_note_member(ranks_state *s, uint64_t rank, fsdpck_error *err)
{
    if (rank >= MESH_RANKS_MAX)
        return FAIL(err, BADINPUT, RANK_DTENSOR, "rank %" PRIu64 " in a mesh is too large", rank);
    if (s->members.count <= rank &&
        vec_push_n(&s->members, (size_t)rank + 1 - s->members.count, err) == NULL)
        return FSDPCK_LIMIT;
    *VEC_AT(&s->members, uint8_t, rank) = 1;
    return FSDPCK_OK;
}

bool ranks_is_joined(const ranks_state *s, const ranks_tensor *t)
{
    const ranks_file *f = VEC_AT(&s->list->files, const ranks_file, t->first_file);
    return t->first_file > 0 && f[-1].family == f->family;
}

const char *ranks_path(const ranks_state *s, uint32_t index)
{
    return file_set_path(&s->reader->files, index);
}
