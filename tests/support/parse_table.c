/* parse_table: what the strict parsers see in any bytes, for comparison with Python's.
 *
 *     parse_table pickle|zip|json <INPUTS
 *
 * INPUTS is any number of inputs, each with its length before it (4 bytes, little-endian). Prints
 * a line of JSON for each: {"finding": ..., "message": ...} where it is refused, else
 *
 *     pickle   {"nbytes": up to STOP, "opcodes": [offset, ...]}
 *     zip      {"prefix": ..., "no_crc": ..., "entries": [[name, method, flags, CRC as recorded,
 *              size, stored size, CRC of its data or the finding that refuses them], ...]}
 *     json     {"text": the tokens, written again}
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/json.h"
#include "formats/common/pickle.h"
#include "formats/common/zip.h"
#include "tests/support/memory_bytes.h"

enum { INPUT_BYTES_MAX = 1 << 20, OPCODES_BYTES_MAX = 2048 };

static void put_refusal(json_writer *w, const fsdpck_error *err)
{
    json_member_string(w, "finding", fsdpck_finding_name(err->finding));
    json_member_string(w, "message", err->message);
}

/* An opcode begins where STOP, put there, ends the pickle. */
static bool is_opcode(uint8_t *bytes, size_t nbytes, size_t at)
{
    const uint8_t was = bytes[at];
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    size_t used = 0;
    fsdpck_error err;
    fsdpck_error_init(&err);
    bytes[at] = '.';
    const fsdpck_status st = pickle_skim(&in, &used, &err);
    bytes[at] = was;
    return st == FSDPCK_OK ? used == at + 1
                           : strcmp(fsdpck_finding_name(err.finding), "PKL-FRAME") == 0 &&
                                 err.offset_bytes == at;
}

static void print_pickle(json_writer *w, uint8_t *bytes, size_t nbytes)
{
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    budget memory;
    value_pool pool;
    value root;
    size_t used = 0;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&memory, 256 << 20, "metadata", NULL);
    value_pool_init(&pool, &memory);
    if (pickle_read(&in, &limits, &pool, NULL, &root, &used, &err) == FSDPCK_OK) {
        json_member_u64(w, "nbytes", used);
        json_member_array(w, "opcodes");
        for (size_t i = 0; i < used && used <= OPCODES_BYTES_MAX; i++)
            if (is_opcode(bytes, used, i))
                json_put_u64(w, i);
        json_end_array(w);
    } else {
        put_refusal(w, &err);
    }
    value_pool_release(&pool);
}

static void print_entry(json_writer *w, const zip_archive *z, const zip_entry *e)
{
    fsdpck_error err;
    uint8_t *bytes;
    uint64_t nbytes;
    const char *name = zip_name(z, e);
    fsdpck_error_init(&err);
    json_begin_array(w);
    json_put_string(w, name, strtab_nbytes(&z->names, e->name));
    json_put_u64(w, e->method);
    json_put_u64(w, e->flags);
    json_put_u64(w, e->crc32);
    json_put_u64(w, e->nbytes);
    json_put_u64(w, e->stored_nbytes);
    if (zip_read_entry(z, e, INPUT_BYTES_MAX, &bytes, &nbytes, &err) == FSDPCK_OK) {
        json_put_u64(w, crc32_update(0, bytes, nbytes));
        budget_free(z->owner, bytes, nbytes);
    } else {
        json_put_string(w, fsdpck_finding_name(err.finding),
                        strlen(fsdpck_finding_name(err.finding)));
    }
    json_end_array(w);
}

static void print_zip(json_writer *w, uint8_t *bytes, size_t nbytes)
{
    memory_bytes m = {bytes, nbytes};
    const zip_input in = {.read = memory_bytes_read, .ctx = &m, .nbytes = nbytes};
    budget memory;
    zip_archive z;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&memory, 64 << 20, "zip", NULL);
    if (zip_open(&in, &memory, &z, &err) != FSDPCK_OK) {
        put_refusal(w, &err);
        return;
    }
    json_member_string(w, "prefix", z.prefix);
    json_member_bool(w, "no_crc", z.no_crc);
    json_member_array(w, "entries");
    for (size_t i = 0; i < z.entries.count; i++)
        print_entry(w, &z, VEC_AT(&z.entries, const zip_entry, i));
    json_end_array(w);
    zip_release(&z);
}

static void print_json(json_writer *w, uint8_t *bytes, size_t nbytes)
{
    json_reader r;
    json_token t = {.kind = JSON_NULL};
    text_buf again = {0};
    json_writer copy;
    fsdpck_error err;
    fsdpck_error_init(&err);
    json_reader_init(&r, (const char *)bytes, nbytes, FSDPCK_FINDING_ST_JSON);
    json_writer_init(&copy, &again, 0);
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && (st = json_next(&r, &t, &err)) == FSDPCK_OK && t.kind != JSON_END)
        json_put_token(&copy, &t);
    if (st == FSDPCK_OK) {
        json_member_text(w, "text", again.text != NULL ? again.text : "", again.nbytes);
    } else {
        put_refusal(w, &err);
    }
    json_reader_release(&r);
    text_release(&again);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(json_writer *w, uint8_t *bytes, size_t nbytes);
    } parsers[] = {{"pickle", print_pickle}, {"zip", print_zip}, {"json", print_json}};
    uint8_t head[4];
    size_t which = 0;
    while (which < 3 && (argc != 2 || strcmp(argv[1], parsers[which].name) != 0))
        which++;
    if (which == 3) {
        fprintf(stderr, "usage: parse_table pickle|zip|json <INPUTS\n");
        return 2;
    }
    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        const size_t nbytes = load_le32(head);
        text_buf line = {0};
        json_writer w;
        uint8_t *bytes = nbytes <= INPUT_BYTES_MAX ? malloc(nbytes > 0 ? nbytes : 1) : NULL;
        if (bytes == NULL || fread(bytes, 1, nbytes, stdin) != nbytes) {
            fprintf(stderr, "parse_table: cannot read an input of %zu bytes\n", nbytes);
            free(bytes);
            return 2;
        }
        json_writer_init(&w, &line, 0);
        json_begin_object(&w);
        parsers[which].print(&w, bytes, nbytes);
        json_end_object(&w);
        text_puts(&line, "\n");
        if (text_check(&line, NULL) != FSDPCK_OK)
            return 2;
        fwrite(line.text, 1, line.nbytes, stdout);
        text_release(&line);
        free(bytes);
    }
    return 0;
}
