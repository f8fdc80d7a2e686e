/* dcp_leftover.c: tensors that FSDP1 stores under the names of parameters of a flat parameter. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "formats/dcp/dcp_leftover.h"
#include "state/box.h"

/* torch 1.13 has 'flat_param', but no use_orig_params, so it has no leftovers. */
static const char flat_name[] = "_flat_param";

/* Bytes of a name up to its last dot, that included. */
static size_t module_nbytes(const char *name, size_t nbytes)
{
    while (nbytes > 0 && name[nbytes - 1] != '.')
        nbytes--;
    return nbytes;
}

static bool is_flat(const char *name, size_t nbytes)
{
    const size_t at = module_nbytes(name, nbytes);
    return strcmp(name + at, flat_name) == 0;
}

/* Whether a tensor is sharded like a flat parameter of FSDP1: one dim, in shards of several ranks.
 * A whole one has no leftovers: the names beside it hold complete parameters. */
static bool has_pieces(const dcp_metadata *m, const dcp_tensor *t)
{
    return t->list != DCP_NONE && VEC_AT(&m->lists, dcp_chunk_list, t->list)->count > 1 &&
           dcp_size_get(m, t->size_at, NULL) == 1;
}

/* Modules keep these as buffers, complete on each rank. A parameter may have such a name, but shards of
 * two parameters are not of one shape, unless both are empty. */
static const char *const norm_names[2] = {"running_mean", "running_var"};

/* The index of the name and the module with shape and dtype; 2 for other tensors. */
static unsigned norm_key(const dcp_metadata *m, const dcp_tensor *t, const char *name,
                         size_t nbytes, text_buf *key)
{
    uint64_t size[NDIM_MAX];
    const size_t at = module_nbytes(name, nbytes);
    unsigned k = 0;
    while (k < 2 && strcmp(name + at, norm_names[k]) != 0)
        k++;
    if (k == 2 || dcp_size_get(m, t->size_at, NULL) != 1)
        return 2;
    (void)dcp_size_get(m, t->size_at, size);
    text_append(key, name, at);
    text_printf(key, "\n%" PRIu64 " %u", size[0],
                (unsigned)VEC_AT(&m->properties, const dcp_properties, t->properties)->dtype);
    return size[0] > 0 ? k : 2;
}

static fsdpck_status add_norm(dcp_leftovers *l, const dcp_tensor *t, const char *name,
                              size_t nbytes, fsdpck_error *err)
{
    text_buf key = {.limit_bytes = UINT32_MAX};
    uint32_t id;
    const unsigned k = norm_key(l->m, t, name, nbytes, &key);
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK && k < 2)
        st = strtab_intern(&l->norms[k], key.text, key.nbytes, &id, err);
    text_release(&key);
    return st;
}

static bool is_norm_buffer(const dcp_leftovers *l, const dcp_tensor *t, const char *name,
                           size_t nbytes)
{
    text_buf key = {.limit_bytes = UINT32_MAX};
    const unsigned k = norm_key(l->m, t, name, nbytes, &key);
    const bool is =
        k < 2 && !key.failed && strtab_find(&l->norms[1 - k], key.text, key.nbytes) != STRTAB_NONE;
    text_release(&key);
    return is;
}

fsdpck_status dcp_leftovers_init(dcp_leftovers *l, const dcp_metadata *m, const dcp_names *names,
                                 fsdpck_error *err)
{
    *l = (dcp_leftovers){.m = m, .names = names};
    strtab_init(&l->units, m->owner);
    strtab_init(&l->modules, m->owner);
    strtab_init(&l->norms[0], m->owner);
    strtab_init(&l->norms[1], m->owner);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < m->items.count && st == FSDPCK_OK; i++) {
        const dcp_item *item = VEC_AT(&m->items, dcp_item, i);
        const char *name = strtab_text(&names->fqns, item->fqn);
        const size_t nbytes = strtab_nbytes(&names->fqns, item->fqn);
        uint32_t id;
        if (item->tensor == DCP_NONE)
            continue;
        const dcp_tensor *t = VEC_AT(&m->tensors, dcp_tensor, item->tensor);
        if (t->properties == DCP_NONE)
            continue;
        if (is_flat(name, nbytes) && has_pieces(m, t))
            st = strtab_intern(&l->units, name, module_nbytes(name, nbytes), &id, err);
        else if (dcp_size_get(m, t->size_at, NULL) > 1)
            st = strtab_intern(&l->modules, name, module_nbytes(name, nbytes), &id, err);
        else
            st = add_norm(l, t, name, nbytes, err);
    }
    return st;
}

void dcp_leftovers_release(dcp_leftovers *l)
{
    strtab_release(&l->units);
    strtab_release(&l->modules);
    strtab_release(&l->norms[0]);
    strtab_release(&l->norms[1]);
}

bool dcp_is_leftover(const dcp_leftovers *l, const dcp_item *item)
{
    const dcp_metadata *m = l->m;
    const char *name = strtab_text(&l->names->fqns, item->fqn);
    size_t nbytes = strtab_nbytes(&l->names->fqns, item->fqn);
    const dcp_tensor *t = VEC_AT(&m->tensors, dcp_tensor, item->tensor);

    if (strtab_count(&l->units) == 0 || t->properties == DCP_NONE || t->list == DCP_NONE ||
        VEC_AT(&m->lists, dcp_chunk_list, t->list)->count != 1 ||
        dcp_size_get(m, t->size_at, NULL) != 1 || is_flat(name, nbytes))
        return false;
    const uint8_t d = VEC_AT(&m->properties, dcp_properties, t->properties)->dtype;
    if (d == DTYPE_NONE || dtype_get((dtype)d)->kind != DTYPE_IS_FLOAT)
        return false;
    if (is_norm_buffer(l, t, name, nbytes))
        return false;
    nbytes = module_nbytes(name, nbytes);
    if (strtab_find(&l->modules, name, nbytes) != STRTAB_NONE)
        return false;
    while (strtab_find(&l->units, name, nbytes) == STRTAB_NONE) {
        if (nbytes == 0)
            return false;
        nbytes = module_nbytes(name, nbytes - 1);
    }
    return true;
}
