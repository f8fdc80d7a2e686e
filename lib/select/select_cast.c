#include "select/select_cast.h"

#include <string.h>
#include <strings.h>

#include "base/similar.h"

/* Short names, torch's aliases, and the names in safetensors files, which are upper case there. */
static const char *const other_names[][2] = {
    {"bf16", "bfloat16"},        {"fp16", "float16"},           {"f16", "float16"},
    {"half", "float16"},         {"fp32", "float32"},           {"f32", "float32"},
    {"float", "float32"},        {"fp64", "float64"},           {"f64", "float64"},
    {"double", "float64"},       {"fp8_e4m3", "float8_e4m3fn"}, {"f8_e4m3", "float8_e4m3fn"},
    {"fp8_e5m2", "float8_e5m2"}, {"f8_e5m2", "float8_e5m2"},
};
#define OTHER_NAMES (sizeof other_names / sizeof *other_names)

static fsdpck_status refuse(const char *word, const char *name, fsdpck_error *err)
{
    similar_search search = similar_to(name);
    for (size_t i = 0; i < OTHER_NAMES; i++) {
        if (strpbrk(other_names[i][0], "0123456789") != NULL) /* "bfloat" is not meant as "float" */
            (void)similar_try(&search, other_names[i][0]);
        (void)similar_try(&search, other_names[i][1]);
    }
    return FAIL_WITH(err, USAGE, NONE, ("'%s' does not name a floating-point dtype", word),
                     (next,
                      "%s%s%suse bf16, fp16, fp32, fp64 or a dtype by its torch name, optionally "
                      "with a glob: '*.norm.*=fp32'",
                      search.best == NULL ? "" : "did you mean '",
                      search.best == NULL ? "" : search.best,
                      search.best == NULL ? "" : "'? Otherwise "));
}

fsdpck_status select_cast_compile(const char *word, select_cast *cast, fsdpck_error *err)
{
    static const char prefix[] = "torch.";
    const char *equals = strrchr(word, '=');
    const char *name = equals == NULL ? word : equals + 1;
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    const char *const given = name;
    for (size_t i = 0; i < OTHER_NAMES; i++) {
        if (strcasecmp(name, other_names[i][0]) == 0)
            name = other_names[i][1];
    }
    cast->to = dtype_from_name(name, strlen(name));
    if (dtype_get(cast->to)->kind != DTYPE_IS_FLOAT || dtype_get(cast->to)->packing > 1)
        return refuse(word, given, err);
    if (equals != NULL) {
        cast->glob = strndup(word, (size_t)(equals - word));
        if (cast->glob == NULL)
            return error_set_nomem(err, strlen(word));
    }
    return FSDPCK_OK;
}
