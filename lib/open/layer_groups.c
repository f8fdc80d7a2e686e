#include "open/layer_groups.h"

#include <string.h>

#include "base/crc.h"
#include "base/json.h"

typedef struct list_reader {
    layer_groups *g;
    json_reader json;
    uint64_t layers;
    vec items; /* uint64_t: hashes of the list that is read */
} list_reader;

/* The items of a list after its first token. *fits: as many as there are layers, none of them a list or an object. */
static fsdpck_status read_items(list_reader *r, bool *fits, fsdpck_error *err)
{
    json_token t;
    *fits = true;
    r->items.count = 0;
    for (;;) {
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            break;
        const bool is_text = t.kind == JSON_STRING || t.kind == JSON_NUMBER;
        const uint64_t hash = crc64_add_u64(0, t.kind);
        const uint64_t item = is_text ? crc64_update(hash, t.text, t.nbytes) : hash;
        *fits =
            *fits && t.kind != JSON_OBJECT && t.kind != JSON_ARRAY && r->items.count < r->layers;
        RETURN_IF(json_skip(&r->json, &t, err));
        if (*fits)
            RETURN_IF(vec_add(&r->items, &item, err));
    }
    *fits = *fits && r->items.count == r->layers;
    return FSDPCK_OK;
}

static fsdpck_status add_list(list_reader *r, fsdpck_error *err)
{
    if (r->g->ids.count == 0)
        return vec_add_n(&r->g->ids, r->items.items, r->items.count, err);
    for (size_t i = 0; i < r->items.count; i++) {
        uint64_t *id = VEC_AT(&r->g->ids, uint64_t, i);
        *id = crc64_add_u64(*id, *VEC_AT(&r->items, const uint64_t, i));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_members(list_reader *r, const layer_type *type, fsdpck_error *err)
{
    bool nested = false, found[LAYER_LISTS_MAX] = {false}, fits;
    json_token t;
    for (;;) {
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_OBJECT_END && !nested)
            break;
        if (t.kind == JSON_OBJECT_END) {
            nested = false;
            continue;
        }
        const bool is_text_config = !nested && json_is(&t, "text_config");
        size_t list = LAYER_LISTS_MAX;
        for (size_t i = 0; type != NULL && i < LAYER_LISTS_MAX && type->lists[i] != NULL; i++)
            list = json_is(&t, type->lists[i]) ? i : list;
        RETURN_IF(json_next(&r->json, &t, err));
        nested = nested || (is_text_config && t.kind == JSON_OBJECT);
        if (is_text_config && t.kind == JSON_OBJECT)
            continue;
        if (t.kind != JSON_ARRAY) {
            RETURN_IF(json_skip(&r->json, &t, err));
            continue;
        }
        RETURN_IF(read_items(r, &fits, err));
        if (fits)
            RETURN_IF(add_list(r, err));
        if (fits && list < LAYER_LISTS_MAX)
            found[list] = true;
    }
    r->g->has_lists = type != NULL && type->lists[0] != NULL;
    for (size_t i = 0; type != NULL && i < LAYER_LISTS_MAX && type->lists[i] != NULL; i++)
        r->g->has_lists = r->g->has_lists && found[i];
    return FSDPCK_OK;
}

fsdpck_status layer_groups_read(layer_groups *g, const model_config *config, uint64_t layers,
                                const layer_type *type, fsdpck_error *err)
{
    json_token t;
    list_reader r = {.g = g, .layers = layers, .items = VEC_OF(uint64_t, NULL)};
    *g = (layer_groups){.ids = VEC_OF(uint64_t, NULL)};
    if (config->text == NULL || layers == 0)
        return FSDPCK_OK;
    json_reader_init(&r.json, config->text, config->nbytes, FSDPCK_FINDING_MAP_CONFIG);
    r.json.takes_python_numbers = true;
    fsdpck_status st = json_expect(&r.json, JSON_OBJECT, &t, err);
    if (st == FSDPCK_OK)
        st = read_members(&r, type, err);
    json_reader_release(&r.json);
    vec_release(&r.items);
    if (st != FSDPCK_OK)
        layer_groups_release(g);
    return st;
}

uint64_t layer_group(const layer_groups *g, uint64_t layer)
{
    return layer < g->ids.count ? *VEC_AT(&g->ids, const uint64_t, (size_t)layer) : 0;
}

void layer_groups_release(layer_groups *g)
{
    vec_release(&g->ids);
}
