#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/torch_archive.h"
#include "formats/pt/flat_writer_internal.h"
#include "formats/pt/pt_file.h"
#include "state/cast.h"

uint32_t flat_tensor_of(const flat_layout *s, uint32_t state, uint32_t param)
{
    return s->tensors[state * s->nparams + param];
}

fsdpck_status flat_fail_tensor(const flat_layout *s, uint64_t tensor, const char *what,
                               fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    return FAIL_WITH(err, INTERNAL, NONE, ("%s", what),
                     (tensor, catalogue_name(cat, catalogue_tensor(cat, tensor)->name)));
}

/* --- padding --- */

/* The value of padding in a dtype, little-endian, rounded as torch does (42 is 40 in float8). */
static void padding_element(dtype d, uint8_t bytes[16])
{
    const float number = UNIT_PADDING_VALUE;
    uint32_t bits;
    uint8_t single[4];
    memcpy(&bits, &number, sizeof bits);
    store_le32(single, bits);
    memset(bytes, 0, 16);
    if (d == DTYPE_FLOAT32)
        memcpy(bytes, single, sizeof single);
    else if (cast_supported(DTYPE_FLOAT32, d))
        cast_elements(DTYPE_FLOAT32, d, bytes, single, 1);
    else
        bytes[0] = UNIT_PADDING_VALUE;
}

/* Elements of 42 in target.text, once for each dtype. */
static fsdpck_status padding_text(flat_layout *s, dtype d, uint64_t *at, fsdpck_error *err)
{
    uint8_t element[16];
    text_buf *text = &s->t->text;
    if (s->pads_at[d] == UINT64_MAX) {
        padding_element(d, element);
        s->pads_at[d] = text->nbytes;
        for (uint64_t i = 0; i < s->pad_nelems; i++)
            text_append(text, element, dtype_get(d)->itemsize_bytes);
    }
    *at = s->pads_at[d];
    return text_check(text, err);
}

static uint64_t most_padding(const unit_list *l)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        uint64_t at = 0;
        for (uint32_t k = 0; k <= u->nparams; k++) {
            const unit_param *p = k < u->nparams ? unit_param_at(l, u, k) : NULL;
            if (p != NULL && p->nelems == 0)
                continue; /* the padding before and after it is one gap */
            const uint64_t begin = p == NULL ? u->total : p->offset;
            if (begin - at > most)
                most = begin - at;
            at = p == NULL ? begin : begin + p->nelems;
        }
    }
    return most;
}

/* --- the record of a flat parameter --- */

static fsdpck_status put_padding(flat_layout *s, dtype d, uint64_t nelems, fsdpck_error *err)
{
    uint64_t at;
    if (nelems == 0)
        return FSDPCK_OK;
    if (nelems > s->pad_nelems)
        return FAIL(err, INTERNAL, NONE, "flat parameter has a gap");
    RETURN_IF(padding_text(s, d, &at, err));
    return pt_file_part_bytes(s->t, at, nelems * dtype_get(d)->itemsize_bytes, err);
}

/* The chunks of this rank's shard of a tensor: `nelems` in total. */
static fsdpck_status put_piece(flat_layout *s, uint32_t tensor, uint64_t nelems, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint64_t end = t->first_chunk + t->nchunks;
    uint64_t sizes[NDIM_MAX], found = 0;
    uint64_t *next = &s->next[tensor];

    for (; *next < end && catalogue_chunk(cat, *next)->rank == s->rank; (*next)++) {
        catalogue_chunk_box(cat, *next, NULL, sizes);
        found += box_nelems(sizes, t->ndim);
        RETURN_IF(pt_file_part_chunk(s->t, *next, err));
        s->nchunks_placed++;
    }
    if (found != nelems)
        return flat_fail_tensor(s, tensor, "chunks of a rank do not match its shard of a parameter",
                                err);
    return FSDPCK_OK;
}

/* Every rank has all of a unit that is not sharded. */
static uint32_t rank_in(const flat_layout *s, const unit *u)
{
    return unit_is_sharded(u) ? s->rank : 0;
}

static fsdpck_status put_parts(flat_layout *s, const unit *u, uint32_t state, dtype d,
                               uint32_t *record, fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const uint32_t rank = rank_in(s, u);
    const unit_shard shard = unit_shard_of(u, rank);
    uint32_t first, end;
    uint64_t at = 0;

    RETURN_IF(pt_file_add_composite(s->t, record, err));
    unit_params_of_rank(l, u, rank, &first, &end);
    for (uint32_t k = first; k < end; k++) {
        const unit_param_range piece = unit_param_range_of(l, u, k, rank);
        if (!piece.in_shard || piece.begin >= piece.end)
            continue;
        RETURN_IF(put_padding(s, d, piece.shard_offset - at, err));
        RETURN_IF(put_piece(s, flat_tensor_of(s, state, u->first_param + k),
                            piece.end - piece.begin, err));
        at = piece.shard_offset + (piece.end - piece.begin);
    }
    return put_padding(s, d, shard.end - shard.begin - at, err);
}

fsdpck_status flat_put_record(flat_layout *s, const unit *u, dtype d, uint32_t *record,
                              fsdpck_error *err)
{
    return put_parts(s, u, 0, d, record, err);
}

/* --- optimizer state --- */

static fsdpck_status put_zeros(flat_layout *s, uint64_t nbytes, fsdpck_error *err)
{
    static const uint8_t zeros[4096];
    text_buf *text = &s->t->text;
    if (nbytes == 0)
        return FSDPCK_OK;
    if (s->zeros_nbytes < nbytes) {
        s->zeros_at = text->nbytes;
        for (s->zeros_nbytes = 0; s->zeros_nbytes < nbytes; s->zeros_nbytes += sizeof zeros)
            text_append(text, zeros, sizeof zeros);
        RETURN_IF(text_check(text, err));
    }
    return pt_file_part_bytes(s->t, s->zeros_at, nbytes, err);
}

fsdpck_status flat_put_state(flat_layout *s, pickle_writer *w, uint32_t index, fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const uint32_t param = *VEC_AT(&s->t->flat_params, const uint32_t, index);
    const uint32_t state = *VEC_AT(&s->t->flat_states, const uint32_t, index);
    const dtype d = (dtype)catalogue_tensor(&s->t->cat, index)->dtype;
    const unit *u = unit_of_param(l, param);
    uint64_t nelems;
    const uint64_t one = 1;
    uint32_t record;
    char key[16];

    if (u->use_orig_params) {
        const unit_param_range piece =
            unit_param_range_of(l, u, param - u->first_param, rank_in(s, u));
        nelems = piece.in_shard ? piece.end - piece.begin : 0;
        RETURN_IF(pt_file_add_composite(s->t, &record, err));
        RETURN_IF(put_piece(s, index, nelems, err));
    } else {
        const unit_shard shard = unit_shard_of(u, rank_in(s, u));
        nelems = shard.end - shard.begin + shard.padding;
        RETURN_IF(put_parts(s, u, state, d, &record, err));
        RETURN_IF(put_zeros(s, shard.padding * dtype_get(d)->itemsize_bytes, err));
    }
    snprintf(key, sizeof key, "%" PRIu32, record);
    torch_put_tensor(w, key, d, 1, &nelems, &one, 0, nelems);
    return FSDPCK_OK;
}

void flat_records_init(flat_layout *s)
{
    memset(s->pads_at, 0xff, sizeof s->pads_at);
    s->pad_nelems = most_padding(s->t->units);
}
