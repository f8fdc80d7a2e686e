#include "open/open_once.h"

#include <stdlib.h>
#include <string.h>

#include "open/open_record.h"
#include "state/catalogue_tables.h"

/* A rank's place among those of its host. */
typedef struct host_place {
    unsigned leader; /* the lowest of them */
    bool is_alone;
} host_place;

static host_place find_place(const group *g)
{
    const unsigned rank = group_rank(g);
    host_place p = {.leader = rank, .is_alone = true};
    for (unsigned r = group_size(g); r-- > 0;) {
        if (r == rank || strcmp(group_host(g, r), group_host(g, rank)) != 0)
            continue;
        p.is_alone = false;
        p.leader = r < p.leader ? r : p.leader;
    }
    return p;
}

fsdpck_status open_once_agree(fsdpck_checkpoint *c, fsdpck_status st, fsdpck_error *err)
{
    uint64_t number = 0;
    group *g = c->ctx->group;
    if (g == NULL)
        return st;
    while (st == FSDPCK_OK && format_readers[number] != c->format)
        number++;
    return group_check_same(g, st, GROUP_GOES_ON, number, "formats", err);
}

/* The outcome of open(), before the tables of its result. */
typedef struct outcome {
    fsdpck_status st;
    fsdpck_error error;
    vec record; /* of open_record */
} outcome;

static fsdpck_status outcome_tables(outcome *o, table_file *f, fsdpck_error *err)
{
    RETURN_IF(table_file_bytes(f, &o->st, sizeof o->st, err));
    RETURN_IF(table_file_bytes(f, &o->error, sizeof o->error, err));
    return table_file_vec(f, &o->record, err);
}

/* ---- the rank that reads ---- */

static fsdpck_status result_tables(fsdpck_checkpoint *c, catalogue *into, table_file *f,
                                   fsdpck_error *err)
{
    RETURN_IF(catalogue_tables(into, f, err));
    return c->format->tables(c->self, f, err);
}

static fsdpck_status write_tables(fsdpck_checkpoint *c, outcome *o, catalogue *into,
                                  table_file_address *address)
{
    table_file *f = &c->tables;
    RETURN_IF(table_file_create(f, NULL));
    RETURN_IF(outcome_tables(o, f, NULL));
    if (o->st == FSDPCK_OK)
        RETURN_IF(result_tables(c, into, f, NULL));
    return table_file_finish(f, address, NULL);
}

/* Without memory for it, *address stays as it is, and each rank reads. */
static fsdpck_status publish(fsdpck_checkpoint *c, outcome *o, catalogue *into,
                             table_file_address *address, fsdpck_error *err)
{
    table_file_address made = {0};
    if (write_tables(c, o, into, &made) != FSDPCK_OK) {
        table_file_release(&c->tables);
        return FSDPCK_OK;
    }
    /* This rank's own copy is freed: from now on it uses the same pages. */
    if (o->st == FSDPCK_OK && table_file_map(&c->tables, &c->metadata, NULL) == FSDPCK_OK) {
        outcome again = {.record = VEC_OF(uint8_t, NULL)};
        RETURN_IF(outcome_tables(&again, &c->tables, err));
        RETURN_IF(result_tables(c, into, &c->tables, err));
    }
    *address = made;
    return FSDPCK_OK;
}

static fsdpck_status read_for_all(fsdpck_checkpoint *c, const open_request *req, catalogue *into,
                                  table_file_address *address, fsdpck_error *err)
{
    open_request own = *req;
    open_record record;
    outcome o = {.error = FSDPCK_ERROR_INIT};
    open_record_init(&record, req->found, req->found_ctx);
    if (req->found != NULL) {
        own.found = open_record_found;
        own.found_ctx = &record;
    }
    c->ctx->record = &record;
    o.st = c->format->open(&own, into, &c->self, &o.error);
    c->ctx->record = NULL;
    fsdpck_status st = o.st;
    if (st != FSDPCK_OK && err != NULL)
        *err = o.error;
    o.record = record.bytes;
    if (!record.lost && st != FSDPCK_CANCELLED) {
        const fsdpck_status shared = publish(c, &o, into, address, err);
        st = st == FSDPCK_OK ? shared : st;
    }
    open_record_release(&record);
    return st;
}

/* ---- the others ---- */

static fsdpck_status take(fsdpck_checkpoint *c, const open_request *req, catalogue *into,
                          fsdpck_error *err)
{
    table_file *f = &c->tables;
    outcome o = {.record = VEC_OF(uint8_t, NULL)};
    RETURN_IF(outcome_tables(&o, f, err));
    RETURN_IF(open_record_replay(&o.record, &req->log, req->found, req->found_ctx, err));
    if (o.st != FSDPCK_OK) {
        if (err != NULL)
            *err = o.error;
        return o.st;
    }
    RETURN_IF(catalogue_tables(into, f, err));
    return c->format->open_tables(req, into, f, &c->self, err);
}

/* From the leader of each host to the ranks there. st: only cancelled if this rank was. */
static fsdpck_status exchange(group *g, fsdpck_status st, unsigned leader,
                              table_file_address *address, fsdpck_error *err)
{
    table_file_address *all = calloc(group_size(g), sizeof *all);
    if (st == FSDPCK_OK && all == NULL)
        st = error_set_nomem(err, group_size(g) * sizeof *all);
    st = group_gather(g, st, GROUP_GOES_ON, address, sizeof *address, all, err);
    if (st == FSDPCK_OK)
        *address = all[leader];
    free(all);
    return st;
}

fsdpck_status open_once_read(fsdpck_checkpoint *c, const open_request *req, catalogue *into,
                             fsdpck_error *err)
{
    group *g = c->ctx->group;
    if (g == NULL || c->format->tables == NULL)
        return c->format->open(req, into, &c->self, err);
    const host_place here = find_place(g);
    const bool reads = here.leader == group_rank(g);
    table_file_address address = {0};
    fsdpck_status st = FSDPCK_OK;
    if (reads)
        st = here.is_alone ? c->format->open(req, into, &c->self, err)
                           : read_for_all(c, req, into, &address, err);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status agreed =
        exchange(g, st == FSDPCK_CANCELLED ? st : FSDPCK_OK, here.leader, &address, &what);
    if (st == FSDPCK_OK && agreed != FSDPCK_OK && err != NULL)
        *err = what;
    if (reads || agreed != FSDPCK_OK)
        return st != FSDPCK_OK ? st : agreed;
    if (address.nbytes > 0 &&
        table_file_open(&c->tables, &address, &c->metadata, NULL) == FSDPCK_OK)
        return take(c, req, into, err);
    return c->format->open(req, into, &c->self, err);
}
