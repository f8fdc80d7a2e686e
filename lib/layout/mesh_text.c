#include "layout/mesh_text.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/similar.h"
#include "base/text.h"

static const struct {
    const char *name;
    mesh_role role;
} role_names[] = {
    {"dp_replicate", ROLE_REPLICATE},
    {"ddp", ROLE_REPLICATE},
    {"replicate", ROLE_REPLICATE},
    {"dp_shard", ROLE_FSDP},
    {"fsdp", ROLE_FSDP},
    {"shard", ROLE_FSDP},
    {"dp", ROLE_FSDP},
    {"data", ROLE_FSDP},
    {"data_parallel", ROLE_FSDP},
    {"dp_shard_mod_ep", ROLE_FSDP},
    {"efsdp", ROLE_FSDP},
    {"cp", ROLE_CP},
    {"tp", ROLE_TP},
    {"model", ROLE_TP},
    {"tensor_parallel", ROLE_TP},
    {"ep", ROLE_EP},
};

static mesh_role role_of_bytes(const char *name, size_t nbytes)
{
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++)
        if (strlen(role_names[i].name) == nbytes && memcmp(role_names[i].name, name, nbytes) == 0)
            return role_names[i].role;
    return ROLE_UNKNOWN;
}

static bool is_pipeline(const char *name, size_t nbytes)
{
    static const char *const names[] = {"pp", "pipe", "pipeline"};
    return TEXT_IS_IN(name, nbytes, names);
}

mesh_role mesh_role_of(const char *name)
{
    const size_t nbytes = strlen(name);
    const mesh_role role = role_of_bytes(name, nbytes);
    if (is_pipeline(name, nbytes))
        return ROLE_PIPELINE;
    if (role == ROLE_UNKNOWN && nbytes > 3 && strcmp(name + nbytes - 3, "_cp") == 0 &&
        role_of_bytes(name, nbytes - 3) == ROLE_FSDP)
        return ROLE_FSDP;
    return role;
}

void mesh_roles(const mesh *m, mesh_role *roles)
{
    for (unsigned i = 0; i < m->ndim; i++) {
        roles[i] = mesh_role_of(m->names[i]);
        const bool says_nothing = roles[i] == ROLE_UNKNOWN || roles[i] == ROLE_PIPELINE;
        if (roles[i] == ROLE_CP || (says_nothing && m->ndim == 1))
            roles[i] = ROLE_FSDP;
    }
}

unsigned mesh_dim_of(const mesh *m, mesh_role role)
{
    mesh_role roles[MESH_NDIM_MAX];
    mesh_roles(m, roles);
    unsigned i = 0;
    while (i < m->ndim && roles[i] != role)
        i++;
    return i;
}

/* Reading */

/* All names, as in the manual. */
static void expect_naming(text_buf *list)
{
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++)
        text_printf(list, "%s%s", i > 0 ? ", " : "", role_names[i].name);
}

/* The error is at text[at], nbytes long: an item, its name or its size. */
static fsdpck_status bad_text(fsdpck_error *err, const char *text, size_t at, size_t nbytes,
                              const char *why)
{
    return FAIL_WITH(err, USAGE, NONE, ("cannot read mesh '%s': %s", text, why),
                     (found, "'%.*s'", (int)(nbytes < 200 ? nbytes : 200), text + at));
}

static fsdpck_status bad_item(fsdpck_error *err, const char *text, size_t at, const char *why)
{
    const fsdpck_status st = bad_text(err, text, at, strcspn(text + at, ","), why);
    error_expected(err, "NAME=SIZE,..., outermost first, such as dp_replicate=2,dp_shard=4,tp=2");
    return st;
}

/* A misspelling, or the first word of a name: "tensor" of tensor_parallel. NULL: neither. */
static const char *guess_name(const char *text, size_t nbytes)
{
    char word[SIMILAR_NBYTES_MAX + 1];
    const char *longer = NULL;
    if (nbytes == 0 || nbytes >= sizeof word)
        return NULL;
    memcpy(word, text, nbytes);
    word[nbytes] = '\0';
    similar_search search = similar_to(word);
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++) {
        const char *name = role_names[i].name;
        (void)similar_try(&search, name);
        if (longer == NULL && strncmp(name, word, nbytes) == 0 && name[nbytes] == '_')
            longer = name;
    }
    return longer != NULL ? longer : search.best;
}

static fsdpck_status bad_name(fsdpck_error *err, const char *text, size_t at, size_t nbytes)
{
    if (is_pipeline(text + at, nbytes)) {
        const fsdpck_status st =
            bad_text(err, text, at, nbytes, "pipeline parallelism does not shard tensors");
        error_next(err, "remove it: give the mesh of one stage, and select its layers with --keys");
        return st;
    }
    text_buf names = {0};
    const fsdpck_status st = bad_text(err, text, at, nbytes, "unknown dim name");
    expect_naming(&names);
    if (text_check(&names, NULL) == FSDPCK_OK)
        error_expected(err, "one of %s; or a combination such as dp_shard_cp", names.text);
    const char *guess = guess_name(text + at, nbytes);
    if (guess != NULL)
        error_next(err, "did you mean '%s'? See MESHES in fsdpck-reshard(1)", guess);
    else
        error_next(err, "see MESHES in fsdpck-reshard(1)");
    text_release(&names);
    return st;
}

/* Digits from text[*at] on; moves *at after them. False: no digits, or too large. */
static bool take_size(const char *text, size_t *at, uint64_t *size)
{
    const size_t first = *at;
    uint64_t v = 0;
    for (; text[*at] >= '0' && text[*at] <= '9'; (*at)++) {
        v = v * 10 + (uint64_t)(text[*at] - '0');
        if (v > MESH_RANKS_MAX)
            return false;
    }
    *size = v;
    return *at > first && v > 0;
}

static bool role_is_taken(const mesh *m, mesh_role role)
{
    for (unsigned i = 0; i < m->ndim; i++) {
        mesh_role other = mesh_role_of(m->names[i]);
        other = other == ROLE_CP ? ROLE_FSDP : other;
        if (other == role)
            return true;
    }
    return false;
}

/* Result of add_dim for an unknown name. */
static const char unknown_name[] = "";

/* Adds a dim; a cp multiplies a preceding FSDP dim instead. Returns NULL or the error. */
static const char *add_dim(mesh *m, const char *name, size_t nbytes, uint64_t size)
{
    mesh_role role;
    char copy[MESH_NAME_NBYTES] = {0};
    if (nbytes >= sizeof copy)
        return unknown_name;
    memcpy(copy, name, nbytes);
    role = mesh_role_of(copy);
    if (role == ROLE_UNKNOWN || role == ROLE_PIPELINE)
        return unknown_name;
    if (role == ROLE_CP && m->ndim > 0 && mesh_role_of(m->names[m->ndim - 1]) == ROLE_FSDP) {
        char *last = m->names[m->ndim - 1];
        const size_t at = strlen(last);
        if (at > 3 && strcmp(last + at - 3, "_cp") == 0)
            return "two dims with the same role";
        if (at + 4 > MESH_NAME_NBYTES)
            return unknown_name;
        memcpy(last + at, "_cp", 4);
        m->sizes[m->ndim - 1] *= size; /* both are at most MESH_RANKS_MAX */
        return NULL;
    }
    if (role_is_taken(m, role == ROLE_CP ? ROLE_FSDP : role))
        return role == ROLE_CP ? "cp must directly follow the FSDP dim"
                               : "two dims with the same role";
    if (m->ndim == MESH_NDIM_MAX)
        return "too many dims";
    memcpy(m->names[m->ndim], copy, sizeof copy);
    m->sizes[m->ndim++] = size;
    return NULL;
}

fsdpck_status mesh_parse(const char *text, mesh *m, fsdpck_error *err)
{
    size_t at = 0;
    *m = (mesh){0};
    do {
        const size_t name_at = at;
        uint64_t size;
        while (text[at] != '\0' && text[at] != '=' && text[at] != ',')
            at++;
        const size_t name_nbytes = at - name_at;
        if (text[at] != '=' || name_nbytes == 0)
            return bad_item(err, text, name_at, "expected NAME=SIZE");
        at++;
        const size_t size_at = at;
        if (!take_size(text, &at, &size) || (text[at] != ',' && text[at] != '\0'))
            return bad_text(err, text, size_at, strcspn(text + size_at, ","),
                            "sizes must be whole numbers from 1 to 65534");
        const char *wrong = add_dim(m, text + name_at, name_nbytes, size);
        if (wrong == unknown_name)
            return bad_name(err, text, name_at, name_nbytes);
        if (wrong != NULL)
            return bad_item(err, text, name_at, wrong);
        if (mesh_size(m) > MESH_RANKS_MAX)
            return bad_text(err, text, 0, strlen(text), "more than 65534 ranks");
    } while (text[at++] == ',');
    return FSDPCK_OK;
}

/* Ranks */

uint64_t mesh_size(const mesh *m)
{
    uint64_t product;
    return checked_product(m->sizes, m->ndim, &product) ? product : UINT64_MAX;
}

fsdpck_status mesh_check(const mesh *m, fsdpck_error *err)
{
    if (m->ndim == 0 || m->ndim > MESH_NDIM_MAX)
        return FAIL(err, BADINPUT, LAYOUT_MESH, "mesh has %u dims: 1 to %u are supported", m->ndim,
                    MESH_NDIM_MAX);
    const uint64_t size = mesh_size(m);
    if (size == 0 || size > MESH_RANKS_MAX)
        return FAIL(err, BADINPUT, LAYOUT_MESH, "mesh has %" PRIu64 " ranks: 1 to %u are supported",
                    size, MESH_RANKS_MAX);
    for (unsigned i = 0; i < m->ndim; i++)
        if (memchr(m->names[i], '\0', MESH_NAME_NBYTES) == NULL)
            return FAIL(err, BADINPUT, LAYOUT_MESH, "name of mesh dim %u is too long", i);
    return FSDPCK_OK;
}

void mesh_coord(const mesh *m, uint64_t rank, uint64_t *coord)
{
    for (unsigned i = m->ndim; i-- > 0;) {
        coord[i] = rank % m->sizes[i];
        rank /= m->sizes[i];
    }
}

uint64_t mesh_rank(const mesh *m, const uint64_t *coord)
{
    uint64_t rank = 0;
    for (unsigned i = 0; i < m->ndim; i++)
        rank = rank * m->sizes[i] + coord[i];
    return rank;
}

/* Printing */

void mesh_print(const mesh *m, text_buf *out)
{
    bool named = true;
    for (unsigned i = 0; i < m->ndim; i++)
        named = named && m->names[i][0] != '\0';
    for (unsigned i = 0; i < m->ndim; i++) {
        if (named) {
            char shown[4 * MESH_NAME_NBYTES];
            escape_text(shown, sizeof shown, m->names[i], strlen(m->names[i]));
            text_printf(out, "%s%s=%" PRIu64, i > 0 ? "," : "", shown, m->sizes[i]);
        } else {
            text_printf(out, "%s%" PRIu64, i > 0 ? "x" : "", m->sizes[i]);
        }
    }
}

static void placement_print(const placement *p, text_buf *out)
{
    switch ((placement_kind)p->kind) {
    case PLACEMENT_REPLICATE:
        text_puts(out, "Replicate()");
        return;
    case PLACEMENT_SHARD:
        text_printf(out, "Shard(%u)", (unsigned)p->dim);
        return;
    case PLACEMENT_STRIDED_SHARD:
        text_printf(out, "_StridedShard(%u, %" PRIu32 ")", (unsigned)p->dim, p->split_factor);
        return;
    case PLACEMENT_PARTIAL:
        break;
    }
    text_puts(out, p->kind == PLACEMENT_PARTIAL ? "Partial()" : "?");
}

void placements_print(const placement *p, unsigned mesh_ndim, text_buf *out)
{
    if (mesh_ndim != 1)
        text_puts(out, "[");
    for (unsigned i = 0; i < mesh_ndim; i++) {
        if (i > 0)
            text_puts(out, ", ");
        placement_print(&p[i], out);
    }
    if (mesh_ndim != 1)
        text_puts(out, "]");
}
