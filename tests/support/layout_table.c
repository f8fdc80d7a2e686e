/* layout_table.c: boxes of all ranks, for comparison with torch's.
 *
 *     layout_table <LINES
 *
 * A line is `MESH; PLACEMENTS; SHAPE`, as `4,2; SS0/2 S0; 9,3`: R is Replicate(), S0 is Shard(0),
 * SS0/2 is _StridedShard(0, 2). Each gives a line of one word a rank: `RECORDED|PHYSICAL`, where a
 * box is `offsets:sizes` (`8,0:1,3`) and a refusal is its finding. Recorded boxes that would have
 * gaps are what torch records, first index and count, and end in `*`. Exit status: 0, or 1 where a
 * line cannot be read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/mesh_text.h"
#include "layout/shard_box.h"

struct line {
    mesh mesh;
    placement placements[MESH_NDIM_MAX];
    unsigned nplacements;
    unsigned ndim;
    uint64_t shape[NDIM_MAX];
};

/* Numbers with commas between; returns how many, `most` + 1 where that is not all. */
static unsigned read_numbers(const char *text, unsigned most, uint64_t *numbers)
{
    unsigned count = 0;
    while (*text == ' ')
        text++;
    while (*text != '\0' && count < most) {
        char *end;
        numbers[count++] = strtoull(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0'))
            return most + 1;
        text = *end == ',' ? end + 1 : end;
    }
    return *text == '\0' ? count : most + 1;
}

static int read_placements(char *text, struct line *l)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        unsigned dim = 0;
        unsigned factor = 0;
        char end;
        placement p = {.kind = PLACEMENT_REPLICATE};
        if (sscanf(word, "SS%u/%u%c", &dim, &factor, &end) == 2)
            p = (placement){PLACEMENT_STRIDED_SHARD, (uint8_t)dim, factor};
        else if (sscanf(word, "S%u%c", &dim, &end) == 1)
            p = (placement){PLACEMENT_SHARD, (uint8_t)dim, 0};
        else if (strcmp(word, "R") != 0)
            return -1;
        if (l->nplacements == MESH_NDIM_MAX)
            return -1;
        l->placements[l->nplacements++] = p;
    }
    return 0;
}

static int read_line(char *text, struct line *l)
{
    *l = (struct line){0};
    text[strcspn(text, "\n")] = '\0';
    char *placements = strchr(text, ';');
    char *shape = placements == NULL ? NULL : strchr(placements + 1, ';');
    if (shape == NULL)
        return -1;
    *placements++ = '\0';
    *shape++ = '\0';
    l->mesh.ndim = read_numbers(text, MESH_NDIM_MAX, l->mesh.sizes);
    l->ndim = read_numbers(shape, NDIM_MAX, l->shape);
    if (l->ndim > NDIM_MAX || mesh_check(&l->mesh, NULL) != FSDPCK_OK ||
        read_placements(placements, l) != 0)
        return -1;
    return l->nplacements == l->mesh.ndim ? 0 : -1;
}

static void print_box(const uint64_t *offsets, const uint64_t *sizes, unsigned ndim)
{
    for (unsigned d = 0; d < ndim; d++)
        printf("%s%" PRIu64, d > 0 ? "," : "", offsets[d]);
    printf(":");
    for (unsigned d = 0; d < ndim; d++)
        printf("%s%" PRIu64, d > 0 ? "," : "", sizes[d]);
}

/* What torch records where shard_box refuses. */
static void print_gaps(const struct line *l, const uint64_t *coord)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    for (unsigned d = 0; d < l->ndim; d++) {
        shard_indices list;
        shard_indices_init(&list, &l->mesh, l->placements, d, l->shape[d], coord);
        sizes[d] = list.count;
        offsets[d] = list.count == 0 ? l->shape[d] : shard_indices_at(&list, 0);
    }
    print_box(offsets, sizes, l->ndim);
    printf("*");
}

static void print_rule(const struct line *l, const uint64_t *coord, shard_rule rule)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    fsdpck_error err;
    fsdpck_error_init(&err);
    if (shard_box(&l->mesh, l->placements, l->ndim, l->shape, coord, rule, offsets, sizes, &err) ==
        FSDPCK_OK)
        print_box(offsets, sizes, l->ndim);
    else if (strcmp(fsdpck_finding_name(err.finding), "LAYOUT-RUN") == 0)
        print_gaps(l, coord);
    else
        printf("%s", fsdpck_finding_name(err.finding));
}

int main(void)
{
    char *text = NULL;
    size_t capacity = 0;
    int bad = 0;
    while (!bad && getline(&text, &capacity, stdin) > 0) {
        struct line l;
        bad = read_line(text, &l) != 0;
        for (uint64_t rank = 0; !bad && rank < mesh_size(&l.mesh); rank++) {
            uint64_t coord[MESH_NDIM_MAX];
            mesh_coord(&l.mesh, rank, coord);
            print_rule(&l, coord, SHARD_RECORDED);
            printf("|");
            print_rule(&l, coord, SHARD_PHYSICAL);
            printf(rank + 1 < mesh_size(&l.mesh) ? " " : "\n");
        }
    }
    free(text);
    return bad;
}
