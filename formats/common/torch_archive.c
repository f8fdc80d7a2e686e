#include "formats/common/torch_archive.h"

#include <string.h>

#include "base/bytes.h"
#include "formats/common/torch_archive_internal.h"

enum { HEAD_NBYTES = 512, SMALL_RECORD_NBYTES = 64 };

static const uint64_t PICKLE_NBYTES_LIMIT = (uint64_t)8 << 30;
/* Limit for a deflated data.pkl of a small file. */
static const uint64_t INFLATED_PICKLE_LIMIT = (uint64_t)64 << 20;

/* --- other kinds of files --- */

#define DECOMPRESS(command) "decompress it first: " command " FILE"

static const struct container {
    const char *bytes;
    uint8_t nbytes;
    uint16_t offset;
    const char *what;
    bool foreign; /* a complete file, but not a checkpoint of a supported kind */
    const char *next;
} containers[] = {
    {"7z\xBC\xAF\x27\x1C", 6, 0, "a 7z archive", true, "extract the files in it first"},
    /* Those that Composer writes, as in ep0-ba10-rank0.pt.zst */
    {"\x1F\x8B", 2, 0, "a gzip file", true, DECOMPRESS("gzip -dk")},
    {"\x28\xB5\x2F\xFD", 4, 0, "a zstd file", true, DECOMPRESS("zstd -d")},
    {"\xFD"
     "7zXZ",
     5, 0, "an xz file", true, DECOMPRESS("xz -dk")},
    {"\x5D\x00\x00", 3, 0, "an lzma file", true, DECOMPRESS("xz -dk")},
    {"BZh", 3, 0, "a bzip2 file", true, DECOMPRESS("bzip2 -dk")},
    {"\x04\x22\x4D\x18", 4, 0, "an lz4 file", true, DECOMPRESS("lz4 -d")},
    {"\x89LZO", 5, 0, "an lzop file", true, DECOMPRESS("lzop -d")},
    {"Rar!", 4, 0, "a RAR archive", true, "extract the files in it first"},
    {"\x89HDF\r\n", 6, 0, "an HDF5 file", true, NULL},
    {"PYTORCH1", 8, 0, "a preview archive of torch before 1.0", true, NULL},
    {"{\"", 2, 8, "a safetensors file", false, NULL},
    {"GGUF", 4, 0, "a GGUF file", true, NULL},
    {"\x93NUMPY", 6, 0, "a numpy file", true, NULL},
    {"\x7F"
     "ELF",
     4, 0, "an ELF program", true, NULL},
    {"%PDF", 4, 0, "a PDF file", true, NULL},
    {"version https://git-lfs", 23, 0, "a git-lfs pointer, not the file itself", false, NULL},
};

static const struct container *find_container(const uint8_t *head, size_t nbytes)
{
    for (size_t i = 0; i < sizeof(containers) / sizeof(containers[0]); i++)
        if (containers[i].offset + containers[i].nbytes <= nbytes &&
            memcmp(head + containers[i].offset, containers[i].bytes, containers[i].nbytes) == 0)
            return &containers[i];
    return NULL;
}

bool torch_is_foreign(const uint8_t *head, size_t nbytes)
{
    const struct container *c = find_container(head, nbytes);
    return c != NULL && c->foreign;
}

const char *torch_name_container(const uint8_t *head, size_t nbytes)
{
    const struct container *c = find_container(head, nbytes);
    if (c != NULL)
        return c->what;
    return nbytes >= 2 && head[0] == 0x80 && head[1] <= 5
               ? "a bare pickle, not written by torch.save"
               : NULL;
}

static bool are_zeros(const uint8_t *bytes, size_t nbytes)
{
    size_t i = 0;
    while (i < nbytes && bytes[i] == 0)
        i++;
    return i == nbytes;
}

const char *torch_container_next(const uint8_t *head, size_t nbytes)
{
    const struct container *c = find_container(head, nbytes);
    return c == NULL ? NULL : c->next;
}

static bool is_tar(const uint8_t *head, size_t nbytes)
{
    return nbytes >= 262 && memcmp(head + 257, "ustar", 5) == 0;
}

/* torch before 0.1.10 wrote these files; a tar of Composer contains composer_states.pt. */
static fsdpck_status tar_failed(const uint8_t *head, fsdpck_error *err)
{
    static const char *const names[] = {"sys_info", "pickle", "tensors", "storages"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp((const char *)head, names[i], 100) == 0)
            return FAIL(err, UNSUPPORTED, PT_TAR,
                        "tar format of torch before 0.1.10 is not supported");
    return FAIL_WITH(err, UNSUPPORTED, NO_CHECKPOINT,
                     ("not a checkpoint that fsdpck can read: a tar archive"),
                     (next, "extract the files in it first: tar -xf FILE"));
}

static fsdpck_status container_failed(const uint8_t *head, size_t nbytes, uint64_t offset,
                                      fsdpck_error *err)
{
    const char *what = torch_name_container(head, nbytes);

    if (is_tar(head, nbytes))
        return tar_failed(head, err);
    if (nbytes == 0)
        return FAIL(err, BADINPUT, ZIP_EMPTY, "file is empty");
    return FAIL_WITH(err, BADINPUT, PT_CONTAINER,
                     ("this is %s", what != NULL ? what : "not a file that torch.save wrote"),
                     (offset, offset),
                     (expected, "a file of torch.save: a zip, or its older stream format"),
                     (found, "%s", are_zeros(head, nbytes) ? "zeros" : ""));
}

/* --- small records --- */

static fsdpck_status small_record(const zip_archive *z, const zip_entry *e, uint64_t limit,
                                  fsdpck_finding_id finding, uint8_t *bytes, uint64_t *nbytes,
                                  fsdpck_error *err)
{
    uint8_t *p;

    if (e->nbytes > limit)
        return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("record '%s' is too long", zip_name(z, e)),
                       (offset, e->data_offset_bytes));
    RETURN_IF(zip_read_entry(z, e, limit, &p, nbytes, err));
    memcpy(bytes, p, *nbytes);
    budget_free(z->owner, p, *nbytes);
    return FSDPCK_OK;
}

static fsdpck_status read_marks(torch_archive *a, fsdpck_error *err)
{
    uint8_t bytes[SMALL_RECORD_NBYTES];
    uint64_t nbytes;

    a->has_format_version = zip_find(&a->zip, ".format_version") != NULL;
    a->has_serialization_id = zip_find(&a->zip, ".data/serialization_id") != NULL;
    const zip_entry *e = zip_find(&a->zip, "version");
    if (e == NULL)
        e = zip_find(&a->zip, ".data/version");
    if (e == NULL)
        return FAIL(err, BADINPUT, PT_VERSION, "zip has no record 'version'");
    RETURN_IF(
        small_record(&a->zip, e, sizeof(bytes), FSDPCK_FINDING_PT_VERSION, bytes, &nbytes, err));
    RETURN_IF(torch_version_check(bytes, nbytes, err));
    e = zip_find(&a->zip, "byteorder");
    if (e == NULL)
        return FSDPCK_OK;
    RETURN_IF(
        small_record(&a->zip, e, sizeof(bytes), FSDPCK_FINDING_PT_BYTEORDER, bytes, &nbytes, err));
    return torch_byteorder_parse(bytes, nbytes, &a->big_endian, err);
}

/* --- the pickle --- */

static bool equal_but_for_case(const char *a, const char *lower)
{
    for (; *a != '\0' && *lower != '\0'; a++, lower++)
        if ((*a >= 'A' && *a <= 'Z' ? *a + ('a' - 'A') : *a) != *lower)
            return false;
    return *a == *lower;
}

/* Such an archive also has a data.pkl, but its classes are defined by code in the archive. */
static fsdpck_status is_torchscript(fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, PT_CONTAINER, ("this is a TorchScript archive"),
                     (next, "save the module's state_dict() with torch.save instead"));
}

static fsdpck_status pickle_missing(const zip_archive *z, fsdpck_error *err)
{
    bool only_marks = true;

    for (size_t i = 0; i < z->entries.count; i++) {
        const char *name = zip_name(z, VEC_AT(&z->entries, const zip_entry, i));
        if (equal_but_for_case(name, "data.pkl"))
            return FAIL(err, BADINPUT, ZIP_CASE, "record data.pkl is named '%s'", name);
        only_marks = only_marks &&
                     (strcmp(name, "version") == 0 || strcmp(name, "byteorder") == 0 ||
                      strncmp(name, ".data/", 6) == 0 || strcmp(name, ".format_version") == 0 ||
                      strcmp(name, ".storage_alignment") == 0);
    }
    return FAIL_WITH(
        err, BADINPUT, PT_CONTAINER,
        (only_marks ? "save was interrupted: zip without data.pkl"
                    : "zip without data.pkl: not written by torch.save"),
        (next, only_marks
                   ? "use another checkpoint; torch.save raised an error while it wrote this one"
                   : "name the checkpoint file itself"));
}

static fsdpck_status read_pickle(torch_archive *a, torch_calls calls, fsdpck_error *err)
{
    const zip_entry *e = zip_find(&a->zip, "data.pkl");
    torch_builder b = {.archive = a, .calls = calls};
    pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    uint8_t *bytes;
    uint64_t nbytes, limit;
    size_t consumed = 0;

    if (e == NULL)
        return pickle_missing(&a->zip, err);
    limit = a->zip.in.nbytes > INFLATED_PICKLE_LIMIT ? a->zip.in.nbytes : INFLATED_PICKLE_LIMIT;
    if (limit > PICKLE_NBYTES_LIMIT)
        limit = PICKLE_NBYTES_LIMIT;
    RETURN_IF(zip_read_entry(&a->zip, e, limit, &bytes, &nbytes, err));
    torch_builder_init(&b);
    const pickle_hooks hooks = torch_builder_hooks(&b);
    const pickle_input in = {
        .bytes = bytes, .nbytes = nbytes, .file_offset_bytes = e->data_offset_bytes};
    fsdpck_status st = pickle_read(&in, &limits, a->pool, &hooks, &a->root, &consumed, err);
    if (st == FSDPCK_OK && consumed != nbytes)
        st = FAIL_WITH(err, BADINPUT, PKL_TRAILING, ("bytes after the pickle in data.pkl"),
                       (offset, e->data_offset_bytes + consumed));
    if (st == FSDPCK_OK)
        st = torch_builder_finish(&b, err);
    torch_builder_release(&b);
    budget_free(a->owner, bytes, nbytes);
    error_offset(err, e->data_offset_bytes);
    return st;
}

/* --- public --- */

static fsdpck_status open_parts(const zip_input *in, torch_archive *a, torch_calls calls,
                                fsdpck_error *err)
{
    uint8_t head[HEAD_NBYTES];
    const size_t n = in->nbytes < HEAD_NBYTES ? (size_t)in->nbytes : HEAD_NBYTES;

    RETURN_IF(in->read(in->ctx, in->base_offset_bytes, head, n, err));
    if (torch_is_legacy(head, n)) {
        a->is_legacy = true;
        return torch_legacy_open(in, a, calls, err);
    }
    /* Before the search for a zip, which a tar may end with. */
    if (is_tar(head, n))
        return tar_failed(head, err);
    if (n < 4 || load_le16(head) != 0x4b50) {
        /* A valid zip after other bytes is reported as such. */
        fsdpck_status st = zip_open(in, a->owner, &a->zip, err);
        if (st == FSDPCK_BADINPUT && err != NULL &&
            (err->finding == FSDPCK_FINDING_ZIP_NOEND || err->finding == FSDPCK_FINDING_ZIP_EMPTY))
            st = container_failed(head, n, in->base_offset_bytes, err);
        else if (st == FSDPCK_BADINPUT && err != NULL && err->finding == FSDPCK_FINDING_ZIP_DIR) {
            st = FAIL_WITH(err, BADINPUT, ZIP_PREFIX, ("bytes before the zip"),
                           (offset, in->base_offset_bytes));
        }
        return st == FSDPCK_OK || err == NULL
                   ? container_failed(head, n, in->base_offset_bytes, err)
                   : st;
    }
    RETURN_IF(zip_open(in, a->owner, &a->zip, err));
    fsdpck_status st;
    if (zip_find(&a->zip, "constants.pkl") != NULL)
        st = is_torchscript(err);
    else if (zip_find(&a->zip, "data.pkl") == NULL)
        st = pickle_missing(&a->zip, err);
    else
        st = read_marks(a, err);
    if (st == FSDPCK_OK)
        st = read_pickle(a, calls, err);
    zip_drop_tail(&a->zip);
    return st;
}

fsdpck_status torch_archive_open(const zip_input *in, budget *owner, value_pool *pool,
                                 torch_calls calls, torch_archive *a, fsdpck_error *err)
{
    memset(a, 0, sizeof(*a));
    a->owner = owner;
    a->pool = pool;
    a->tensors = VEC_OF(torch_tensor, owner);
    a->storages = VEC_OF(torch_storage, owner);
    a->dims = VEC_OF(uint64_t, owner);
    fsdpck_status st = open_parts(in, a, calls, err);
    if (st != FSDPCK_OK)
        torch_archive_release(a);
    return st;
}

void torch_archive_release(torch_archive *a)
{
    zip_release(&a->zip);
    VEC_RELEASE_ALL(&a->tensors, &a->storages, &a->dims);
}

const char *torch_archive_torch_version(const torch_archive *a)
{
    return a->is_legacy              ? "before 1.6, or with its old format"
           : a->has_format_version   ? "2.7 or newer"
           : a->has_serialization_id ? "2.1 to 2.6"
                                     : "1.6 to 2.0";
}

fsdpck_status torch_tensor_locate(const torch_archive *a, const torch_tensor *t, place *where,
                                  fsdpck_error *err)
{
    declared_tensor c = {.dtype = t->dtype, .ndim = t->ndim, .offset_nelems = t->offset_nelems};

    memset(where, 0, sizeof(*where));
    if (t->meta)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor on the meta device has no data");
    const torch_storage *s = VEC_AT(&a->storages, torch_storage, t->storage);
    if (s->entry != UINT32_MAX)
        RETURN_IF(
            zip_entry_check(&a->zip, VEC_AT(&a->zip.entries, const zip_entry, s->entry), err));
    if (t->ndim > 0) {
        memcpy(c.sizes, torch_tensor_sizes(a, t), t->ndim * sizeof(uint64_t));
        memcpy(c.strides, torch_tensor_strides(a, t), t->ndim * sizeof(uint64_t));
    }
    c.storage_nbytes = s->nbytes;
    where->stream = s->deflated;
    where->record_offset_bytes = s->deflated ? 0 : s->data_offset_bytes;
    where->record_nbytes = s->nbytes;
    where->has_crc = s->has_crc && !s->deflated;
    where->crc32 = s->crc32;
    where->conj = t->conj;
    where->neg = t->neg;
    declared_tensor_locate(&c, a->big_endian, where);
    return FSDPCK_OK;
}
