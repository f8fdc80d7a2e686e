/* Finds sets of files whose tiles are filled together. */
#include "exec/tile_set.h"

/* Places of a file where its reads are sampled, and parts at each. */
#define SAMPLE_PLACES 8u
#define SAMPLE_PARTS  4u
#define SAMPLE_READS  64u
/* Bytes of a file, and of all files of a set, that are filled at a time. Smaller writes are inefficient. */
#define FILE_NBYTES_MIN ((uint64_t)64 << 10)
#define FILE_NBYTES_MAX ((uint64_t)512 << 10)
#define SET_NBYTES_MAX  ((uint64_t)4 << 20)

/* Bytes of one file of the source that are read in one go. */
typedef struct sample_read {
    uint32_t file;
    uint64_t begin, end;
} sample_read;

typedef struct file_sample {
    sample_read reads[SAMPLE_READS]; /* sorted, apart from each other */
    unsigned count;
    uint64_t needed_nbytes;
} file_sample;

static bool is_before(const sample_read *a, const sample_read *b)
{
    return a->file != b->file ? a->file < b->file : a->begin < b->begin;
}

/* Keeps them sorted. */
static void add_read(file_sample *f, sample_read r)
{
    unsigned i = f->count;
    if (f->count == SAMPLE_READS)
        return;
    for (f->count++; i > 0 && is_before(&r, &f->reads[i - 1]); i--)
        f->reads[i] = f->reads[i - 1];
    f->reads[i] = r;
}

static void add_segment(const struct exec *x, const segment_walk *seg, file_sample *f)
{
    const chunk_extent *where = &x->chunk_extents[seg->src_chunk];
    const uint64_t itemsize = dtype_get(exec_chunk_dtype(x, seg->src_chunk))->itemsize_bytes;
    uint64_t strides[NDIM_MAX], begin = where->offset_bytes;
    exec_chunk_strides(x, seg->src_chunk, strides);
    for (unsigned d = 0; d < seg->ndim; d++) {
        strides[d] *= itemsize;
        begin += seg->src_offsets[d] * strides[d];
    }
    const uint64_t span = strided_span(seg->ndim, seg->sizes, strides, itemsize);
    f->needed_nbytes += f->count < SAMPLE_READS ? seg->nelems * itemsize : 0;
    add_read(f, (sample_read){where->file, begin, begin + span});
}

static void add_place(const struct exec *x, const output_range *range, file_sample *f)
{
    range_walk walk;
    range_part part;
    segment_walk seg;
    unsigned parts = 0;
    range_walk_begin(&walk, x->r.plan, range);
    while (parts < SAMPLE_PARTS && range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK || exec_chunk_is_grouped(x, part.chunk))
            continue;
        parts++;
        segment_walk_begin(&seg, x->r.plan, part.chunk, part.first_elem, part.end_elem);
        while (f->count < SAMPLE_READS && segment_walk_next(&seg))
            add_segment(x, &seg, f);
    }
}

/* Joins reads as gather_flush does. */
static void join_reads(file_sample *f)
{
    unsigned count = 0;
    for (unsigned i = 0; i < f->count; i++) {
        sample_read *last = &f->reads[count > 0 ? count - 1 : 0];
        const sample_read *r = &f->reads[i];
        if (count > 0 && last->file == r->file && r->begin <= last->end + GATHER_GAP_NBYTES)
            last->end = r->end > last->end ? r->end : last->end;
        else
            f->reads[count++] = *r;
    }
    f->count = count;
}

static void sample_file(const struct exec *x, const tile_set_file *of, file_sample *f)
{
    output_range first, last;
    plan_get_item(x->r.plan, exec_own_item(x, of->first), &first);
    plan_get_item(x->r.plan, exec_own_item(x, of->first + of->count - 1), &last);
    *f = (file_sample){.count = 0};
    for (unsigned i = 0; i < SAMPLE_PLACES; i++) {
        const uint64_t begin = first.begin + (last.end - first.begin) / SAMPLE_PLACES * i;
        add_place(x, &(output_range){first.file, begin, last.end}, f);
    }
    join_reads(f);
}

/* Whether a file alone reads a quarter more than it needs. */
static bool has_holes(const file_sample *f)
{
    uint64_t nbytes = 0;
    for (unsigned i = 0; i < f->count; i++)
        nbytes += f->reads[i].end - f->reads[i].begin;
    return nbytes > f->needed_nbytes + f->needed_nbytes / 4;
}

static bool overlap(const file_sample *a, const file_sample *b)
{
    unsigned i = 0, j = 0;
    while (i < a->count && j < b->count) {
        const sample_read *x = &a->reads[i], *y = &b->reads[j];
        if (x->file == y->file && x->begin < y->end && y->begin < x->end)
            return true;
        if (is_before(x, y))
            i++;
        else
            j++;
    }
    return false;
}

/* Whether sets are possible: only threads fill them, and only from plain reads. */
static bool takes_sets(const struct exec *x)
{
    return !x->engine->whole_tiles && !x->any_across && x->streams.count == 0 &&
           x->r.source->read_box == NULL;
}

static fsdpck_status find_files(tile_sets *t, const struct exec *x, fsdpck_error *err)
{
    const uint64_t count = exec_own_item_count(x);
    output_range item;
    uint32_t last = 0;
    for (uint64_t i = 0; i < count; i++) {
        plan_get_item(x->r.plan, exec_own_item(x, i), &item);
        if (i == 0 || item.file != last)
            RETURN_IF(vec_add(&t->files, &(tile_set_file){.first = i}, err));
        VEC_AT(&t->files, tile_set_file, t->files.count - 1)->count++;
        last = item.file;
    }
    return FSDPCK_OK;
}

static uint64_t steps_of_item(const struct exec *x, const tile_set *s)
{
    return (plan_tile_nbytes(x->r.plan) + s->step_nbytes - 1) / s->step_nbytes;
}

static uint64_t count_jobs(const struct exec *x, const tile_sets *t, const tile_set *s)
{
    uint64_t items = 0;
    for (uint64_t i = 0; i < s->file_count; i++) {
        const uint64_t count = VEC_AT(&t->files, const tile_set_file, s->first_file + i)->count;
        items = count > items ? count : items;
    }
    return s->step_nbytes == 0 ? items : items * steps_of_item(x, s);
}

/* Files [begin, end), in sets of at most `most`. */
static fsdpck_status add_sets(tile_sets *t, const struct exec *x, uint64_t begin, uint64_t end,
                              uint64_t most, fsdpck_error *err)
{
    const uint64_t sets = (end - begin + most - 1) / most;
    for (uint64_t i = 0; i < sets; i++) {
        const uint64_t first = begin + (end - begin) * i / sets;
        const uint64_t count = begin + (end - begin) * (i + 1) / sets - first;
        tile_set s = {.first_job = t->jobs, .first_file = first, .file_count = (uint32_t)count};
        if (count > 1) {
            const uint64_t all = x->tile_nbytes < SET_NBYTES_MAX ? x->tile_nbytes : SET_NBYTES_MAX;
            const uint64_t each = all / count - TILE_SET_GUARD_NBYTES;
            s.step_nbytes = each < FILE_NBYTES_MAX ? each : FILE_NBYTES_MAX;
            s.step_nbytes -= s.step_nbytes % FILE_DIRECT_ALIGN;
        }
        t->jobs += count_jobs(x, t, &s);
        RETURN_IF(vec_add(&t->sets, &s, err));
    }
    return FSDPCK_OK;
}

/* The end of the files from `begin` on that are neighbors in the source. */
static uint64_t find_end(const tile_sets *t, const struct exec *x, uint64_t begin, file_sample *two)
{
    uint64_t end = begin + 1;
    if (end == t->files.count || !takes_sets(x))
        return end;
    sample_file(x, VEC_AT(&t->files, const tile_set_file, begin), &two[begin % 2]);
    while (end < t->files.count && has_holes(&two[(end - 1) % 2])) {
        sample_file(x, VEC_AT(&t->files, const tile_set_file, end), &two[end % 2]);
        if (!has_holes(&two[end % 2]) || !overlap(&two[0], &two[1]))
            break;
        end++;
    }
    return end;
}

fsdpck_status tile_sets_find(tile_sets *t, const struct exec *x, fsdpck_error *err)
{
    const uint64_t all = x->tile_nbytes < SET_NBYTES_MAX ? x->tile_nbytes : SET_NBYTES_MAX;
    const uint64_t most = all / (FILE_NBYTES_MIN + TILE_SET_GUARD_NBYTES);
    file_sample two[2];
    *t = (tile_sets){.files = VEC_OF(tile_set_file, x->r.metadata),
                     .sets = VEC_OF(tile_set, x->r.metadata)};
    RETURN_IF(find_files(t, x, err));
    for (uint64_t i = 0; i < t->files.count;) {
        const uint64_t end = find_end(t, x, i, two);
        RETURN_IF(add_sets(t, x, i, end, most > 1 ? most : 1, err));
        i = end;
    }
    return FSDPCK_OK;
}

void tile_sets_release(tile_sets *t)
{
    VEC_RELEASE_ALL(&t->files, &t->sets);
}

const tile_set *tile_sets_of_job(const tile_sets *t, uint64_t job)
{
    size_t low = 0, high = t->sets.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&t->sets, const tile_set, middle)->first_job <= job)
            low = middle;
        else
            high = middle;
    }
    return VEC_AT(&t->sets, const tile_set, low);
}

uint64_t tile_set_item(const struct exec *x, const tile_sets *t, const tile_set *s, uint64_t job)
{
    const tile_set_file *f = VEC_AT(&t->files, const tile_set_file, s->first_file);
    return exec_own_item(x, f->first + (job - s->first_job));
}
