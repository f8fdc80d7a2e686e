/* Checks that numbers of raw optimizer state have a unique meaning. Parameters, or flat parameters,
 * whose shards have equal lengths on all ranks are interchangeable. */
#include <inttypes.h>

#include "base/text.h"
#include "statedict/unflatten_internal.h"

typedef struct rivals {
    const flat_adapter *v;
    bool orig;
    strtab lengths; /* as text; ids are classes */
    vec counts;     /* uint32_t by class: targets */
    uint32_t total;
    text_buf text;
} rivals;

static const uint32_t *targets_of(const flat_adapter *v, const flat_optimizer *o)
{
    return VEC_AT(&v->targets, const uint32_t, o->targets_at);
}

/* Lengths of the shards on the ranks. Nothing is known of parameters outside units: they are alike.
 */
static void print_lengths(rivals *r, uint32_t target)
{
    const unit_list *l = r->v->units;
    r->text.nbytes = 0;
    if (target & FLAT_OTHER) {
        text_puts(&r->text, "other");
        return;
    }
    if (!r->orig) {
        text_printf(&r->text, "%" PRIu64, unit_at(l, target)->shard_size);
        return;
    }
    const unit *u = flat_unit_of(r->v, target);
    if (!unit_is_sharded(u)) {
        text_printf(&r->text, "%" PRIu64, flat_param(r->v, target)->nelems);
        return;
    }
    for (uint32_t rank = 0; rank < u->world_size; rank++) {
        const unit_param_range q = unit_param_range_of(l, u, target - u->first_param, rank);
        if (q.in_shard && q.end > q.begin)
            text_printf(&r->text, "%" PRIu32 ":%" PRIu64 " ", rank, q.end - q.begin);
    }
}

static fsdpck_status add_target(rivals *r, uint32_t target, fsdpck_error *err)
{
    uint32_t id;
    print_lengths(r, target);
    text_append(&r->text, "", 0);
    RETURN_IF(text_check(&r->text, err));
    RETURN_IF(strtab_intern(&r->lengths, r->text.text, r->text.nbytes, &id, err));
    if (id == r->counts.count) {
        RETURN_IF(vec_add(&r->counts, &(uint32_t){0}, err));
    }
    ++*VEC_AT(&r->counts, uint32_t, id);
    r->total++;
    return FSDPCK_OK;
}

/* All candidates of a number: the description's list, else the units' parameters. */
static fsdpck_status add_targets(rivals *r, fsdpck_error *err)
{
    const flat_adapter_options *options = &r->v->options;
    for (uint32_t i = 0; i < options->order_count; i++) {
        const uint32_t target = options->order[i].target;
        RETURN_IF(add_target(r, target != CAT_NONE ? target : FLAT_OTHER | i, err));
    }
    if (options->order_count > 0)
        return FSDPCK_OK;
    const size_t count = r->orig ? r->v->units->params.count : unit_count(r->v->units);
    for (uint32_t i = 0; i < count; i++)
        RETURN_IF(add_target(r, i, err));
    return FSDPCK_OK;
}

static const char *name_of(const rivals *r, uint32_t target)
{
    const unit_list *l = r->v->units;
    if (target & FLAT_OTHER)
        return r->v->options.order[target & ~FLAT_OTHER].fqn;
    return unit_name(l, r->orig ? flat_param(r->v, target)->fqn : unit_at(l, target)->prefix, NULL);
}

/* Marks numbers whose state has dims; the others cannot be distinguished. */
static uint32_t mark_stated(const flat_adapter *v, uint32_t owner, uint32_t count, uint8_t *stated)
{
    uint32_t marked = 0;
    for (size_t i = 0; i < v->pieces.count; i++) {
        const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, i);
        if (p->owner != owner || p->number >= count || stated[p->number] ||
            catalogue_tensor(v->base, p->tensor)->ndim == 0)
            continue;
        stated[p->number] = 1;
        marked++;
    }
    return marked;
}

static fsdpck_status look(rivals *r, const flat_optimizer *o, const uint8_t *stated,
                          uint32_t marked, text_buf *why, fsdpck_error *err)
{
    const uint32_t *targets = targets_of(r->v, o);
    for (uint32_t i = 0; i < o->count; i++) {
        if (!stated[i] || targets[i] == CAT_NONE)
            continue;
        print_lengths(r, targets[i]);
        text_append(&r->text, "", 0);
        RETURN_IF(text_check(&r->text, err));
        const uint32_t id = strtab_find(&r->lengths, r->text.text, r->text.nbytes);
        const uint32_t alike = id == STRTAB_NONE ? 1 : *VEC_AT(&r->counts, const uint32_t, id);
        if (alike < 2)
            continue;
        text_printf(why,
                    "number %" PRIu32 " can be any of %" PRIu32
                    " %sparameters with shards of this length, such as '%.60s'",
                    i, alike, r->orig ? "" : "flat ", name_of(r, targets[i]));
        return text_check(why, err);
    }
    if (marked < o->count && o->count != r->total)
        text_printf(why, "%" PRIu32 " number%s without state can be any of %" PRIu32 " parameter%s",
                    o->count - marked, text_plural(o->count - marked), r->total - marked,
                    text_plural(r->total - marked));
    return text_check(why, err);
}

fsdpck_status flat_find_ambiguity(const flat_adapter *v, uint32_t owner, bool orig, text_buf *why,
                                  fsdpck_error *err)
{
    const flat_optimizer *o = VEC_AT(&v->optimizers, const flat_optimizer, owner);
    rivals r = {.v = v, .orig = orig, .counts = VEC_OF(uint32_t, v->owner)};
    uint8_t *stated = budget_alloc(v->owner, o->count, err);
    fsdpck_status st = FSDPCK_LIMIT;
    strtab_init(&r.lengths, v->owner);
    if (stated != NULL) {
        const uint32_t marked = mark_stated(v, owner, o->count, stated);
        st = add_targets(&r, err);
        if (st == FSDPCK_OK)
            st = look(&r, o, stated, marked, why, err);
    }
    budget_free(v->owner, stated, o->count);
    strtab_release(&r.lengths);
    vec_release(&r.counts);
    text_release(&r.text);
    return st;
}
