/* Findings about the elements of a tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "check/check_internal.h"

/* Fewer equal numbers than this are normal: fresh biases, masks. */
#define EQUAL_MIN 4096u
/* Limits for zeros inside a chunk: a lost shard of a merged tensor leaves at least this many bytes,
 * and at least this part of the tensor. */
#define BLOCK_NBYTES_MIN ((uint64_t)1 << 20)
#define BLOCK_PARTS      1024u

/* Adam's and RMSprop's: means of squares. */
static bool is_second_moment(const char *name, size_t nbytes)
{
    static const char *const keys[] = {".exp_avg_sq", ".max_exp_avg_sq", ".square_avg",
                                       ".exp_avg_sq_row", ".exp_avg_sq_col"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (text_ends_with(name, nbytes, keys[i]))
            return true;
    return false;
}

/* Megatron-Core's dp_reshardable: the padding between parameters is memory that was never written. */
static bool has_padding(const char *name)
{
    return strstr(name, "optimizer.distributed.dp_group_idx_") != NULL;
}

static const char *name_of(const check *c, uint64_t tensor)
{
    return catalogue_name(c->r->cat, catalogue_tensor(c->r->cat, tensor)->name);
}

static void report(check *c, uint64_t tensor, fsdpck_finding_id id, const char *message,
                   uint64_t count, uint64_t of, const char *next)
{
    fsdpck_error what;
    FAIL_AS(&what, FSDPCK_BADINPUT, id, ("%s", message), (tensor, name_of(c, tensor)));
    if (of > 0)
        error_found(&what, "%" PRIu64 " of %" PRIu64 " number%s", count, of, text_plural(of));
    if (next != NULL)
        error_next(&what, "%s", next);
    findings_report(c->found, &what);
}

/* ---- lost shards ---- */

static void describe_box(const check *c, uint64_t chunk, bool first, fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    const cat_tensor *t = catalogue_tensor(c->r->cat, catalogue_chunk(c->r->cat, chunk)->tensor);
    char text[2][80] = {"", ""};
    catalogue_chunk_box(c->r->cat, chunk, offsets, sizes);
    for (unsigned k = 0; k < 2; k++)
        for (unsigned d = 0; d < t->ndim; d++) {
            const size_t n = strlen(text[k]);
            snprintf(text[k] + n, sizeof text[k] - n, "%s%" PRIu64, d == 0 ? "" : ", ",
                     (k == 0 ? offsets : sizes)[d]);
        }
    error_found(err, "%" PRIu64 " bytes of zeros: %schunk at [%s] of shape [%s]",
                check_chunk_nbytes(c->r->cat, chunk), first ? "the first such " : "the ", text[0],
                text[1]);
}

static void report_lost(check *c, uint64_t chunk, uint64_t lost, uint64_t of)
{
    fsdpck_error what;
    FAIL(&what, BADINPUT, NUM_ZERO_BLOCK, "shard is all zeros, unlike other shards");
    check_add_context(c, chunk, &what);
    describe_box(c, chunk, lost > 1, &what);
    if (lost > 1)
        error_expected(&what, "numbers; %" PRIu64 " of its %" PRIu64 " shards are zeros", lost, of);
    error_next(
        &what,
        "usual in optimizer state for rows without gradients, such as unused tokens; otherwise "
        "check whether the shard was lost in a copy and replaced by zeros");
    findings_report(c->found, &what);
}

/* Whether all chunks that count were scanned, and their contents. */
static bool count_lost(const check *c, const cat_tensor *t, const unsigned char *live,
                       uint64_t *zeros, uint64_t *others, uint64_t *first)
{
    *zeros = *others = 0;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        if (live[k] == EXTENT_ZEROS && check_chunk_nbytes(c->r->cat, k) >= EQUAL_MIN) {
            if ((*zeros)++ == 0)
                *first = k;
        } else if (live[k] & EXTENT_NONZEROS) {
            (*others)++;
        }
    }
    return *zeros > 0 && *others > 0;
}

static bool is_whole(const check *c, uint64_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c->r->cat, tensor);
    const uint64_t parts = dtype_get((dtype)t->dtype)->kind == DTYPE_IS_COMPLEX ? 2 : 1;
    return c->sums[tensor].nelems ==
           parts * box_nelems(catalogue_shape(c->r->cat, tensor), t->ndim);
}

/* ---- files of zeros ---- */

enum { FILE_ZEROS = 1, FILE_NONZEROS = 2, FILE_UNKNOWN = 4 };

/* Classifies the floating chunks of each file; small ones too, as many of them are no
 * coincidence. */
static void classify_files(const check *c, const unsigned char *live, unsigned char *files,
                           uint64_t *chunks)
{
    const catalogue *cat = c->r->cat;
    for (uint64_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        const int kind = dtype_get((dtype)t->dtype)->kind;
        if (kind != DTYPE_IS_FLOAT && kind != DTYPE_IS_COMPLEX)
            continue;
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            const uint32_t file = catalogue_chunk(cat, k)->file;
            if (check_chunk_nbytes(cat, k) == 0 || file >= catalogue_file_count(cat))
                continue;
            files[file] |= live[k] & EXTENT_NONZEROS                   ? FILE_NONZEROS
                           : live[k] == EXTENT_ZEROS && is_whole(c, i) ? FILE_ZEROS
                                                                       : FILE_UNKNOWN;
            chunks[file]++;
        }
    }
}

static void check_files(check *c, const unsigned char *live)
{
    const uint64_t count = catalogue_file_count(c->r->cat);
    const uint64_t nbytes = count + 1;
    unsigned char *files = budget_alloc(c->r->metadata, nbytes, NULL);
    uint64_t *chunks = budget_alloc(c->r->metadata, nbytes * sizeof *chunks, NULL);
    bool others = false;
    if (files != NULL && chunks != NULL)
        classify_files(c, live, files, chunks);
    for (uint64_t i = 0; files != NULL && chunks != NULL && i < count; i++)
        others = others || (files[i] & FILE_NONZEROS) != 0;
    for (uint64_t i = 0; others && i < count; i++) {
        fsdpck_error what;
        if (files[i] != FILE_ZEROS)
            continue;
        FAIL_WITH(&what, BADINPUT, NUM_ZERO_FILE,
                  ("all floating-point numbers of the file are zeros, unlike those of other files"),
                  (found, "%" PRIu64 " chunk%s of zeros", chunks[i], chunks[i] == 1 ? "" : "s"));
        check_add_path(c, (uint32_t)i, &what);
        findings_report(c->found, &what);
    }
    budget_free(c->r->metadata, files, files == NULL ? 0 : nbytes);
    budget_free(c->r->metadata, chunks, chunks == NULL ? 0 : nbytes * sizeof *chunks);
}

static void check_shards(check *c)
{
    const catalogue *cat = c->r->cat;
    const uint64_t nbytes = catalogue_chunk_count(cat) + 1;
    unsigned char *live = budget_alloc(c->r->metadata, nbytes, NULL); /* by chunk */
    if (live == NULL)
        return; /* notes alone are lost */
    for (size_t i = 0; i < c->chunk_extents.count; i++)
        live[VEC_AT(&c->chunk_extents, const extent, i)->chunk] |= c->live[i];
    for (uint64_t i = 0; i < catalogue_tensor_count(cat); i++) {
        uint64_t zeros, others, first = 0;
        if (is_whole(c, i) &&
            count_lost(c, catalogue_tensor(cat, i), live, &zeros, &others, &first))
            report_lost(c, first, zeros, zeros + others);
    }
    check_files(c, live);
    budget_free(c->r->metadata, live, nbytes);
}

/* Inside one chunk: zeros that a merge writes in place of a missing shard. */
static void check_blocks(check *c)
{
    uint32_t last = CAT_NONE;
    for (size_t i = 0; i < c->zero_runs.count; i++) {
        const zero_run *z = VEC_AT(&c->zero_runs, const zero_run, i);
        const extent *chunk_extent = VEC_AT(&c->chunk_extents, const extent, z->chunk_extent);
        const uint64_t nbytes = check_chunk_nbytes(c->r->cat, chunk_extent->chunk);
        fsdpck_error what;
        if (z->nbytes < BLOCK_NBYTES_MIN || z->nbytes < nbytes / BLOCK_PARTS ||
            c->live[z->chunk_extent] == EXTENT_ZEROS || z->chunk_extent == last)
            continue;
        last = z->chunk_extent;
        FAIL(&what, BADINPUT, NUM_ZERO_BLOCK, "tensor contains a long run of zeros");
        check_add_context(c, chunk_extent->chunk, &what);
        if (!chunk_extent->stream)
            error_offset(&what, chunk_extent->offset_bytes + chunk_extent->at_bytes + z->at_bytes);
        error_found(&what, "about %" PRIu64 " of %" PRIu64 " bytes", z->nbytes, nbytes);
        error_next(&what, "check whether a shard was lost when the tensor was merged");
        findings_report(c->found, &what);
    }
}

/* ---- tensors ---- */

static void check_equal(check *c, uint64_t tensor, const scan_counts *s)
{
    if (s->nelems < EQUAL_MIN || !is_whole(c, tensor))
        return;
    if (s->zeros == s->nelems) {
        report(c, tensor, FSDPCK_FINDING_NUM_ZERO, "tensor is all zeros", s->zeros, s->nelems,
               NULL);
    } else if (s->constant && s->nan == 0) {
        const dtype d = (dtype)catalogue_tensor(c->r->cat, tensor)->dtype;
        fsdpck_error what;
        FAIL_WITH(&what, BADINPUT, NUM_CONSTANT, ("all numbers of the tensor are equal"),
                  (tensor, name_of(c, tensor)));
        if (dtype_get(d)->kind == DTYPE_IS_FLOAT && s->inf == 0)
            error_found(&what, "%" PRIu64 " times %.9g", s->nelems, element_number(d, s->first));
        else
            error_found(&what, "%" PRIu64 " numbers", s->nelems);
        findings_report(c->found, &what);
    }
}

void check_numbers(check *c)
{
    const catalogue *cat = c->r->cat;
    for (uint64_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const scan_counts *s = &c->sums[i];
        const uint32_t id = catalogue_tensor(cat, i)->name;
        if (c->no_statistics[i] & STATISTICS_SCATTERED &&
            scan_supported((dtype)catalogue_tensor(cat, i)->dtype))
            report(c, i, FSDPCK_FINDING_NUM_UNSEEN,
                   "numbers of the tensor were not checked: they are not contiguous", 0, 0,
                   "consolidate it, and verify the result");
        if (s->nelems == 0 || has_padding(catalogue_name(cat, id)))
            continue;
        if (s->nan > 0)
            report(c, i, FSDPCK_FINDING_NUM_NAN, "tensor contains NaN", s->nan, s->nelems,
                   "use an earlier checkpoint: training from this one gives NaN");
        if (s->inf > 0)
            report(c, i, FSDPCK_FINDING_NUM_INF, "tensor contains infinities", s->inf, s->nelems,
                   NULL);
        check_equal(c, i, s);
        if (s->negative &&
            is_second_moment(catalogue_name(cat, id), catalogue_name_nbytes(cat, id)))
            report(c, i, FSDPCK_FINDING_NUM_NEGATIVE, "second moments are negative", 0, 0,
                   "use an earlier checkpoint: the optimizer state is damaged");
    }
    check_steps(c);
    check_shards(c);
    check_blocks(c);
}
