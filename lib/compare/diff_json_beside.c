#include "compare/diff_json_beside.h"

#include <stdlib.h>
#include <string.h>

#include "open/state_files.h"

typedef struct json_text {
    char *text;
    size_t nbytes;
    bool is_there, is_read;
} json_text;

static void read_in(const folder *dir, const char *name, json_text *t)
{
    path_kind kind;
    if (path_probe(dir, name, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE)
        return;
    t->is_there = true;
    t->is_read = file_read_whole(dir, name, TRAINER_STATE_JSON_NBYTES, &t->text, &t->nbytes,
                                 NULL) == FSDPCK_OK;
}

/* In the folder of the weights, or in the one that was given. */
static json_text read_text(const fsdpck_checkpoint *c, const char *name)
{
    json_text t = {0};
    probe_input above;
    if (c->probe.is_folder)
        read_in(&c->probe.dir, name, &t);
    if (t.is_there || c->entered_from == NULL ||
        probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return t;
    if (above.is_folder)
        read_in(&above.dir, name, &t);
    probe_release(&above);
    return t;
}

static void compare(const char *name, const json_text *a, const json_text *b, const logger *log)
{
    static const char next[] = "compare the texts of both folders";
    const bool are_read = a->is_read && b->is_read;
    if ((!a->is_there && !b->is_there) ||
        (are_read && a->nbytes == b->nbytes && memcmp(a->text, b->text, a->nbytes) == 0))
        return;
    if (a->is_there != b->is_there)
        log_warn(log, FSDPCK_FINDING_STATE_BESIDE, next, "'%s' is beside the weights of %s only",
                 name, a->is_there ? "A" : "B");
    else
        log_warn(log, FSDPCK_FINDING_STATE_BESIDE, next,
                 are_read ? "'%s' beside the weights differs; its values are not compared"
                          : "'%s' beside the weights cannot be read, and is not compared",
                 name);
}

/* A file alone has nothing beside it. */
static bool is_folder(const fsdpck_checkpoint *c)
{
    return c->probe.is_folder || c->entered_from != NULL;
}

void diff_json_beside(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b, const logger *log)
{
    /* PEFT, VeOmni, Megatron-Core */
    static const char *const names[] = {"adapter_config.json", "checkpoint_manifest.json",
                                        "metadata.json"};
    for (size_t i = 0; is_folder(a) && is_folder(b) && i < sizeof names / sizeof *names; i++) {
        json_text of_a = read_text(a, names[i]), of_b = read_text(b, names[i]);
        compare(names[i], &of_a, &of_b, log);
        free(of_a.text);
        free(of_b.text);
    }
}
