/* Memory of a simulated GPU. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_gpu.h"
#include "tests/support/must.h"

#define DEVICE_ALIGN 256u
/* No host has such addresses. */
#define FIRST_ADDRESS ((uint64_t)1 << 62)
#define ADDRESSES     ((uint64_t)1 << 44) /* of a fake */
#define GAP_NBYTES    ((uint64_t)1 << 20)

void fake_memory_init(fake_gpu *f)
{
    static atomic_uint ids;
    f->id = atomic_fetch_add(&ids, 1) % 1024 + 1;
    f->next_address = FIRST_ADDRESS + f->id * ADDRESSES;
    pthread_mutex_init(&f->lock, NULL);
}

void fake_memory_release(fake_gpu *f)
{
    MUST(f->device.count == 0 && f->pinned.count == 0);
    pthread_mutex_destroy(&f->lock);
}

/* False: no room. */
static bool add_range(fake_gpu *f, fake_ranges *r, uint64_t most, const fake_range *range)
{
    pthread_mutex_lock(&f->lock);
    const bool fits = most == 0 || r->nbytes + range->nbytes <= most;
    if (fits) {
        MUST(r->count < FAKE_RANGES_MAX);
        r->list[r->count++] = *range;
        r->nbytes += range->nbytes;
    }
    pthread_mutex_unlock(&f->lock);
    return fits;
}

static fake_range remove_range(fake_gpu *f, fake_ranges *r, uint64_t begin)
{
    fake_range found = {0};
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < r->count; i++)
        if (r->list[i].begin == begin) {
            found = r->list[i];
            r->list[i] = r->list[--r->count];
            r->nbytes -= found.nbytes;
            break;
        }
    pthread_mutex_unlock(&f->lock);
    MUST(found.bytes != NULL);
    return found;
}

/* NULL: no range has all of it. */
static uint8_t *find_bytes(fake_gpu *f, const fake_ranges *r, uint64_t at, uint64_t nbytes)
{
    uint8_t *found = NULL;
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < r->count && found == NULL; i++) {
        const fake_range *k = &r->list[i];
        if (at >= k->begin && at - k->begin < k->nbytes && nbytes <= k->nbytes - (at - k->begin))
            found = k->bytes + (at - k->begin);
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}

void *fake_pinned_new(fake_gpu *f, uint64_t nbytes)
{
    uint8_t *p = aligned_alloc(4096, nbytes + (4096 - nbytes % 4096) % 4096);
    MUST(p != NULL);
    if (add_range(f, &f->pinned, f->pinned_most, &(fake_range){(uintptr_t)p, nbytes, p}))
        return p;
    free(p);
    return NULL;
}

void fake_pinned_free(fake_gpu *f, void *memory, uint64_t nbytes)
{
    const fake_range range = remove_range(f, &f->pinned, (uintptr_t)memory);
    MUST(range.nbytes == nbytes);
    free(range.bytes);
}

bool fake_is_pinned(fake_gpu *f, const void *memory, uint64_t nbytes)
{
    return find_bytes(f, &f->pinned, (uintptr_t)memory, nbytes) != NULL;
}

gpu_address fake_device_new(fake_gpu *f, uint64_t nbytes)
{
    nbytes += (DEVICE_ALIGN - nbytes % DEVICE_ALIGN) % DEVICE_ALIGN;
    uint8_t *p = aligned_alloc(DEVICE_ALIGN, nbytes);
    MUST(p != NULL);
    if (!f->blank)
        memset(p, 0xA5, nbytes);
    pthread_mutex_lock(&f->lock);
    const gpu_address at = f->next_address;
    f->next_address += nbytes + GAP_NBYTES - nbytes % GAP_NBYTES;
    pthread_mutex_unlock(&f->lock);
    if (!add_range(f, &f->device, f->device_most, &(fake_range){at, nbytes, p})) {
        free(p);
        return 0;
    }
    atomic_fetch_add(&f->device_nbytes, nbytes);
    return at;
}

void fake_device_free(fake_gpu *f, gpu_address memory)
{
    free(remove_range(f, &f->device, memory).bytes);
}

uint8_t *fake_device_bytes(fake_gpu *f, gpu_address at, uint64_t nbytes)
{
    uint8_t *bytes = find_bytes(f, &f->device, at, nbytes);
    must(bytes != NULL, "no memory of the device is at this address");
    return bytes;
}
