/* What Megatron-Core writes beside the tensors: metadata.json, and integrity.json with the SHA-256 of each file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "run/file_checksums.h"
#include "verify/verify_internal.h"

#define CONFIG_FILE          "metadata.json"
#define INTEGRITY_FILE       "integrity.json"
#define CONFIG_NBYTES_MAX    ((uint64_t)64 << 10)
#define INTEGRITY_NBYTES_MAX ((uint64_t)256 << 20)

typedef struct listed_file {
    uint8_t sha256[SHA256_NBYTES];
    size_t name_at, name_nbytes; /* in names */
} listed_file;

typedef struct integrity {
    fsdpck_verify *v;
    vec files;    /* listed_file */
    vec names;    /* char, each with its NUL */
    bool unknown; /* another algorithm */
} integrity;

/* ---- metadata.json ---- */

static bool is_json_object(const probe_input *in)
{
    char *text = NULL;
    size_t nbytes;
    json_reader r;
    json_token t;
    if (file_read_whole(&in->dir, CONFIG_FILE, CONFIG_NBYTES_MAX, &text, &nbytes, NULL) !=
        FSDPCK_OK)
        return false;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, NULL);
    while (st == FSDPCK_OK && t.kind != JSON_END)
        st = json_next(&r, &t, NULL);
    json_reader_release(&r);
    free(text);
    return st == FSDPCK_OK;
}

static void check_config(fsdpck_verify *v)
{
    const probe_input *in = &v->src->probe;
    const bool has = probe_has_entry(in, CONFIG_FILE);
    fsdpck_error what;
    if (has && is_json_object(in))
        return;
    FAIL_WITH(&what, BADINPUT, MEGATRON_CONFIG,
              ("%s", has ? "'" CONFIG_FILE "' of Megatron-Core is no JSON object"
                         : "folder of Megatron-Core lacks '" CONFIG_FILE "'"),
              (path, v->src->path));
    findings_report(&v->found, &what);
}

/* ---- integrity.json ---- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_sha256(const json_token *t, uint8_t *to)
{
    if (t->kind != JSON_STRING || t->nbytes != 2 * SHA256_NBYTES)
        return false;
    for (size_t i = 0; i < SHA256_NBYTES; i++) {
        const int high = digit_of(t->text[2 * i]), low = digit_of(t->text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static fsdpck_status add_listed(integrity *g, json_reader *r, json_token *key, fsdpck_error *err)
{
    listed_file f = {.name_at = g->names.count, .name_nbytes = key->nbytes};
    RETURN_IF(path_check_inside(key->text, key->nbytes, FSDPCK_FINDING_MEGATRON_MANIFEST, err));
    RETURN_IF(vec_add_n(&g->names, key->text, key->nbytes, err));
    RETURN_IF(vec_add(&g->names, "", err));
    RETURN_IF(json_next(r, key, err));
    if (!read_sha256(key, f.sha256))
        return FAIL(err, BADINPUT, MEGATRON_MANIFEST,
                    "'" INTEGRITY_FILE "' has a value that is no SHA-256");
    return vec_add(&g->files, &f, err);
}

static fsdpck_status read_files(integrity *g, json_reader *r, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind != JSON_KEY)
            return FSDPCK_OK;
        RETURN_IF(add_listed(g, r, &t, err));
    }
}

static fsdpck_status read_members(integrity *g, json_reader *r, fsdpck_error *err)
{
    json_token t;
    bool has_files = false;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind != JSON_KEY)
            break;
        const bool is_algorithm = json_is(&t, "algorithm");
        if (json_is(&t, "files") && !has_files) {
            has_files = true;
            RETURN_IF(read_files(g, r, err));
            continue;
        }
        RETURN_IF(json_next(r, &t, err));
        if (is_algorithm && (t.kind != JSON_STRING || !json_is(&t, "sha256")))
            g->unknown = true;
        RETURN_IF(json_skip(r, &t, err));
    }
    RETURN_IF(json_next(r, &t, err));
    return has_files ? FSDPCK_OK
                     : FAIL(err, BADINPUT, MEGATRON_MANIFEST,
                            "'" INTEGRITY_FILE "' has no member 'files'");
}

static fsdpck_status read_manifest(integrity *g, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes;
    json_reader r;
    RETURN_IF(file_read_whole(&g->v->src->probe.dir, INTEGRITY_FILE, INTEGRITY_NBYTES_MAX, &text,
                              &nbytes, err));
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_MEGATRON_MANIFEST);
    fsdpck_status st = read_members(g, &r, err);
    json_reader_release(&r);
    free(text);
    if (st == FSDPCK_OK && g->unknown)
        st = FAIL_WITH(err, BADINPUT, MEGATRON_MANIFEST,
                       ("'" INTEGRITY_FILE "' uses an unknown algorithm"), (expected, "sha256"));
    return st;
}

static const char *name_of(const integrity *g, const listed_file *f)
{
    return VEC_AT(&g->names, const char, f->name_at);
}

static void report_missing(const integrity *g, const char *name)
{
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, FILE_MISSING, ("file that '" INTEGRITY_FILE "' lists is missing"),
              (path_in, g->v->src->path, name),
              (next, "copy the file from where the checkpoint was written"));
    findings_report(&g->v->found, &what);
}

/* listed: the index in g->files of each file to read. */
static fsdpck_status list_files(integrity *g, file_checksums *sums, vec *listed, fsdpck_error *err)
{
    const folder *dir = &g->v->src->probe.dir;
    for (size_t i = 0; i < g->files.count; i++) {
        const listed_file *f = VEC_AT(&g->files, const listed_file, i);
        path_kind kind;
        uint64_t nbytes;
        RETURN_IF(path_probe(dir, name_of(g, f), &kind, &nbytes, err));
        if (kind != PATH_FILE) {
            report_missing(g, name_of(g, f));
            continue;
        }
        RETURN_IF(file_checksums_add(sums, name_of(g, f), nbytes, err));
        RETURN_IF(vec_add(listed, &i, err));
    }
    return FSDPCK_OK;
}

static void compare_sums(const integrity *g, const file_checksums *sums, const vec *listed)
{
    for (size_t i = 0; i < sums->files.count; i++) {
        const file_checksum *s = VEC_AT(&sums->files, const file_checksum, i);
        const listed_file *f =
            VEC_AT(&g->files, const listed_file, *VEC_AT(listed, const size_t, i));
        fsdpck_error what;
        if (memcmp(s->sha256, f->sha256, SHA256_NBYTES) == 0)
            continue;
        FAIL_WITH(&what, BADINPUT, MEGATRON_INTEGRITY,
                  ("file differs from its SHA-256 in '" INTEGRITY_FILE "'"),
                  (path_in, g->v->src->path, s->name));
        findings_report(&g->v->found, &what);
    }
}

static fsdpck_status check_files(integrity *g, fsdpck_context *ctx, fsdpck_error *err)
{
    fsdpck_verify *v = g->v;
    file_checksums sums;
    vec listed = VEC_OF(size_t, NULL);
    file_checksums_init(&sums, &v->src->probe.dir, false);
    fsdpck_status st = list_files(g, &sums, &listed, err);
    if (st == FSDPCK_OK && v->level >= CHECK_CHECKSUM && !verify_is_partial(v)) {
        st =
            file_checksums_read(&sums, ctx, thread_count(v->options.threads), CHECKSUM_SHA256, err);
        if (st == FSDPCK_OK)
            compare_sums(g, &sums, &listed);
    }
    file_checksums_release(&sums);
    vec_release(&listed);
    return st;
}

static fsdpck_status check_integrity(fsdpck_verify *v, fsdpck_context *ctx, fsdpck_error *err)
{
    integrity g = {.v = v, .files = VEC_OF(listed_file, NULL), .names = VEC_OF(char, NULL)};
    fsdpck_error what = FSDPCK_ERROR_INIT;
    fsdpck_status st = read_manifest(&g, &what);
    if (st == FSDPCK_BADINPUT) {
        error_path_in(&what, v->src->path, INTEGRITY_FILE);
        findings_report(&v->found, &what);
        st = FSDPCK_OK;
    } else if (st == FSDPCK_OK) {
        st = check_files(&g, ctx, err);
    } else if (err != NULL) {
        *err = what;
    }
    VEC_RELEASE_ALL(&g.files, &g.names);
    return st;
}

fsdpck_status verify_megatron(fsdpck_verify *v, fsdpck_context *ctx, fsdpck_error *err)
{
    fsdpck_checkpoint *c = v->src;
    fsdpck_megatron ignored = FSDPCK_INIT(fsdpck_megatron);
    if (ctx->group != NULL || c->remote_files != NULL || c->format->id != FSDPCK_FORMAT_DCP)
        return FSDPCK_OK;
    if (fsdpck_get_megatron(c, &ignored))
        check_config(v);
    return probe_has_entry(&c->probe, INTEGRITY_FILE) ? check_integrity(v, ctx, err) : FSDPCK_OK;
}
