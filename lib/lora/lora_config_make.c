/* lora_config_make.c: adapter_config.json from the tensors of an adapter and what the user adds. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_internal.h"

typedef struct make_state {
    const lora_set *set;
    const catalogue *c;
    uint32_t adapter;
    uint64_t r;    /* of most modules */
    strtab paths;  /* of the adapter's modules for target_modules */
    strtab leaves; /* last segments of paths that other modules of the base model have too */
} make_state;

static bool has_rank(const make_state *s, const lora_module *m)
{
    return m->adapter == s->adapter && m->kind != LORA_SAVED && m->kind != LORA_TOKENS;
}

static fsdpck_status fail_missing(const char *what, const char *why, const char *next,
                                  fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, LORA_CONFIG, ("'%s' of the adapter is unknown: %s", what, why),
                     (next, "%s", next));
}

/* transformers 5 keeps fused experts as parameters of such a module, which PEFT refuses in target_modules. */
static bool is_experts(const make_state *s, const lora_module *m)
{
    const char *path = lora_text(s->set, m->path);
    const size_t n = strlen(path);
    return !s->set->has_base && m->kind == LORA_LINEAR &&
           (strcmp(path, "experts") == 0 || text_ends_with(path, n, ".experts"));
}

static fsdpck_status check_facts(const make_state *s, const lora_facts *facts, fsdpck_error *err)
{
    static const char file[] = "give the adapter_config.json of the training with --adapter-config";
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (m->adapter != s->adapter)
            continue;
        if (m->kind == LORA_TOKENS)
            return fail_missing("trainable_token_indices", "the tensors contain the rows only",
                                file, err);
        if ((m->kind == LORA_PARAMETER && m->parameter == LORA_NONE) || is_experts(s, m))
            return fail_missing("target_parameters",
                                "the names of tensors do not contain those of parameters", file,
                                err);
        if (has_rank(s, m) && lora_module_rank(s->set, s->c, m) == 0)
            return fail_missing("r", "the number of experts is unknown", file, err);
    }
    if (!facts->has_alpha)
        return fail_missing(
            "lora_alpha", "the tensors do not contain it",
            "give --adapter-config FILE, the adapter_config.json of the training, or "
            "--lora-alpha X",
            err);
    return FSDPCK_OK;
}

/* ---- experts with two projections in one parameter ---- */

static bool is_fused(const make_state *s, const lora_module *m)
{
    return m->kind == LORA_PARAMETER &&
           strcmp(lora_text(s->set, m->parameter), "gate_up_proj") == 0;
}

/* The rank of all modules but fused ones; 0: they differ, or there are none. */
static uint64_t shared_rank(const make_state *s)
{
    uint64_t shared = 0;
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (!has_rank(s, m) || is_fused(s, m))
            continue;
        const uint64_t r = lora_module_rank(s->set, s->c, m);
        if (shared != 0 && r != shared)
            return 0;
        shared = r;
    }
    return shared;
}

/* Where a training names gate_proj and up_proj of experts that transformers 5 keeps as gate_up_proj, PEFT doubles r and
 * lora_alpha of that parameter. A rank_pattern of the user's own may look the same, with a lora_alpha that is not doubled.
 * Source: peft 0.21.2 (utils/transformers_weight_conversion.py: _convert_peft_config_moe). */
static fsdpck_status check_fused(const make_state *s, const lora_facts *facts, fsdpck_error *err)
{
    const uint64_t r = facts->r > 0 ? facts->r : shared_rank(s);
    for (size_t i = 0; i < lora_module_count(s->set) && r > 0; i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (!has_rank(s, m) || !is_fused(s, m))
            continue;
        const uint64_t found = lora_module_rank(s->set, s->c, m);
        if (found % 2 != 0 || found / 2 != r)
            continue;
        const uint32_t a = catalogue_tensor(s->c, lora_cat_tensor(s->set, m->a))->name;
        return FAIL_WITH(
            err, BADINPUT, LORA_CONFIG,
            ("'lora_alpha' of '%s.gate_up_proj' is unknown: PEFT doubles it with the rank for "
             "fused gate_up_proj",
             lora_text(s->set, m->path)),
            (tensor, catalogue_name(s->c, a)),
            (expected, "rank %" PRIu64 ", %s", r,
             facts->r > 0 ? "the stated r" : "that of all other modules"),
            (found, "rank %" PRIu64 ", twice as much", found),
            (next, "give the adapter_config.json of the training with --adapter-config FILE"));
    }
    return FSDPCK_OK;
}

/* ---- r ---- */

static int compare_ranks(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    ORDER_BY(x, y);
    return 0;
}

/* The rank of most modules, the smallest of several. */
static fsdpck_status find_rank(make_state *s, fsdpck_error *err)
{
    vec ranks = VEC_OF(uint64_t, s->set->names.owner);
    size_t best = 0;
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < lora_module_count(s->set) && st == FSDPCK_OK; i++) {
        const uint64_t r = lora_module_rank(s->set, s->c, lora_module_at(s->set, i));
        if (has_rank(s, lora_module_at(s->set, i)))
            st = vec_add(&ranks, &r, err);
    }
    if (ranks.count > 0)
        qsort(ranks.items, ranks.count, sizeof(uint64_t), compare_ranks);
    for (size_t i = 0, n = 0; i < ranks.count; i += n) {
        const uint64_t *r = VEC_AT(&ranks, const uint64_t, i);
        for (n = 1; i + n < ranks.count && r[n] == r[0]; n++)
            ;
        if (n > best) {
            best = n;
            s->r = r[0];
        }
    }
    vec_release(&ranks);
    return st;
}

/* ---- target_modules ---- */

static size_t leaf_begin(const char *path, size_t nbytes)
{
    while (nbytes > 0 && path[nbytes - 1] != '.')
        nbytes--;
    return nbytes;
}

static bool is_target(const make_state *s, const lora_module *m)
{
    return has_rank(s, m) && m->kind != LORA_PARAMETER && m->holder == LORA_NONE;
}

/* Modules of the base model without this adapter: their last segments cannot stand for the others. */
static fsdpck_status find_leaves(make_state *s, fsdpck_error *err)
{
    const strtab *names = &s->set->names;
    uint32_t id;
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (is_target(s, m))
            RETURN_IF(strtab_intern(&s->paths, strtab_text(names, m->path),
                                    strtab_nbytes(names, m->path), &id, err));
    }
    for (size_t i = 0; i < lora_tensor_count(s->set); i++) {
        const lora_tensor *t = lora_tensor_at(s->set, i);
        if (t->role != LORA_ROLE_BASE && t->role != LORA_ROLE_ORIGINAL)
            continue;
        const char *name = strtab_text(names, t->base);
        size_t n = leaf_begin(name, strtab_nbytes(names, t->base));
        /* All modules around the tensor. */
        while (n > 1) {
            const size_t leaf = leaf_begin(name, n - 1);
            if (strtab_find(&s->paths, name, n - 1) == STRTAB_NONE)
                RETURN_IF(strtab_intern(&s->leaves, name + leaf, n - 1 - leaf, &id, err));
            n = leaf;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status put_targets(const make_state *s, json_writer *w, fsdpck_error *err)
{
    strtab put;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&put, s->set->names.owner);
    json_member_array(w, "target_modules");
    for (uint32_t i = 0; i < strtab_count(&s->paths) && st == FSDPCK_OK; i++) {
        const char *path = strtab_text(&s->paths, i);
        const size_t n = strtab_nbytes(&s->paths, i), leaf = leaf_begin(path, n);
        const bool whole =
            !s->set->has_base || strtab_find(&s->leaves, path + leaf, n - leaf) != STRTAB_NONE;
        const size_t begin = whole ? 0 : leaf, known = strtab_count(&put);
        uint32_t id;
        st = strtab_intern(&put, path + begin, n - begin, &id, err);
        if (st == FSDPCK_OK && id == known)
            json_put_string(w, path + begin, n - begin);
    }
    json_end_array(w);
    strtab_release(&put);
    return st;
}

/* ---- members ---- */

/* A regular expression that matches this path alone: `^` permits nothing before it. */
static void put_pattern_key(const make_state *s, const lora_module *m, text_buf *key)
{
    static const char special[] = "\\^$*+?()[]{}|";
    key->nbytes = 0;
    text_puts(key, "^");
    const char *path = lora_text(s->set, m->path);
    for (size_t i = 0; path[i] != '\0'; i++) {
        if (strchr(special, path[i]) != NULL)
            text_puts(key, "\\");
        text_append(key, &path[i], 1);
    }
    if (m->kind == LORA_PARAMETER)
        text_printf(key, ".%s", lora_text(s->set, m->parameter));
}

static fsdpck_status put_ranks(const make_state *s, json_writer *w, fsdpck_error *err)
{
    text_buf key = {0};
    json_member_object(w, "rank_pattern");
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        const uint64_t r = has_rank(s, m) ? lora_module_rank(s->set, s->c, m) : s->r;
        if (r == s->r || m->holder != LORA_NONE)
            continue;
        put_pattern_key(s, m, &key);
        if (text_check(&key, NULL) == FSDPCK_OK)
            json_member_u64(w, key.text, r);
    }
    json_end_object(w);
    const fsdpck_status st = text_check(&key, err);
    text_release(&key);
    return st;
}

static void begin_list(json_writer *w, const char *member, bool *any)
{
    if (!*any)
        json_member_array(w, member);
    *any = true;
}

static void end_list(json_writer *w, const char *member, bool any)
{
    if (any) {
        json_end_array(w);
        return;
    }
    json_put_key(w, member, strlen(member));
    json_put_null(w);
}

/* Paths of modules that were trained whole; null without any. */
static fsdpck_status put_saved(const make_state *s, json_writer *w, fsdpck_error *err)
{
    static const char member[] = "modules_to_save";
    const strtab *names = &s->set->names;
    strtab put;
    bool any = false;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&put, names->owner);
    for (size_t i = 0; i < lora_tensor_count(s->set) && st == FSDPCK_OK; i++) {
        const lora_tensor *t = lora_tensor_at(s->set, i);
        if (t->adapter != s->adapter || t->role != LORA_ROLE_SAVED)
            continue;
        uint32_t text = t->base, id;
        size_t n = lora_saved_path(s->set, i);
        if (t->module != LORA_NONE) {
            text = lora_module_at(s->set, t->module)->path;
            n = strtab_nbytes(names, text);
        }
        const size_t known = strtab_count(&put);
        if (n > 0)
            st = strtab_intern(&put, strtab_text(names, text), n, &id, err);
        if (strtab_count(&put) == known)
            continue;
        begin_list(w, member, &any);
        json_put_string(w, strtab_text(names, text), n);
    }
    end_list(w, member, any);
    strtab_release(&put);
    return st;
}

/* Paths of parameters with an adapter; null without any. */
static void put_parameters(const make_state *s, json_writer *w)
{
    static const char member[] = "target_parameters";
    text_buf path = {0};
    bool any = false;
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (m->adapter != s->adapter || m->kind != LORA_PARAMETER)
            continue;
        begin_list(w, member, &any);
        path.nbytes = 0;
        text_printf(&path, "%s.%s", lora_text(s->set, m->path), lora_text(s->set, m->parameter));
        json_put_string(w, path.text, path.nbytes);
    }
    end_list(w, member, any);
    text_release(&path);
}

static void put_text(json_writer *w, const char *member, const char *text)
{
    json_put_key(w, member, strlen(member));
    json_put_cstr(w, text);
}

/* The members that PEFT needs, in the order of its files. */
static fsdpck_status put_members(const make_state *s, const lora_facts *facts, json_writer *w,
                                 fsdpck_error *err)
{
    static const char *const biases[] = {"none", "all", "lora_only"};
    bool use_dora = false, has_bias = false;
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        use_dora = use_dora || (m->adapter == s->adapter && m->magnitude != LORA_NONE);
        has_bias = has_bias || (m->adapter == s->adapter && m->b_bias != LORA_NONE);
    }
    json_member_object(w, "alpha_pattern");
    json_end_object(w);
    put_text(w, "base_model_name_or_path", facts->base_model);
    put_text(w, "bias", biases[lora_bias_of(s->set, NULL)]);
    json_member_bool(w, "fan_in_fan_out", facts->fan_in_fan_out);
    json_member_bool(w, "inference_mode", true);
    json_member_bool(w, "init_lora_weights", true);
    json_member_double(w, "lora_alpha", facts->alpha);
    json_member_bool(w, "lora_bias", has_bias);
    RETURN_IF(put_saved(s, w, err));
    put_text(w, "peft_type", "LORA");
    json_member_u64(w, "r", s->r);
    RETURN_IF(put_ranks(s, w, err));
    RETURN_IF(put_targets(s, w, err));
    put_parameters(s, w);
    put_text(w, "task_type", facts->task_type);
    json_member_bool(w, "use_dora", use_dora);
    json_member_bool(w, "use_rslora", facts->use_rslora);
    return FSDPCK_OK;
}

fsdpck_status lora_config_make(const lora_set *set, const catalogue *c, uint32_t adapter,
                               const lora_facts *facts, text_buf *out, fsdpck_error *err)
{
    make_state s = {.set = set, .c = c, .adapter = adapter};
    json_writer w;
    RETURN_IF(check_facts(&s, facts, err));
    RETURN_IF(check_fused(&s, facts, err));
    RETURN_IF(find_rank(&s, err));
    strtab_init(&s.paths, set->names.owner);
    strtab_init(&s.leaves, set->names.owner);
    json_writer_init(&w, out, 2);
    json_begin_object(&w);
    fsdpck_status st = find_leaves(&s, err);
    if (st == FSDPCK_OK)
        st = put_members(&s, facts, &w, err);
    json_end_object(&w);
    text_puts(out, "\n");
    if (st == FSDPCK_OK)
        st = text_check(out, err);
    strtab_release(&s.paths);
    strtab_release(&s.leaves);
    return st;
}
