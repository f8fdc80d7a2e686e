/* A list of units, and a catalogue for it to be seen through:
 *
 *     [{"prefix": "blk", "params": [...]}, ...]
 *     t model.blk._flat_param 40 0+10@0 10+10@1     1-dim, its chunks: first, count, rank
 *     r blk._flat_param 9 2                         one rank's, of 9 elements
 *     n 0 exp_avg 9 2                               optimizer state of number 0; 0 elements: 0-dim
 *     g 3                                           a param_group of numbers 0 to 2
 *
 * with T, R and N for float64.
 *
 * What the view makes must be consistent: boxes lie in their tensors, places in what the first
 * catalogue has, and all of it is given back. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/unit_json.h"
#include "statedict/unflatten.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#define LINES_MAX   200u
#define FILE_NBYTES (UINT64_C(1) << 40)

typedef struct world {
    budget memory;
    unit_list units;
    catalogue base, seen;
    uint32_t file;
    dtype d;       /* of the tensors that come */
    uint64_t used; /* bytes */
} world;

/* The next word of a line, cut off there; "" at its end. */
static const char *next_word(char **at)
{
    while (**at == ' ')
        ++*at;
    const char *word = *at;
    while (**at != '\0' && **at != ' ')
        ++*at;
    if (**at != '\0')
        *(*at)++ = '\0';
    return word;
}

static uint64_t next_number(const char **at)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < 12 && isdigit((unsigned char)**at); i++)
        n = n * 10 + (uint64_t)(*(*at)++ - '0');
    return n;
}

static bool add_tensor(world *w, const char *name, unsigned ndim, uint64_t nelems, uint8_t flags,
                       uint32_t *index)
{
    const size_t n = strlen(name);
    if (n == 0 ||
        catalogue_add_tensor(&w->base, name, n, w->d, ndim, &nelems, index, NULL) != FSDPCK_OK)
        return false;
    catalogue_tensor(&w->base, *index)->flags = flags;
    return true;
}

static bool add_chunk(world *w, uint32_t tensor, uint64_t first, uint64_t count, uint64_t rank)
{
    const cat_chunk k = {.file = w->file,
                         .rank = (uint16_t)(rank % 70000),
                         .place = LOCATION_ROWS,
                         .offset_bytes = w->used,
                         .nbytes = dtype_get(w->d)->itemsize_bytes * count};
    w->used += k.nbytes;
    return catalogue_add_chunk(&w->base, tensor, &first, &count, &k, NULL) == FSDPCK_OK;
}

static bool add_sharded(world *w, char *at)
{
    const char *name = next_word(&at), *number = next_word(&at);
    uint32_t tensor;
    if (!add_tensor(w, name, 1, next_number(&number), 0, &tensor))
        return false;
    for (const char *chunk = next_word(&at); *chunk != '\0'; chunk = next_word(&at)) {
        const uint64_t first = next_number(&chunk);
        chunk += *chunk == '+';
        const uint64_t count = next_number(&chunk);
        chunk += *chunk == '@';
        if (!add_chunk(w, tensor, first, count, next_number(&chunk)))
            return false;
    }
    return true;
}

static bool provide_path(world *w, uint32_t tensor, const char *const *words, size_t count)
{
    value items[4];
    for (size_t i = 0; i < count; i++) {
        const bool number = count == 3 && i == 1;
        const size_t n = strlen(words[i]);
        if ((number ? value_new_bytes(&w->base.pool, words[i], n, &items[i], NULL)
                    : value_new_str(&w->base.pool, words[i], n, &items[i], NULL)) != FSDPCK_OK)
            return false;
    }
    return value_new_from(&w->base.pool, VALUE_TUPLE, items, count,
                          &catalogue_tensor(&w->base, tensor)->path, NULL) == FSDPCK_OK;
}

static bool add_of_rank(world *w, char *at, bool numbered)
{
    const char *number = numbered ? next_word(&at) : "", *name = next_word(&at);
    const char *size = next_word(&at), *rank_text = next_word(&at);
    const uint64_t nelems = next_number(&size), rank = next_number(&rank_text) % 70000;
    char full[256], key[128];
    uint32_t tensor;
    snprintf(key, sizeof key, "%.60s.rank%u", name, (unsigned)rank);
    snprintf(full, sizeof full, "%s%.20s%s%s", numbered ? "state." : "", number,
             numbered ? "." : "", key);
    const char *const words[3] = {"state", number, key};
    return add_tensor(w, full, nelems > 0, nelems, CAT_TENSOR_OF_RANK, &tensor) &&
           (!numbered || provide_path(w, tensor, words, 3)) &&
           add_chunk(w, tensor, 0, nelems > 0 ? nelems : 1, rank);
}

static bool add_group(world *w, const char *at)
{
    value_pool *pool = &w->base.pool;
    const uint64_t count = next_number(&at) % 1000;
    value list, path[3], item;
    uint32_t index;
    if (catalogue_add_object(&w->base, "param_groups.0.params", 21, &index, NULL) != FSDPCK_OK ||
        value_new_list(pool, &list, NULL) != FSDPCK_OK ||
        value_new_str(pool, "param_groups", 12, &path[0], NULL) != FSDPCK_OK ||
        value_new_int(pool, 0, &path[1], NULL) != FSDPCK_OK ||
        value_new_str(pool, "params", 6, &path[2], NULL) != FSDPCK_OK)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (value_new_int(pool, (int64_t)i, &item, NULL) != FSDPCK_OK ||
            value_append(pool, list, item, NULL) != FSDPCK_OK)
            return false;
    cat_object *o = catalogue_object(&w->base, index);
    o->content = list;
    o->loaded = true;
    o->file = CAT_NONE;
    o->rank = UINT16_MAX;
    return value_new_from(pool, VALUE_TUPLE, path, 3, &catalogue_object(&w->base, index)->path,
                          NULL) == FSDPCK_OK;
}

/* False where a line says what no catalogue holds. */
static bool read_lines(world *w, char *text)
{
    unsigned lines = 0;
    for (char *line = text; line != NULL && lines++ < LINES_MAX;) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end++ = '\0';
        char *kind = line;
        (void)next_word(&line);
        w->d = isupper((unsigned char)kind[0]) ? DTYPE_FLOAT64 : DTYPE_FLOAT32;
        kind[0] = (char)tolower((unsigned char)kind[0]);
        const bool fine = strcmp(kind, "t") == 0   ? add_sharded(w, line)
                          : strcmp(kind, "r") == 0 ? add_of_rank(w, line, false)
                          : strcmp(kind, "n") == 0 ? add_of_rank(w, line, true)
                          : strcmp(kind, "g") == 0 ? add_group(w, line)
                                                   : true;
        if (!fine)
            return false;
        line = end;
    }
    return true;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&((world *)ctx)->base, chunk);
    (void)err;
    *where =
        (place){.file = k->file, .rows = true, .strides = {1}, .offset_bytes = k->offset_bytes};
    return FSDPCK_OK;
}

static void check_view(const world *w, const flat_adapter *v)
{
    const source *src = flat_adapter_source(v);
    const catalogue *c = &w->seen;
    for (uint64_t k = 0; k < catalogue_chunk_count(c); k++) {
        const cat_tensor *t = catalogue_tensor(c, catalogue_chunk(c, k)->tensor);
        const uint64_t *shape = catalogue_shape(c, catalogue_chunk(c, k)->tensor);
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], last = 0;
        place where;
        catalogue_chunk_box(c, k, offsets, sizes);
        for (unsigned d = 0; d < t->ndim; d++)
            must(offsets[d] <= shape[d] && sizes[d] <= shape[d] - offsets[d], "box outside");
        if (catalogue_chunk(c, k)->place == LOCATION_EMPTY ||
            src->locate(src->ctx, k, &where, NULL) != FSDPCK_OK)
            continue;
        for (unsigned d = 0; d < t->ndim && !where.rows; d++)
            last += (sizes[d] - 1) * where.strides[d];
        if (where.rows)
            last = box_nelems(sizes, t->ndim) - 1;
        const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
        must(where.offset_bytes + (last + 1) * itemsize <= w->used,
             "place outside of what there is");
    }
}

static void see(world *w)
{
    const source src = {.ctx = w, .cat = &w->base, .locate = locate};
    const flat_adapter_options options = {0};
    flat_adapter *v = NULL;
    fsdpck_error err;
    fsdpck_error_init(&err);
    if (flat_adapter_rescale(&w->base, 4, &w->units, NULL) != FSDPCK_OK)
        return;
    const fsdpck_status st =
        flat_adapter_new(&w->base, &src, &w->units, &options, &w->seen, &v, &err);
    must((st == FSDPCK_OK) == (v != NULL), "a view in spite of an error, or none");
    must((st == FSDPCK_OK) == (err.message[0] == '\0'), "refused without a word");
    if (v != NULL)
        check_view(w, v);
    flat_adapter_free(v);
}

static void run(world *w, char *text, size_t nbytes)
{
    json_reader r;
    json_token t;
    const char *end = strstr(text, "\n]\n");
    const size_t list_nbytes = end == NULL ? nbytes : (size_t)(end - text) + 2;
    json_reader_init(&r, text, list_nbytes, FSDPCK_FINDING_MODEL_JSON);
    if (json_expect(&r, JSON_ARRAY, &t, NULL) == FSDPCK_OK &&
        unit_json_read(&r, &(unit_defaults){.world_size = 4}, &w->units, NULL) == FSDPCK_OK &&
        end != NULL &&
        catalogue_add_file(&w->base, "f", 1, FILE_NBYTES, CAT_NONE, &w->file, NULL) == FSDPCK_OK &&
        read_lines(w, text + list_nbytes + 1) && catalogue_seal(&w->base, NULL) == FSDPCK_OK)
        see(w);
    json_reader_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    world *w = calloc(1, sizeof *w);
    char *text = malloc(nbytes + 1);
    if (w == NULL || text == NULL || nbytes > 1u << 16) {
        free(w);
        free(text);
        return 0;
    }
    if (nbytes > 0)
        memcpy(text, data, nbytes);
    text[nbytes] = '\0';
    budget_init(&w->memory, (uint64_t)64 << 20, "metadata", NULL);
    unit_list_init(&w->units, &w->memory);
    catalogue_init(&w->base, &w->memory);
    catalogue_init(&w->seen, &w->memory);
    run(w, text, nbytes);
    catalogue_release(&w->seen);
    catalogue_release(&w->base);
    unit_list_release(&w->units);
    must(w->memory.used_bytes == 0, "memory kept");
    free(w);
    free(text);
    return 0;
}
