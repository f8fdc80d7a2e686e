/* A checkpoint that is clean for verify at level checksum can be converted with default options:
 * consolidate to safetensors and .pt, reshard to DCP for 2 ranks. If verify only warns, a
 * conversion fails only for the reason in a warning. Hence every obstacle is a finding. Tested with
 * all fixtures unchanged, and with one to three changes: by the structure of a file (zip, pickle,
 * JSON, safetensors header), of a record with repaired checksums, of bytes, and of whole files
 * (truncated, extended, deleted, swapped, copied over another, renamed).
 *
 *     prop_verify_converts [COUNT [SEED [KEEP]]]   KEEP: a folder for checkpoints that break it
 *     prop_verify_converts --check PATH...
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "fsdpck.h"
#include "tests/fuzz/mutators/mutate.h"
#include "tests/support/mutate_dice.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

enum {
    FILES_MAX = 80,
    FIXTURES_MAX = 400,
    FIXTURE_NBYTES_MAX = 600 << 10,
    ROOM_NBYTES = 4096,
    WRITE_NBYTES_MAX = 16 << 20,
    COUNT_DEFAULT = 900,
    WARNINGS_MAX = 50,
    BREACHES_SHOWN = 40
};

static const char *const ways[] = {"safetensors", "pt", "dcp"};
enum { WAYS = sizeof ways / sizeof *ways };

/* ---- one checkpoint ---- */

typedef struct tally {
    uint64_t seen, clean, converted[WAYS], not_asked[WAYS], warned;
} tally;

/* Warnings of verify, by id. */
typedef struct verdict {
    bool errors; /* or there is none */
    unsigned count;
    fsdpck_finding_id ids[WARNINGS_MAX]; /* of warnings and notes */
    bool notes[WARNINGS_MAX];
    unsigned warnings;
} verdict;

static void judge(fsdpck_context *ctx, const char *path, verdict *told)
{
    const fsdpck_verify_options options = {
        .struct_nbytes = sizeof options, .level = FSDPCK_LEVEL_CHECKSUM, .threads = 1};
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify *v = NULL;
    fsdpck_error err;
    fsdpck_error_init(&err);
    *told = (verdict){.errors = true};
    if (fsdpck_verify_new(ctx, path, &options, &v, &err) != FSDPCK_OK)
        return;
    fsdpck_verify_get_info(v, &info);
    told->errors = info.errors > 0;
    for (uint64_t i = 0; i < info.listed && told->count < WARNINGS_MAX; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_verify_get_finding(v, i, &f);
        told->notes[told->count] = strcmp(f.severity, "note") == 0;
        told->ids[told->count++] = f.what->finding;
        told->warnings += !told->notes[told->count - 1];
    }
    fsdpck_verify_free(v);
}

static bool warned(const verdict *told, const fsdpck_error *err)
{
    const fsdpck_finding_id id =
        err->finding != FSDPCK_FINDING_NONE ? err->finding : FSDPCK_FINDING_SYS_UNSUPPORTED;
    for (unsigned i = 0; i < told->count; i++)
        if (told->ids[i] == id && (!told->notes[i] || err->status == FSDPCK_UNSUPPORTED))
            return true;
    return false;
}

static fsdpck_status convert_once(fsdpck_context *ctx, fsdpck_checkpoint *c, unsigned way,
                                  const char *dst, int dry_run, uint64_t *nbytes, fsdpck_error *err)
{
    job_parts o = JOB_PARTS_INIT;
    fsdpck_report *report = NULL;
    o.work.threads = 1;
    o.work.memory_nbytes = 16 << 20;
    o.output.no_sync = 1;
    o.output.format = ways[way];
    o.dry_run.mode = dry_run;
    o.sharding.world_size = way == 2 ? 2 : 0;
    const fsdpck_status st = way == 2 ? job_parts_reshard(ctx, c, dst, &o, &report, err)
                                      : job_parts_consolidate(ctx, c, dst, &o, &report, err);
    *nbytes = report != NULL ? report->bytes_written : 0;
    fsdpck_report_free(report);
    return st;
}

/* Planned and, if small, written. Failures that the input did not cause do not count. */
static bool converts(fsdpck_context *ctx, fsdpck_checkpoint *c, unsigned way, const verdict *told,
                     tally *t, fsdpck_error *err)
{
    char dir[SCRATCH_BYTES], dst[SCRATCH_BYTES];
    uint64_t nbytes = 0;
    fsdpck_error_init(err);
    scratch_make(dir);
    scratch_path(dst, dir, "out");
    fsdpck_status st = convert_once(ctx, c, way, dst, 1, &nbytes, err);
    if (st == FSDPCK_OK && nbytes < WRITE_NBYTES_MAX)
        st = convert_once(ctx, c, way, dst, 0, &nbytes, err);
    scratch_remove(dir);
    t->converted[way] += st == FSDPCK_OK;
    const bool has_nothing = st == FSDPCK_USAGE && (err->finding == FSDPCK_FINDING_NONE ||
                                                    err->finding == FSDPCK_FINDING_KEY_NONE);
    t->not_asked[way] += has_nothing;
    if (st == FSDPCK_OK || has_nothing || st == FSDPCK_NOSPACE)
        return true;
    t->warned += warned(told, err);
    return warned(told, err);
}

/* Whether the property holds of it; `why` is the refusal that verify did not see coming. */
static bool holds(const char *path, tally *t, char *why, size_t capacity)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *c = NULL;
    fsdpck_error err;
    verdict told;
    MUST(ctx != NULL);
    fsdpck_context_set_log(ctx, NULL, NULL);
    fsdpck_error_init(&err);
    t->seen++;
    bool good = true;
    judge(ctx, path, &told);
    if (!told.errors) {
        t->clean += told.warnings == 0;
        const fsdpck_status st = fsdpck_open(ctx, path, NULL, &c, &err);
        good = st == FSDPCK_OK;
        snprintf(why, capacity, "open: exit %d [%s] %s", (int)err.status,
                 fsdpck_finding_name(err.finding), err.message);
        for (unsigned way = 0; good && way < WAYS; way++) {
            good = converts(ctx, c, way, &told, t, &err);
            snprintf(why, capacity, "%s: exit %d [%s] %s", ways[way], (int)err.status,
                     fsdpck_finding_name(err.finding), err.message);
        }
    }
    fsdpck_close(c);
    fsdpck_context_free(ctx);
    return good;
}

/* ---- fixtures ---- */

typedef struct content {
    char *name;
    uint8_t *bytes;
    size_t nbytes;
} content;

typedef struct fixture {
    char *name;
    bool is_file;
    content files[FILES_MAX];
    size_t count;
} fixture;

static fixture *fixtures[FIXTURES_MAX];
static size_t fixture_count;

static char *join(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    MUST(path != NULL);
    snprintf(path, n, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
    return path;
}

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static void load_file(fixture *f, const char *path, const char *name)
{
    FILE *in = fopen(path, "rb");
    MUST(in != NULL && f->count < FILES_MAX);
    content *c = &f->files[f->count++];
    c->name = strdup(name);
    MUST(fseek(in, 0, SEEK_END) == 0);
    c->nbytes = (size_t)ftell(in);
    rewind(in);
    c->bytes = malloc(c->nbytes + 1);
    MUST(c->bytes != NULL && fread(c->bytes, 1, c->nbytes, in) == c->nbytes);
    fclose(in);
}

/* Of one level of folders inside, as parts of checkpoints are. */
static void load_folder(fixture *f, const char *path, const char *inside)
{
    struct dirent **list;
    char *folder = inside[0] == '\0' ? strdup(path) : join(path, inside);
    const int n = scandir(folder, &list, NULL, alphasort);
    MUST(n >= 0);
    for (int i = 0; i < n; i++) {
        char *name = join(inside, list[i]->d_name), *whole = join(path, name);
        if (strcmp(list[i]->d_name, ".") != 0 && strcmp(list[i]->d_name, "..") != 0) {
            if (!is_folder(whole))
                load_file(f, whole, name);
            else if (inside[0] == '\0')
                load_folder(f, path, name);
        }
        free(name);
        free(whole);
        free(list[i]);
    }
    free(list);
    free(folder);
}

static void load_fixture(const char *path, const char *name)
{
    fixture *f = calloc(1, sizeof *f);
    uint64_t nbytes = 0;
    MUST(f != NULL && fixture_count < FIXTURES_MAX);
    f->name = strdup(name);
    f->is_file = !is_folder(path);
    if (f->is_file)
        load_file(f, path, strrchr(path, '/') + 1);
    else
        load_folder(f, path, "");
    for (size_t i = 0; i < f->count; i++)
        nbytes += f->files[i].nbytes;
    if (f->count > 0 && nbytes < FIXTURE_NBYTES_MAX) {
        fixtures[fixture_count++] = f;
        return;
    }
    for (size_t i = 0; i < f->count; i++) {
        free(f->files[i].name);
        free(f->files[i].bytes);
    }
    free(f->name);
    free(f);
}

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Checkpoints of a folder of fixtures; `bad` ones too, which verify finds out. */
static void load_all_in(const char *folder)
{
    struct dirent **list;
    const int n = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        char *path = join(folder, name);
        if (name[0] != '.' && !ends(name, ".digests") && !ends(name, ".json") && !ends(name, ".py"))
            load_fixture(path, name);
        free(path);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

static void load_fixtures(const char *root)
{
    struct dirent **list;
    const int n = scandir(root, &list, NULL, alphasort);
    MUST(n >= 0);
    for (int i = 0; i < n; i++) {
        char *path = join(root, list[i]->d_name);
        if (strncmp(list[i]->d_name, "torch-", 6) == 0)
            load_all_in(path);
        else if (strcmp(list[i]->d_name, "quickstart") == 0)
            load_fixture(path, "quickstart");
        free(path);
        free(list[i]);
    }
    free(list);
    MUST(fixture_count > 100);
}

static void write_folder(const content *files, size_t count, const char *folder)
{
    MUST(mkdir(folder, 0700) == 0);
    for (size_t i = 0; i < count; i++) {
        char *path = join(folder, files[i].name);
        for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash != NULL;
             slash = strchr(slash + 1, '/')) {
            *slash = '\0';
            (void)mkdir(path, 0700);
            *slash = '/';
        }
        FILE *out = fopen(path, "wb");
        if (out != NULL) { /* a folder may have this name */
            MUST(fwrite(files[i].bytes, 1, files[i].nbytes, out) == files[i].nbytes);
            MUST(fclose(out) == 0);
        }
        free(path);
    }
}

/* ---- changes ---- */

static size_t below(size_t n)
{
    return mutate_dice_below(n);
}

static size_t find_from(const content *c, size_t at, const char *signature)
{
    while (at + 4 <= c->nbytes && memcmp(c->bytes + at, signature, 4) != 0)
        at++;
    return at + 4 <= c->nbytes ? at : SIZE_MAX;
}

/* The directory entry with the same name as a local header. */
static size_t central_of(const content *c, size_t local)
{
    const size_t n = load_le16(c->bytes + local + 26);
    for (size_t at = local; (at = find_from(c, at, "PK\1\2")) != SIZE_MAX; at++)
        if (c->nbytes - at >= 46 + n && load_le16(c->bytes + at + 28) == n &&
            memcmp(c->bytes + at + 46, c->bytes + local + 30, n) == 0)
            return at;
    return SIZE_MAX;
}

/* Another byte in a stored record, and its checksums to match: as if it had been saved so. */
static void change_record(content *c)
{
    size_t local = find_from(c, below(c->nbytes), "PK\3\4");
    if (local == SIZE_MAX)
        local = find_from(c, 0, "PK\3\4");
    if (local == SIZE_MAX || c->nbytes - local < 30)
        return;
    const size_t central = central_of(c, local);
    const size_t data =
        local + 30 + load_le16(c->bytes + local + 26) + load_le16(c->bytes + local + 28);
    const size_t nbytes = central == SIZE_MAX ? 0 : load_le32(c->bytes + central + 20);
    if (nbytes == 0 || data > central || nbytes > central - data)
        return;
    c->bytes[data + below(nbytes)] ^= (uint8_t)(1u << below(8));
    const uint32_t old = load_le32(c->bytes + central + 16);
    const uint32_t crc = crc32_update(0, c->bytes + data, nbytes);
    const size_t places[] = {local + 14, data + nbytes + 4, central + 16};
    for (size_t i = 0; i < 3; i++)
        if (old != 0 && places[i] + 4 <= c->nbytes && load_le32(c->bytes + places[i]) == old)
            memcpy(c->bytes + places[i], &crc, 4);
}

static mutate_fn by_structure(const content *c)
{
    if (ends(c->name, ".metadata"))
        return mutate_pickle;
    if (ends(c->name, ".json"))
        return mutate_json;
    if (ends(c->name, ".safetensors"))
        return mutate_st_header;
    return c->nbytes > 4 && memcmp(c->bytes, "PK", 2) == 0 ? mutate_zip : mutate_bytes;
}

static void change_content(content *c, mutate_fn fn)
{
    mutation m = {.bytes = malloc(c->nbytes + ROOM_NBYTES),
                  .nbytes = c->nbytes,
                  .capacity = c->nbytes + ROOM_NBYTES,
                  .random = mutate_dice};
    MUST(m.bytes != NULL);
    memcpy(m.bytes, c->bytes, c->nbytes);
    fn(&m);
    free(c->bytes);
    c->bytes = m.bytes;
    c->nbytes = m.nbytes;
    mutate_dice = m.random;
}

static void copy_content(content *to, const content *from)
{
    uint8_t *bytes = malloc(from->nbytes + 1);
    MUST(bytes != NULL);
    memcpy(bytes, from->bytes, from->nbytes);
    to->bytes = bytes;
    to->nbytes = from->nbytes;
}

static void change_name(content *c)
{
    const size_t n = strlen(c->name);
    for (size_t i = 0, at = below(n); i < n; i++, at = (at + 1) % n)
        if (c->name[at] >= '0' && c->name[at] <= '9') {
            c->name[at] = (char)('0' + below(10));
            return;
        }
}

static void change_files(content *files, size_t *count)
{
    const size_t i = below(*count), k = below(*count);
    content *c = &files[i];
    const content was = *c;
    switch (below(6)) {
    case 0:
        c->nbytes = below(c->nbytes + 1);
        break;
    case 1:
        change_content(c, mutate_bytes);
        break;
    case 2:
        free(c->name);
        free(c->bytes);
        *c = files[--*count];
        break;
    case 3:
        c->bytes = files[k].bytes;
        c->nbytes = files[k].nbytes;
        files[k].bytes = was.bytes;
        files[k].nbytes = was.nbytes;
        break;
    case 4:
        if (i != k) {
            free(c->bytes);
            copy_content(c, &files[k]);
        }
        break;
    default:
        change_name(c);
    }
}

static void change(content *files, size_t *count)
{
    content *c = &files[below(*count)];
    switch (below(8)) {
    case 0:
    case 1:
    case 2:
        change_content(c, by_structure(c));
        break;
    case 3:
    case 4:
    case 5:
        change_record(c);
        break;
    default:
        change_files(files, count);
    }
}

/* ---- */

static unsigned breaches;
static const char *keep;

static void breach(const char *what, uint64_t seed, const char *why, const char *folder)
{
    if (breaches++ < BREACHES_SHOWN)
        printf("%s, seed %" PRIu64 ": verify is clean, but %s\n", what, seed, why);
    if (keep != NULL && breaches < BREACHES_SHOWN) {
        char kept[SCRATCH_BYTES];
        snprintf(kept, sizeof kept, "%s/%s-%" PRIu64, keep, what, seed);
        (void)rename(folder, kept);
    }
}

static void check_one(const fixture *f, const content *files, size_t count, uint64_t seed, tally *t)
{
    char dir[SCRATCH_BYTES], folder[SCRATCH_BYTES], why[700] = "";
    scratch_make(dir);
    scratch_path(folder, dir, f->name);
    write_folder(files, count, folder);
    const bool one_file = f->count == 1 && count == 1;
    char *path = one_file ? join(folder, files[0].name) : strdup(folder);
    if (!holds(path, t, why, sizeof why))
        breach(f->name, seed, why, folder);
    free(path);
    scratch_remove(dir);
}

static void check_changed(uint64_t seed, tally *t)
{
    content files[FILES_MAX];
    mutate_dice_start(seed, 0);
    const fixture *f = fixtures[below(fixture_count)];
    size_t count = f->count;
    for (size_t i = 0; i < count; i++) {
        files[i].name = strdup(f->files[i].name);
        copy_content(&files[i], &f->files[i]);
    }
    for (size_t left = 1 + below(3); left > 0 && count > 0; left--)
        change(files, &count);
    if (count > 0)
        check_one(f, files, count, seed, t);
    for (size_t i = 0; i < count; i++) {
        free(files[i].name);
        free(files[i].bytes);
    }
}

static void print_tally(const char *what, const tally *t)
{
    printf("%s: %" PRIu64 ", clean %" PRIu64 ", warned of what refuses %" PRIu64, what, t->seen,
           t->clean, t->warned);
    for (unsigned way = 0; way < WAYS; way++)
        printf(", %s %" PRIu64 " (%" PRIu64 " have nothing for it)", ways[way], t->converted[way],
               t->not_asked[way]);
    printf("\n");
}

static int check_paths(int count, char **paths)
{
    int bad = 0;
    for (int i = 0; i < count; i++) {
        tally t = {0};
        char why[700] = "";
        if (holds(paths[i], &t, why, sizeof why))
            continue;
        printf("%s: verify is clean, but %s\n", paths[i], why);
        bad = 1;
    }
    return bad;
}

int main(int argc, char **argv)
{
    tally whole = {0}, changed = {0};
    if (argc > 1 && strcmp(argv[1], "--check") == 0)
        return check_paths(argc - 2, argv + 2);
    const uint64_t count =
        argc > 1 ? strtoull(argv[1], NULL, 10) : COUNT_DEFAULT / (uint64_t)test_stride();
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    keep = argc > 3 ? argv[3] : NULL;
    const char *root = getenv("FIXTURES");
    MUST(root != NULL);
    load_fixtures(root);
    for (size_t i = 0; i < fixture_count; i++)
        check_one(fixtures[i], fixtures[i]->files, fixtures[i]->count, 0, &whole);
    print_tally("fixtures", &whole);
    for (uint64_t i = 0; i < count; i++)
        check_changed(first + i, &changed);
    print_tally("changed", &changed);
    /* A property of nothing is none. */
    MUST(whole.clean * 2 > whole.seen && changed.clean * 20 > changed.seen);
    for (unsigned way = 0; way < WAYS; way++)
        MUST(whole.converted[way] > 0 && changed.converted[way] > 0);
    return breaches > 0;
}
