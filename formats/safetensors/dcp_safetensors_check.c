#include "formats/safetensors/dcp_safetensors_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

#define COPY_FILES "copy the missing files from the machines that wrote them"

static bool has_file(const shards_check_input *c, const char *name)
{
    return bsearch(&name, c->req->probe->entries, c->req->probe->entry_count, sizeof name,
                   text_compare) != NULL;
}

/* Files with this number that ranks of the root lack. */
static void list_files(const shards_check_input *c, const shards_evidence *e, uint32_t root,
                       uint32_t file_number, text_buf *list)
{
    for (uint32_t r = 1; r <= c->ranks; r++) {
        char name[80];
        if (VEC_AT(&e->seen, const shards_rank, r)->files == 0 ||
            shards_evidence_root(e, r) != root)
            continue;
        snprintf(name, sizeof name,
                 "shard-%05" PRIu32 "-model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", r,
                 file_number, c->file_count);
        if (has_file(c, name))
            continue;
        log_missing_file(&c->req->log, c->req->path, name);
        text_printf(list, "%s%s", list->nbytes > 0 ? ", " : "", name);
    }
}

static const char *tensor_name(const shards_check_input *c, uint32_t tensor)
{
    return strtab_text(&c->global->names, tensor);
}

static fsdpck_status error_of_missing(const shards_check_input *c, const shards_evidence *e,
                                      const shards_gap *l, fsdpck_error *err)
{
    text_buf list = {.limit_bytes = 300};
    fsdpck_status st;
    if (l->file_number > 0) {
        list_files(c, e, l->root, l->file_number, &list);
        st = FAIL(err, BADINPUT, FILE_MISSING, "files of ranks are missing: %s%s",
                  list.text != NULL ? list.text : "", list.failed ? ", ..." : "");
    } else {
        st = FAIL(err, BADINPUT, FILE_MISSING,
                  "rank files are missing: a tensor has fewer shards than others");
    }
    text_release(&list);
    error_path(err, c->req->path);
    error_tensor(err, tensor_name(c, l->tensor));
    if (l->peer != STRTAB_NONE)
        error_expected(err, "%" PRIu32 " shards, as for '%s'", l->peer_shards,
                       tensor_name(c, l->peer));
    else
        error_expected(err, "%" PRIu32 " shards, as for other tensors", l->peer_shards);
    error_found(err, "%" PRIu32, l->shards);
    if (l->file_number > 0)
        error_next(err, COPY_FILES);
    else
        error_next(err,
                   COPY_FILES "; if only %" PRIu32 " ranks saved it, give --source-ranks %" PRIu32,
                   c->ranks, c->ranks);
    return st;
}

/* Adds a pair of root and file number. False if it is there already. */
static bool add_pair(vec *pairs, uint32_t root, uint32_t file_number)
{
    const uint64_t pair = (uint64_t)root << 32 | file_number;
    for (size_t i = 0; i < pairs->count; i++)
        if (*VEC_AT(pairs, uint64_t, i) == pair)
            return false;
    return vec_add(pairs, &pair, NULL) == FSDPCK_OK;
}

/* A gap that missing files of a rank may explain. */
static fsdpck_status error_of_holes(const shards_check_input *c, const shards_evidence *e,
                                    const text_buf *tensors, fsdpck_error *err)
{
    text_buf list = {.limit_bytes = 300};
    vec pairs = VEC_OF(uint64_t, c->req->metadata);
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        const uint32_t root = shards_evidence_root(e, t->rank_number);
        if (shards_global_has_hole(c->global, i) && shards_evidence_lacking(e, t) > 0 &&
            add_pair(&pairs, root, t->file_number))
            list_files(c, e, root, t->file_number, &list);
    }
    vec_release(&pairs);
    if (list.nbytes == 0) {
        text_release(&list);
        return FSDPCK_OK; /* they are not the cause: the coverage of tensors is checked later */
    }
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, FILE_MISSING,
                  ("files of ranks are missing: %s%s", list.text, list.failed ? ", ..." : ""),
                  (path, c->req->path), (expected, "all shards of each tensor"),
                  (found, "incomplete: %s%s", tensors->text, tensors->failed ? ", ..." : ""),
                  (next, COPY_FILES));
    text_release(&list);
    return st;
}

static fsdpck_status check_holes(const shards_check_input *c, const shards_evidence *e,
                                 fsdpck_error *err)
{
    text_buf tensors = {.limit_bytes = 180};
    fsdpck_status st = FSDPCK_OK;
    shards_global_list_holes(c->global, &tensors);
    if (tensors.nbytes > 0)
        st = error_of_holes(c, e, &tensors, err);
    text_release(&tensors);
    return st;
}

static fsdpck_status check_beside(const shards_check_input *c, const shards_evidence *e,
                                  fsdpck_error *err)
{
    const char *name;
    shards_gap open;
    const uint64_t ranks = shards_ranks_of_others(c->req, &name);
    if (ranks <= c->ranks || !shards_gap_find_open(e, &open))
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, FILE_MISSING,
                     ("rank files are missing: other files were written by more ranks"),
                     (path, c->req->path), (tensor, tensor_name(c, open.tensor)),
                     (expected, "files of %" PRIu64 " ranks, according to '%s'", ranks, name),
                     (found, "files of %" PRIu32, c->ranks),
                     (next,
                      COPY_FILES "; if '%s' is from another save, give the number of ranks of this "
                                 "save with --source-ranks",
                      name));
}

/* The number of ranks decides: a mesh of the ranks with shards is no part of it. */
static fsdpck_status check_apart(const shards_check_input *c, const shards_evidence *e,
                                 fsdpck_error *err)
{
    shards_gap lack;
    text_buf list = {.limit_bytes = 300};
    RETURN_IF(shards_gap_find_apart(e, c->ranks, c->file_count, &lack, err));
    if (lack.root == 0)
        return FSDPCK_OK;
    list_files(c, e, lack.root, lack.file_number, &list);
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, FILE_MISSING,
        ("files of ranks are missing: %s", list.text != NULL ? list.text : ""),
        (path, c->req->path), (tensor, tensor_name(c, lack.tensor)),
        (expected, "shards on a number of ranks that divides %" PRIu32, c->ranks),
        (found, "shards on %" PRIu32 " ranks", lack.shards),
        (next, COPY_FILES "; if none is missing, give the number of ranks with --source-ranks"));
    text_release(&list);
    return st;
}

static fsdpck_status check_config(const shards_check_input *c, const shards_evidence *e,
                                  fsdpck_error *err)
{
    shards_config config;
    shards_config_read(c->req, &config);
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        unsigned ndim, dim = 0;
        const uint64_t *shape = shards_global_shape(c->global, i, &ndim);
        const uint64_t size = shards_config_size(&config, tensor_name(c, i), shape, ndim, &dim);
        if (size == 0 || t->has_end || shape[dim] >= size || (t->dim != UINT8_MAX && t->dim != dim))
            continue;
        return FAIL_WITH(err, BADINPUT, FILE_MISSING,
                         ("rank files are missing: a tensor is smaller than in 'config.json'"),
                         (path, c->req->path), (tensor, tensor_name(c, i)),
                         (expected, "size %" PRIu64 " of dim %u", size, dim),
                         (found, "%" PRIu64, shape[dim]),
                         (next, COPY_FILES
                          "; if none is missing, give the number of ranks with --source-ranks"));
    }
    return FSDPCK_OK;
}

fsdpck_status shards_check(const shards_check_input *c, fsdpck_error *err)
{
    const bool are_stated = c->req->expect_ranks > 0;
    shards_evidence e;
    shards_gap lack;
    fsdpck_status st = shards_evidence_gather(&e, c->global, c->files, c->req->metadata, err);
    if (st == FSDPCK_OK)
        st = check_holes(c, &e, err);
    if (st == FSDPCK_OK && shards_gap_find(&e, c->ranks, are_stated, &lack))
        st = error_of_missing(c, &e, &lack, err);
    if (st == FSDPCK_OK && !are_stated)
        st = check_beside(c, &e, err);
    if (st == FSDPCK_OK && !are_stated)
        st = check_apart(c, &e, err);
    if (st == FSDPCK_OK && !are_stated)
        st = check_config(c, &e, err);
    shards_evidence_release(&e);
    return st;
}
