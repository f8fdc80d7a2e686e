/* adapter_config.c: where the config of an adapter comes from: a file that the user gives, a file beside
 * the weights or their own header, in which options replace members, or options alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "open/checkpoint.h"

/* Real ones have some KB. */
#define CONFIG_NBYTES_MAX ((uint64_t)4 << 20)

#define CONFIG_NAME "adapter_config.json"
/* verl writes r, lora_alpha and task_type beside its rank files. */
#define META_NAME "lora_train_meta.json"

/* Replaces a path by that of the folder around it. Its memory has 2 bytes at least. */
static void go_up(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        memcpy(path, ".", 2);
    else
        slash[slash == path ? 1 : 0] = '\0';
}

static fsdpck_status read_in(const char *in, const char *name, adapter_source *found,
                             fsdpck_error *err)
{
    path_kind kind;
    found->path = folder_path_join(in, name);
    if (found->path == NULL)
        return error_set_nomem(err, strlen(in));
    RETURN_IF(path_probe(NULL, found->path, &kind, NULL, err));
    if (kind == PATH_FILE)
        return file_read_whole(NULL, found->path, CONFIG_NBYTES_MAX, &found->text, &found->nbytes,
                               err);
    free(found->path);
    found->path = NULL;
    return FSDPCK_OK;
}

/* A file in the folder of the checkpoint, or the folder around it. *text stays NULL without one. */
static fsdpck_status read_beside(const fsdpck_checkpoint *c, const char *name,
                                 adapter_source *found, fsdpck_error *err)
{
    const size_t capacity = strlen(c->path) + 2;
    if (c->format->id == FSDPCK_FORMAT_MEMORY) /* its path is that of no file */
        return FSDPCK_OK;
    char *in = malloc(capacity);
    if (in == NULL)
        return error_set_nomem(err, capacity);
    memcpy(in, c->path, capacity - 1);
    if (!c->probe.is_folder)
        go_up(in);
    fsdpck_status st = read_in(in, name, found, err);
    /* An adapter that PEFT saved has its config in its own folder: around it is that of another. */
    const bool is_of_peft = probe_has_entry(&c->probe, "adapter_model.safetensors") ||
                            probe_has_entry(&c->probe, "adapter_model.bin");
    if (st == FSDPCK_OK && found->text == NULL && c->probe.is_folder && !is_of_peft) {
        go_up(in);
        st = read_in(in, name, found, err);
    }
    free(in);
    return st;
}

static fsdpck_status read_meta_member(adapter_source *found, const char *key, const json_token *t)
{
    char number[64];
    if (strcmp(key, "r") == 0 && t->kind == JSON_NUMBER && t->is_u64)
        found->facts.r = t->u64;
    if (strcmp(key, "lora_alpha") == 0 && t->kind == JSON_NUMBER && t->nbytes < sizeof number) {
        memcpy(number, t->text, t->nbytes);
        number[t->nbytes] = '\0';
        found->facts.alpha = strtod(number, NULL);
        /* verl's own merger writes 0 where it does not know it. */
        found->facts.has_alpha = isfinite(found->facts.alpha) && found->facts.alpha != 0;
    }
    if (strcmp(key, "task_type") == 0 && t->kind == JSON_STRING &&
        t->nbytes < sizeof found->task_type && memchr(t->text, '\0', t->nbytes) == NULL) {
        memcpy(found->task_type, t->text, t->nbytes);
        found->task_type[t->nbytes] = '\0';
        found->facts.task_type = found->task_type;
    }
    return FSDPCK_OK;
}

static fsdpck_status parse_meta(adapter_source *found, json_reader *r, fsdpck_error *err)
{
    json_token t;
    char key[32];
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(r, JSON_END, &t, err);
        const size_t n = t.nbytes < sizeof key ? t.nbytes : 0;
        memcpy(key, t.text, n);
        key[n] = '\0';
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(read_meta_member(found, key, &t));
        RETURN_IF(json_skip(r, &t, err));
    }
}

static fsdpck_status read_meta(const fsdpck_checkpoint *c, adapter_source *found, fsdpck_error *err)
{
    json_reader r;
    RETURN_IF(read_beside(c, META_NAME, found, err));
    if (found->text == NULL)
        return FSDPCK_OK;
    json_reader_init(&r, found->text, found->nbytes, FSDPCK_FINDING_LORA_CONFIG);
    const fsdpck_status st = parse_meta(found, &r, err);
    json_reader_release(&r);
    free(found->text);
    found->text = NULL;
    if (st != FSDPCK_OK)
        error_path(err, found->path);
    return st;
}

/* The first option that a config would contradict. */
static const char *first_fact(const fsdpck_adapter_options *o)
{
    return o->has_lora_alpha       ? "--lora-alpha"
           : o->use_rslora         ? "--rslora"
           : o->fan_in_fan_out     ? "--fan-in-fan-out"
           : o->task_type != NULL  ? "--task-type"
           : o->base_model != NULL ? "--base-model"
                                   : NULL;
}

static void take_options(const fsdpck_adapter_options *o, adapter_source *found)
{
    if (o->has_lora_alpha) {
        found->facts.has_alpha = true;
        found->facts.alpha = o->lora_alpha;
    }
    found->facts.use_rslora = o->use_rslora != 0;
    found->facts.fan_in_fan_out = o->fan_in_fan_out != 0;
    if (o->task_type != NULL)
        found->facts.task_type = o->task_type;
    found->facts.base_model = o->base_model;
}

/* ---- options for single members of a file ---- */

#define MEMBER_COUNT 5

/* Members that options replace. */
typedef struct given_member {
    const char *key;
    bool given, done;
    enum { MEMBER_NUMBER, MEMBER_TRUE, MEMBER_TEXT } kind;
    double number;
    const char *text;
} given_member;

static void list_given(const fsdpck_adapter_options *o, given_member *m)
{
    m[0] = (given_member){.key = "lora_alpha",
                          .given = o->has_lora_alpha != 0,
                          .kind = MEMBER_NUMBER,
                          .number = o->lora_alpha};
    m[1] = (given_member){.key = "use_rslora", .given = o->use_rslora != 0, .kind = MEMBER_TRUE};
    m[2] = (given_member){
        .key = "fan_in_fan_out", .given = o->fan_in_fan_out != 0, .kind = MEMBER_TRUE};
    m[3] = (given_member){.key = "task_type",
                          .given = o->task_type != NULL,
                          .kind = MEMBER_TEXT,
                          .text = o->task_type};
    m[4] = (given_member){.key = "base_model_name_or_path",
                          .given = o->base_model != NULL,
                          .kind = MEMBER_TEXT,
                          .text = o->base_model};
}

static void put_given(json_writer *w, const given_member *m)
{
    json_put_key(w, m->key, strlen(m->key));
    if (m->kind == MEMBER_NUMBER)
        json_put_double(w, m->number);
    else if (m->kind == MEMBER_TRUE)
        json_put_bool(w, true);
    else
        json_put_cstr(w, m->text);
}

/* The file's members in their order, with the values of the options; then those that the file lacks. */
static fsdpck_status replace_members(json_reader *r, given_member *m, json_writer *w,
                                     fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    json_put_token(w, &t);
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END && r->depth == 0)
            break;
        size_t i = 0;
        while (i < MEMBER_COUNT &&
               !(t.kind == JSON_KEY && r->depth == 1 && m[i].given && json_is(&t, m[i].key)))
            i++;
        if (i == MEMBER_COUNT) {
            json_put_token(w, &t);
            continue;
        }
        put_given(w, &m[i]);
        m[i].done = true;
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(json_skip(r, &t, err));
    }
    for (size_t i = 0; i < MEMBER_COUNT; i++)
        if (m[i].given && !m[i].done)
            put_given(w, &m[i]);
    json_end_object(w);
    return json_expect(r, JSON_END, &t, err);
}

static fsdpck_status apply_options(const fsdpck_adapter_options *o, adapter_source *found,
                                   fsdpck_error *err)
{
    given_member members[MEMBER_COUNT];
    text_buf out = {0};
    json_reader r;
    json_writer w;
    list_given(o, members);
    json_writer_init(&w, &out, 2);
    json_reader_init(&r, found->text, found->nbytes, FSDPCK_FINDING_LORA_CONFIG);
    fsdpck_status st = replace_members(&r, members, &w, err);
    json_reader_release(&r);
    text_puts(&out, "\n");
    if (st == FSDPCK_OK)
        st = text_check(&out, err);
    if (st != FSDPCK_OK) {
        text_release(&out);
        error_path(err, found->path);
        return st;
    }
    free(found->text);
    found->text = out.text;
    found->nbytes = out.nbytes;
    return FSDPCK_OK;
}

static fsdpck_status fail_of_another(const fsdpck_checkpoint *c, const char *name,
                                     adapter_source *found, fsdpck_error *err)
{
    free(found->text);
    found->text = NULL;
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                     ("adapter_config.json may be that of another adapter"), (path, c->path),
                     (expected, "%.40s/" CONFIG_NAME ": the checkpoint has several adapters", name),
                     (found, "%s", found->path),
                     (next, "copy each adapter out with --part adapter --adapter NAME "
                            "--adapter-config FILE"));
}

/* PEFT writes the config of the adapter `default` beside the weights, and that of others to NAME/. */
static fsdpck_status read_config_of(const fsdpck_checkpoint *c, const char *name, bool is_one_of,
                                    adapter_source *found, fsdpck_error *err)
{
    if (name != NULL && name[0] == '\0')
        name = NULL;
    if (name != NULL && strchr(name, '/') == NULL && strcmp(name, "..") != 0) {
        char *inside = folder_path_join(name, CONFIG_NAME);
        if (inside == NULL)
            return error_set_nomem(err, strlen(name));
        const fsdpck_status st = read_beside(c, inside, found, err);
        free(inside);
        if (st != FSDPCK_OK || found->text != NULL)
            return st;
    }
    RETURN_IF(read_beside(c, CONFIG_NAME, found, err));
    if (found->text == NULL || !is_one_of || name == NULL || strcmp(name, "default") == 0)
        return FSDPCK_OK;
    return fail_of_another(c, name, found, err);
}

/* ---- the header of the weights ---- */

/* save_lora_adapter and save_lora_weights of diffusers (0.35 and later) keep the config of PEFT in
 * `__metadata__`; the latter puts the component in front of each key, as "unet.lora_alpha". */
static const char header_key[] = "lora_adapter_metadata";

/* Whether the keys of an object have a component in front, and all the same. `names` gets those that differ from the one
 * before: the keys of a component are neighbours. */
static fsdpck_status read_component(const char *text, size_t nbytes, char *component, size_t room,
                                    text_buf *names, bool *several, fsdpck_error *err)
{
    json_reader r;
    json_token t;
    bool first = true;
    *several = false;
    component[0] = '\0';
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_LORA_CONFIG);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    while (st == FSDPCK_OK && (st = json_next(&r, &t, err)) == FSDPCK_OK &&
           t.kind != JSON_OBJECT_END) {
        const char *dot = memchr(t.text, '.', t.nbytes);
        const size_t n = dot == NULL ? 0 : (size_t)(dot - t.text) + 1;
        const bool differs = n != strlen(component) || memcmp(t.text, component, n) != 0;
        *several = *several || (differs && !first);
        if (n < room && n > 0 && differs) {
            text_printf(names, "%s'%.*s'", names->nbytes > 0 ? ", " : "", (int)n - 1, t.text);
            memcpy(component, t.text, n);
            component[n] = '\0';
        }
        first = false;
        st = json_next(&r, &t, err);
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, err);
    }
    json_reader_release(&r);
    return st;
}

static fsdpck_status copy_without(const char *text, size_t nbytes, size_t skipped, text_buf *out,
                                  fsdpck_error *err)
{
    json_reader r;
    json_writer w;
    json_token t = {0};
    json_writer_init(&w, out, 2);
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_LORA_CONFIG);
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && (st = json_next(&r, &t, err)) == FSDPCK_OK && t.kind != JSON_END) {
        if (t.kind == JSON_KEY && r.depth == 1)
            json_put_key(&w, t.text + skipped, t.nbytes - skipped);
        else
            json_put_token(&w, &t);
    }
    json_reader_release(&r);
    text_puts(out, "\n");
    return st == FSDPCK_OK ? text_check(out, err) : st;
}

/* Configs of several components are only named: no model is all of them. */
static fsdpck_status read_header(const fsdpck_checkpoint *c, adapter_source *found,
                                 fsdpck_error *err)
{
    const cat_metadata *m = c->cat.origin.metadata;
    const uint32_t key =
        m == NULL ? STRTAB_NONE : strtab_find(&m->keys, header_key, sizeof header_key - 1);
    size_t nbytes = 0;
    const char *text = key == STRTAB_NONE ? NULL : cat_metadata_text(m, key, &nbytes);
    char component[64];
    text_buf out = {0}, names = {.limit_bytes = sizeof found->components - 1};
    bool several;
    if (text == NULL)
        return FSDPCK_OK;
    fsdpck_status st =
        read_component(text, nbytes, component, sizeof component, &names, &several, err);
    if (st == FSDPCK_OK && several && names.text != NULL)
        memcpy(found->components, names.text, names.nbytes);
    text_release(&names);
    if (st == FSDPCK_OK && several)
        return FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = copy_without(text, nbytes, strlen(component), &out, err);
    found->path = strdup(c->path);
    if (st == FSDPCK_OK && found->path == NULL)
        st = error_set_nomem(err, strlen(c->path));
    if (st != FSDPCK_OK) {
        text_release(&out);
        error_path(err, c->path);
        return st;
    }
    found->text = out.text;
    found->nbytes = out.nbytes;
    return FSDPCK_OK;
}

fsdpck_status adapter_source_find(const fsdpck_checkpoint *c, const char *name, bool is_one_of,
                                  const fsdpck_adapter_options *options, adapter_source *found,
                                  fsdpck_error *err)
{
    const fsdpck_adapter_options none = FSDPCK_INIT(fsdpck_adapter_options);
    const fsdpck_adapter_options *o = options == NULL ? &none : options;
    *found = (adapter_source){0};
    if (o->has_lora_alpha && !(isfinite(o->lora_alpha) && o->lora_alpha != 0))
        return FAIL(err, USAGE, NONE, "lora_alpha must be a number other than 0");
    if (o->config != NULL) {
        if (first_fact(o) != NULL)
            return FAIL_WITH(err, USAGE, NONE,
                             ("--adapter-config and %s contradict each other", first_fact(o)),
                             (next, "omit one of them: the file is written unchanged"));
        found->path = strdup(o->config);
        if (found->path == NULL)
            return error_set_nomem(err, strlen(o->config));
        const fsdpck_status st =
            file_read_whole(NULL, o->config, CONFIG_NBYTES_MAX, &found->text, &found->nbytes, err);
        if (st != FSDPCK_OK)
            error_path(err, o->config);
        return st;
    }
    RETURN_IF(read_config_of(c, name, is_one_of, found, err));
    if (found->text == NULL && !is_one_of)
        RETURN_IF(read_header(c, found, err));
    if (found->text != NULL)
        return first_fact(o) == NULL ? FSDPCK_OK : apply_options(o, found, err);
    RETURN_IF(read_meta(c, found, err));
    take_options(o, found);
    return FSDPCK_OK;
}

void adapter_source_release(adapter_source *found)
{
    free(found->path);
    free(found->text);
    *found = (adapter_source){0};
}
