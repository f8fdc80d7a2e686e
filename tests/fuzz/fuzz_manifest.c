/* fuzz_manifest: manifests from arbitrary bytes.
 *
 * Whatever is accepted is written again; that must be accepted too and be the same manifest. */
#include <stdlib.h>
#include <string.h>

#include "manifest/manifest.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_refusal(fsdpck_status st, const fsdpck_error *err)
{
    must(st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT,
         "refused with another status");
    must(st == FSDPCK_LIMIT || strncmp(fsdpck_finding_name(err->finding), "MAN-", 4) == 0,
         "refused without a finding");
}

static void write_again(const manifest *m)
{
    manifest back;
    text_buf text = {0}, again = {0};
    fsdpck_error err;
    must(manifest_write(m, &text, &err) == FSDPCK_OK, "cannot be written");
    must(manifest_is_likely(text.text, text.nbytes), "does not seem what it is");
    manifest_init(&back, NULL);
    must(manifest_read(&back, text.text, text.nbytes, &err) == FSDPCK_OK, "cannot be read again");
    must(manifest_write(&back, &again, &err) == FSDPCK_OK, "cannot be written again");
    must(text.nbytes == again.nbytes && memcmp(text.text, again.text, text.nbytes) == 0,
         "is another manifest when it is read again");
    for (size_t i = 0; i < m->files.count; i++) {
        const char *name = manifest_file_name(m, i);
        must(name[0] != '/' && name[0] != '\0' && strstr(name, "/../") == NULL,
             "names a file outside");
    }
    text_release(&text);
    text_release(&again);
    manifest_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    budget b;
    manifest m;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&b, 64u << 20, "metadata", NULL);
    manifest_init(&m, &b);
    (void)manifest_is_likely((const char *)data, nbytes);
    const fsdpck_status st = manifest_read(&m, (const char *)data, nbytes, &err);
    if (st == FSDPCK_OK)
        write_again(&m);
    else
        check_refusal(st, &err);
    manifest_release(&m);
    must(b.used_bytes == 0, "budget was not given back");
    return 0;
}
