/* check_digests.c: compares the tensors of a safetensors file with a list of digests.
 *
 *     check_digests FILE.safetensors LIST [--prefix PREFIX]
 *
 * A line of LIST is `<16 hex digits>  <dtype>[<d0>,<d1>,...]  <name>` with torch's dtype names. The
 * digest is CRC-64/XZ of the text `dtype[d0,d1,...]` and a newline, then of the row-major
 * little-endian bytes. With --prefix only lines whose name begins with PREFIX count, and the file
 * names those tensors without it. Exit status: 0 all match and none is missing or extra; 1 not so;
 * 2 wrong arguments or unreadable files.
 *
 * This is a judge of fsdpck's output, so it shares no code with it.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct digest_line {
    char hex[17];
    char *type; /* dtype[d0,d1,...] */
    char *name;
    int seen;
};

struct digest_list {
    struct digest_line *lines;
    size_t nlines;
};

/* A tensor of the header. */
struct tensor {
    char name[4096];
    char code[32];
    uint64_t shape[32], offsets[2];
    size_t ndim, noffsets;
};

static const struct {
    const char *code;
    const char *dtype;
    unsigned nbits;
} dtypes[] = {
    {"F64", "float64", 64},
    {"F32", "float32", 32},
    {"F16", "float16", 16},
    {"BF16", "bfloat16", 16},
    {"I64", "int64", 64},
    {"I32", "int32", 32},
    {"I16", "int16", 16},
    {"I8", "int8", 8},
    {"U64", "uint64", 64},
    {"U32", "uint32", 32},
    {"U16", "uint16", 16},
    {"U8", "uint8", 8},
    {"BOOL", "bool", 8},
    {"C64", "complex64", 64},
    {"F8_E4M3", "float8_e4m3fn", 8},
    {"F8_E5M2", "float8_e5m2", 8},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
    {"F8_E8M0", "float8_e8m0fnu", 8},
    {"F4", "float4_e2m1fn_x2", 4},
};

static void die(const char *what, const char *which)
{
    fprintf(stderr, "check_digests: %s '%s'\n", what, which);
    exit(2);
}

static void *grow(void *block, size_t nbytes)
{
    block = realloc(block, nbytes);
    if (block == NULL)
        die("out of memory", "realloc");
    return block;
}

static char *copy_text(const char *text)
{
    return strcpy(grow(NULL, strlen(text) + 1), text);
}

/* Reflected CRC-64 with ECMA-182's polynomial; start with 0, the inversions are inside. */
static uint64_t crc64_xz(uint64_t crc, const void *data, size_t nbytes)
{
    static uint64_t table[256];
    const unsigned char *bytes = data;

    if (table[1] == 0) {
        for (unsigned i = 0; i < 256; i++) {
            uint64_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value & 1 ? value >> 1 ^ UINT64_C(0xc96c5795d7870f42) : value >> 1;
            table[i] = value;
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < nbytes; i++)
        crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static struct digest_list read_list(const char *path, const char *prefix)
{
    FILE *file = fopen(path, "r");
    struct digest_list list = {NULL, 0};
    char *text = NULL;
    size_t capacity = 0;

    if (file == NULL)
        die("cannot open", path);
    while (getline(&text, &capacity, file) > 0) {
        text[strcspn(text, "\n")] = '\0';
        if (text[0] == '\0' || text[0] == '#')
            continue;
        char *type = strstr(text, "  ");
        char *name = type != NULL ? strstr(type + 2, "  ") : NULL;
        if (name == NULL || type - text != 16)
            die("not a line of digests:", text);
        *type = *name = '\0';
        type += 2;
        name += 2;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        list.lines = grow(list.lines, (list.nlines + 1) * sizeof *list.lines);
        struct digest_line *line = &list.lines[list.nlines++];
        memcpy(line->hex, text, 17);
        line->type = copy_text(type);
        line->name = copy_text(name + strlen(prefix));
        line->seen = 0;
    }
    free(text);
    fclose(file);
    if (list.nlines == 0)
        die("no digests with this prefix in", path);
    return list;
}

static void expect(const char **at, char c)
{
    *at += strspn(*at, " \t\r\n");
    if (**at != c)
        die("header is not the JSON of safetensors at", *at);
    ++*at;
}

/* Whether an item of an object or array follows, not its end, which is skipped. */
static int has_item(const char **at, char end)
{
    *at += strspn(*at, " \t\r\n,");
    return **at != end || (expect(at, end), 0);
}

static void read_text(const char **at, char *text, size_t capacity)
{
    size_t n = 0;

    expect(at, '"');
    for (; **at != '"'; ++*at) {
        if (**at == '\\' && ((*at)[1] == '"' || (*at)[1] == '\\'))
            ++*at;
        else if (**at == '\\' || **at == '\0' || n + 1 == capacity)
            die("header has an unknown escape or a long text at", *at);
        text[n++] = **at;
    }
    text[n] = '\0';
    ++*at;
}

static size_t read_numbers(const char **at, uint64_t *numbers, size_t capacity)
{
    size_t n = 0;

    expect(at, '[');
    while (has_item(at, ']')) {
        char *end;
        const uint64_t number = strtoull(*at, &end, 10);
        if (end == *at || n == capacity)
            die("header has no number, or too many, at", *at);
        numbers[n++] = number;
        *at = end;
    }
    return n;
}

/* Reads the value of a name. That of the metadata contains texts only. */
static void read_tensor(const char **at, struct tensor *tensor)
{
    static char text[1 << 16];

    tensor->code[0] = '\0';
    tensor->ndim = tensor->noffsets = 0;
    expect(at, ':');
    expect(at, '{');
    while (has_item(at, '}')) {
        char key[4096];
        read_text(at, key, sizeof key);
        expect(at, ':');
        if (strcmp(key, "shape") == 0)
            tensor->ndim = read_numbers(at, tensor->shape, 32);
        else if (strcmp(key, "data_offsets") == 0)
            tensor->noffsets = read_numbers(at, tensor->offsets, 2);
        else if (strcmp(key, "dtype") == 0)
            read_text(at, tensor->code, sizeof tensor->code);
        else
            read_text(at, text, sizeof text);
    }
}

/* Writes `dtype[d0,d1,...]` into text and returns the number of bytes of such a tensor. */
static uint64_t describe(const struct tensor *tensor, char *text, size_t capacity)
{
    uint64_t nelems = 1;
    unsigned nbits = 0;
    size_t n = 0;

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(tensor->code, dtypes[i].code) == 0) {
            nbits = dtypes[i].nbits;
            n = (size_t)snprintf(text, capacity, "%s[", dtypes[i].dtype);
        }
    if (nbits == 0 || tensor->noffsets != 2)
        die("unknown dtype, or no data_offsets, of", tensor->name);
    for (size_t d = 0; d < tensor->ndim; d++) {
        const uint64_t size = tensor->shape[d];
        nelems *= size;
        /* A float4 element of torch is a pair; safetensors counts the halves. */
        n += (size_t)snprintf(text + n, capacity - n, "%s%" PRIu64, d == 0 ? "" : ",",
                              nbits == 4 && d + 1 == tensor->ndim ? size / 2 : size);
        if (n + 32 > capacity)
            die("too many dimensions:", tensor->name);
    }
    snprintf(text + n, capacity - n, "]");
    return nelems * nbits / 8;
}

static uint64_t digest_range(FILE *file, const char *type, uint64_t offset, uint64_t nbytes)
{
    static char buffer[1 << 20];
    uint64_t crc = crc64_xz(crc64_xz(0, type, strlen(type)), "\n", 1);

    if (fseeko(file, (off_t)offset, SEEK_SET) != 0)
        die("cannot seek to the bytes of", type);
    while (nbytes > 0) {
        const size_t want = nbytes < sizeof buffer ? (size_t)nbytes : sizeof buffer;
        if (fread(buffer, 1, want, file) != want)
            die("file ends inside a tensor of type", type);
        crc = crc64_xz(crc, buffer, want);
        nbytes -= want;
    }
    return crc;
}

/* Returns 1 if the tensor is in the list and equal to it. */
static int check_tensor(FILE *file, uint64_t data_start, const struct tensor *tensor,
                        struct digest_list *list)
{
    struct digest_line *line = NULL;
    char type[256];
    char hex[17];

    for (size_t i = 0; i < list->nlines && line == NULL; i++)
        if (strcmp(list->lines[i].name, tensor->name) == 0)
            line = &list->lines[i];
    if (line == NULL) {
        printf("%s: not in the list\n", tensor->name);
        return 0;
    }
    line->seen = 1;
    const uint64_t nbytes = describe(tensor, type, sizeof type);
    const uint64_t begin = tensor->offsets[0], end = tensor->offsets[1];
    if (end - begin != nbytes || strcmp(type, line->type) != 0) {
        printf("%s: expected %s, found %s in %" PRIu64 " bytes\n", tensor->name, line->type, type,
               end - begin);
        return 0;
    }
    snprintf(hex, sizeof hex, "%016" PRIx64, digest_range(file, type, data_start + begin, nbytes));
    if (strcmp(hex, line->hex) != 0) {
        printf("%s: expected %s, found %s\n", tensor->name, line->hex, hex);
        return 0;
    }
    return 1;
}

static char *read_header(FILE *file, const char *path, uint64_t *data_start)
{
    unsigned char head[8];
    uint64_t nbytes = 0;

    if (fread(head, 1, 8, file) != 8)
        die("too short:", path);
    for (int i = 7; i >= 0; i--)
        nbytes = nbytes << 8 | head[i];
    if (nbytes > 1u << 30)
        die("header too long:", path);
    char *text = grow(NULL, (size_t)nbytes + 1);
    if (fread(text, 1, (size_t)nbytes, file) != nbytes)
        die("file ends inside its header:", path);
    text[nbytes] = '\0';
    *data_start = 8 + nbytes;
    return text;
}

int main(int argc, char **argv)
{
    if (argc != 3 && !(argc == 5 && strcmp(argv[3], "--prefix") == 0)) {
        fprintf(stderr, "usage: check_digests FILE.safetensors LIST [--prefix PREFIX]\n");
        return 2;
    }
    struct digest_list list = read_list(argv[2], argc == 5 ? argv[4] : "");
    FILE *file = fopen(argv[1], "rb");
    uint64_t data_start = 0;
    size_t nmatched = 0;
    int bad = 0;

    if (file == NULL)
        die("cannot open", argv[1]);
    char *header = read_header(file, argv[1], &data_start);
    const char *at = header;
    expect(&at, '{');
    while (has_item(&at, '}')) {
        static struct tensor tensor;
        read_text(&at, tensor.name, sizeof tensor.name);
        read_tensor(&at, &tensor);
        if (strcmp(tensor.name, "__metadata__") == 0)
            continue;
        if (check_tensor(file, data_start, &tensor, &list))
            nmatched++;
        else
            bad = 1;
    }
    for (size_t i = 0; i < list.nlines; i++) {
        if (!list.lines[i].seen) {
            printf("%s: missing\n", list.lines[i].name);
            bad = 1;
        }
        free(list.lines[i].type);
        free(list.lines[i].name);
    }
    if (bad)
        printf("%zu of %zu tensors match\n", nmatched, list.nlines);
    else
        printf("all %zu tensors match\n", nmatched);
    free(list.lines);
    free(header);
    fclose(file);
    return bad;
}
