/* fuzz_lora: a config of PEFT and the names and shapes of tensors, from arbitrary bytes.
 *
 * The input is an adapter_config.json, a NUL, and lines such as "8,6 base_model.model.q.lora_A.default.weight".
 * A config that is made of the tensors must be accepted, and fit them. The names that are saved are those of
 * an adapter again, and of the same role. */
#include <stdlib.h>
#include <string.h>

#include "lora/lora_check.h"
#include "lora/lora_extract.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { TENSORS_MAX = 200 };

static void check_refusal(fsdpck_status st, const fsdpck_error *err)
{
    must(st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT ||
             st == FSDPCK_USAGE,
         "refused with another status");
    must(st == FSDPCK_LIMIT || strncmp(fsdpck_finding_name(err->finding), "LORA-", 5) == 0,
         "refused without a finding");
}

/* Dims before the blank; false where the line has none, or its name is there already. */
static bool add_line(catalogue *cat, const char *line, size_t nbytes, lora_input *in)
{
    uint64_t shape[4] = {0};
    unsigned ndim = 0;
    const char *blank = memchr(line, ' ', nbytes);
    fsdpck_error err;
    if (blank == NULL)
        return false;
    for (const char *c = line; c < blank && ndim < 4; c++) {
        if (*c == ',')
            ndim++;
        else if (*c >= '0' && *c <= '9' && shape[ndim] < 100000)
            shape[ndim] = shape[ndim] * 10 + (uint64_t)(*c - '0');
    }
    ndim = blank == line ? 0 : ndim < 4 ? ndim + 1 : 4;
    in->name = blank + 1;
    in->nbytes = nbytes - (size_t)(blank + 1 - line);
    return catalogue_add_tensor(cat, in->name, in->nbytes, DTYPE_FLOAT32, ndim, shape, &in->tensor,
                                &err) == FSDPCK_OK;
}

static size_t add_lines(catalogue *cat, const char *text, size_t nbytes, lora_input *inputs)
{
    size_t count = 0;
    for (size_t at = 0; at < nbytes && count < TENSORS_MAX;) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        const size_t n = end == NULL ? nbytes - at : (size_t)(end - (text + at));
        count += add_line(cat, text + at, n, &inputs[count]);
        at += n + 1;
    }
    return count;
}

static fsdpck_status ignore_fault(void *ctx, const fsdpck_error *fault, fsdpck_error *err)
{
    (void)err;
    check_refusal(fault->status, fault);
    ++*(size_t *)ctx;
    return FSDPCK_OK;
}

static void check_names(const lora_set *set)
{
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const char *saved = strtab_text(&set->names, t->saved);
        const uint32_t role = lora_role_of_name(saved, strtab_nbytes(&set->names, t->saved));
        if (t->module == LORA_NONE || t->role == LORA_ROLE_SAVED)
            continue;
        must(t->adapter < lora_adapter_count(set), "no adapter");
        /* Names without base_model.model. get it, and with it segments of other methods count. */
        must(role == t->role || role == LORA_ROLE_FOREIGN, "the saved name has another role");
    }
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        must(m->adapter < lora_adapter_count(set), "module without adapter");
        must(m->kind == LORA_SAVED || m->a != LORA_NONE || m->b != LORA_NONE ||
                 m->a_bias != LORA_NONE || m->b_bias != LORA_NONE || m->magnitude != LORA_NONE ||
                 m->tokens != LORA_NONE,
             "empty module");
    }
}

static void check_adapter(lora_set *set, const catalogue *cat, uint32_t adapter,
                          const lora_config *config, budget *b)
{
    const lora_facts facts = {.has_alpha = true, .alpha = 16};
    lora_config made;
    fsdpck_error err;
    text_buf text = {0};
    size_t faults = 0;
    bool chosen[TENSORS_MAX];
    fsdpck_error_init(&err);
    lora_choose(set, cat, adapter, config, chosen);
    fsdpck_status st = lora_check(set, cat, adapter, config, ignore_fault, &faults, &err);
    if (st != FSDPCK_OK)
        check_refusal(st, &err);
    faults = 0;
    if (lora_check(set, cat, adapter, NULL, ignore_fault, &faults, &err) != FSDPCK_OK || faults > 0)
        return;
    st = lora_config_make(set, cat, adapter, &facts, &text, &err);
    if (st != FSDPCK_OK) {
        check_refusal(st, &err);
    } else {
        st = lora_config_read(text.text, text.nbytes, b, &made, &err);
        must(st == FSDPCK_OK || st == FSDPCK_LIMIT || st == FSDPCK_BADINPUT,
             "the config that was made");
        lora_config_release(&made);
    }
    text_release(&text);
}

static void check_set(lora_set *set, const catalogue *cat, const lora_config *config, budget *b)
{
    fsdpck_error err;
    lora_numbers numbers;
    fsdpck_error_init(&err);
    check_names(set);
    fsdpck_status st = lora_set_name_parameters(set, cat, config, &err);
    if (st != FSDPCK_OK) {
        check_refusal(st, &err);
        return;
    }
    for (uint32_t i = 0; i < lora_adapter_count(set) && i < 4; i++)
        check_adapter(set, cat, i, config, b);
    for (size_t i = 0; config != NULL && i < lora_module_count(set); i++) {
        const char *path = lora_text(set, lora_module_at(set, i)->path);
        st = lora_config_numbers(config, path, strlen(path), &numbers, &err);
        if (st != FSDPCK_OK)
            check_refusal(st, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    lora_input inputs[TENSORS_MAX];
    budget b;
    catalogue cat;
    lora_config config;
    lora_set set;
    fsdpck_error err;
    const char *text = (const char *)data;
    const char *end = nbytes == 0 ? NULL : memchr(text, '\0', nbytes);
    const size_t config_nbytes = end == NULL ? nbytes : (size_t)(end - text);
    fsdpck_error_init(&err);
    budget_init(&b, 64u << 20, "metadata", NULL);
    fsdpck_status st = lora_config_read(text, config_nbytes, &b, &config, &err);
    if (st != FSDPCK_OK)
        check_refusal(st, &err);
    const bool has_config = st == FSDPCK_OK;
    catalogue_init(&cat, &b);
    const size_t count =
        end == NULL ? 0 : add_lines(&cat, end + 1, nbytes - config_nbytes - 1, inputs);
    st = lora_set_find(&cat, inputs, count, false, &b, &set, &err);
    if (st == FSDPCK_OK)
        check_set(&set, &cat, has_config ? &config : NULL, &b);
    else
        check_refusal(st, &err);
    lora_set_release(&set);
    lora_config_release(&config);
    catalogue_release(&cat);
    must(b.used_bytes == 0, "budget was not given back");
    return 0;
}
