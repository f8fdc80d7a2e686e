/* A file begins with a table_file_head; each table has a table_head and, from the next multiple of
 * ALIGN, its items. Room for more items has no pages until it is written. */
#include "base/table_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/platform.h"

#define MAGIC UINT64_C(0x7461626C65663031)
#define ALIGN UINT64_C(64)

typedef struct table_file_head {
    uint64_t magic, nonce, nbytes, used_nbytes;
} table_file_head;

typedef struct table_head {
    uint64_t item_nbytes, count, capacity;
} table_head;

_Static_assert(sizeof(table_file_head) <= ALIGN && sizeof(table_head) <= ALIGN,
               "heads fit the first units");

static uint64_t aligned(uint64_t nbytes)
{
    return (nbytes + ALIGN - 1) / ALIGN * ALIGN;
}

static fsdpck_status fail_form(fsdpck_error *err)
{
    return FAIL(err, INTERNAL, NONE, "shared tables have another form");
}

/* ---- writing ---- */

static fsdpck_status write_at(table_file *f, uint64_t at, const void *bytes, uint64_t nbytes,
                              fsdpck_error *err)
{
    const uint8_t *from = bytes;
    while (nbytes > 0) {
        const ssize_t n =
            pwrite(f->fd, from, nbytes < ((uint64_t)1 << 30) ? nbytes : (size_t)1 << 30, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set_errno(err, n < 0 ? errno : ENOSPC, "write", NULL);
        from += n;
        at += (uint64_t)n;
        nbytes -= (uint64_t)n;
    }
    return FSDPCK_OK;
}

static fsdpck_status write_table(table_file *f, const void *items, const table_head *head,
                                 fsdpck_error *err)
{
    const uint64_t nbytes = head->count * head->item_nbytes, at = f->at + ALIGN;
    RETURN_IF(write_at(f, f->at, head, sizeof *head, err));
    RETURN_IF(write_at(f, at, items, nbytes, err));
    f->at = at + aligned(head->capacity * head->item_nbytes);
    f->used_nbytes += ALIGN + nbytes;
    return FSDPCK_OK;
}

fsdpck_status table_file_create(table_file *f, fsdpck_error *err)
{
    *f = (table_file){0};
    const int rc = platform_memory_file(&f->fd);
    if (rc != 0)
        return error_set_errno(err, rc, "memfd_create", NULL);
    platform_random(&f->nonce, sizeof f->nonce);
    f->is_open = true;
    f->writes = true;
    f->at = ALIGN;
    f->used_nbytes = ALIGN;
    return FSDPCK_OK;
}

fsdpck_status table_file_finish(table_file *f, table_file_address *address, fsdpck_error *err)
{
    const table_file_head head = {MAGIC, f->nonce, f->at, f->used_nbytes};
    RETURN_IF(write_at(f, 0, &head, sizeof head, err));
    if (ftruncate(f->fd, (off_t)f->at) != 0)
        return error_set_errno(err, errno, "ftruncate", NULL);
    f->nbytes = f->at;
    *address = (table_file_address){(uint64_t)getpid(), f->nbytes, f->nonce, f->fd};
    return FSDPCK_OK;
}

/* ---- reading ---- */

static fsdpck_status map(table_file *f, uint64_t nonce, budget *owner, fsdpck_error *err)
{
    struct stat found;
    size_t size;
    if (fstat(f->fd, &found) != 0)
        return error_set_errno(err, errno, "fstat", NULL);
    if ((uint64_t)found.st_size != f->nbytes || !S_ISREG(found.st_mode) ||
        f->nbytes < sizeof(table_file_head) || !checked_size(f->nbytes, &size))
        return fail_form(err);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, f->fd, 0);
    if (memory == MAP_FAILED)
        return error_set_errno(err, errno, "mmap", NULL);
    const table_file_head *head = memory;
    const bool is_ours = head->magic == MAGIC && head->nonce == nonce &&
                         head->nbytes == f->nbytes && head->used_nbytes <= f->nbytes;
    const fsdpck_status st =
        is_ours ? budget_reserve(owner, head->used_nbytes, err) : fail_form(err);
    if (st != FSDPCK_OK) {
        (void)munmap(memory, size);
        return st;
    }
    f->memory = memory;
    f->nonce = nonce;
    f->used_nbytes = head->used_nbytes;
    f->owner = owner;
    f->writes = false;
    f->at = ALIGN;
    return FSDPCK_OK;
}

fsdpck_status table_file_map(table_file *f, budget *owner, fsdpck_error *err)
{
    return map(f, f->nonce, owner, err);
}

fsdpck_status table_file_open(table_file *f, const table_file_address *address, budget *owner,
                              fsdpck_error *err)
{
    *f = (table_file){0};
    const int rc = platform_open_memory_file(address->process, (int)address->fd, &f->fd);
    if (rc != 0)
        return error_set_errno(err, rc, "open", NULL);
    f->is_open = true;
    f->nbytes = address->nbytes;
    const fsdpck_status st = map(f, address->nonce, owner, err);
    table_file_withdraw(f);
    return st;
}

void table_file_withdraw(table_file *f)
{
    if (f->is_open)
        (void)close(f->fd);
    f->is_open = false;
}

void table_file_release(table_file *f)
{
    table_file_withdraw(f);
    if (f->memory != NULL) {
        (void)munmap(f->memory, (size_t)f->nbytes);
        budget_release(f->owner, f->used_nbytes);
    }
    *f = (table_file){0};
}

/* The next table, of items of this size. */
static fsdpck_status next_table(table_file *f, uint64_t item_nbytes, table_head *head,
                                uint8_t **items, fsdpck_error *err)
{
    uint64_t nbytes;
    if (f->memory == NULL || !checked_range(f->at, ALIGN, f->nbytes))
        return fail_form(err);
    memcpy(head, f->memory + f->at, sizeof *head);
    const uint64_t at = f->at + ALIGN;
    if (head->item_nbytes != item_nbytes || head->count > head->capacity ||
        !checked_mul(head->capacity, item_nbytes, &nbytes) || nbytes > f->nbytes ||
        !checked_range(at, aligned(nbytes), f->nbytes))
        return fail_form(err);
    *items = f->memory + at;
    f->at = at + aligned(nbytes);
    return FSDPCK_OK;
}

/* ---- tables ---- */

/* Later steps add some items, such as the tensors inside of objects. */
static uint64_t room_for(const vec *v)
{
    return v->count + v->count / 8 + 64;
}

fsdpck_status table_file_vec(table_file *f, vec *v, fsdpck_error *err)
{
    table_head head = {v->item_nbytes, v->count, room_for(v)};
    uint8_t *items;
    if (f->writes)
        return write_table(f, v->items, &head, err);
    RETURN_IF(next_table(f, v->item_nbytes, &head, &items, err));
    vec_release(v);
    v->items = items;
    v->count = (size_t)head.count;
    v->capacity = (size_t)head.capacity;
    v->borrowed = true;
    return FSDPCK_OK;
}

fsdpck_status table_file_strtab(table_file *f, strtab *t, fsdpck_error *err)
{
    RETURN_IF(table_file_bytes(f, &t->seed, sizeof t->seed, err));
    RETURN_IF(table_file_vec(f, &t->text, err));
    RETURN_IF(table_file_vec(f, &t->entries, err));
    return table_file_vec(f, &t->buckets, err);
}

fsdpck_status table_file_bytes(table_file *f, void *bytes, uint64_t nbytes, fsdpck_error *err)
{
    table_head head = {nbytes, 1, 1};
    uint8_t *items;
    if (f->writes)
        return write_table(f, bytes, &head, err);
    RETURN_IF(next_table(f, nbytes, &head, &items, err));
    if (head.count != 1)
        return fail_form(err);
    memcpy(bytes, items, (size_t)nbytes);
    return FSDPCK_OK;
}
