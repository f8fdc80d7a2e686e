/* The JSON text of objects in an HDF5 file: accepted text that can be written is read back as the
 * same objects. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5/hdf5_objects.h"

#define BUDGET_BYTES ((uint64_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static bool all_are_held(const catalogue *cat)
{
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        if (!hdf5_holds_object(&cat->pool, catalogue_object(cat, i)->content))
            return false;
    return true;
}

static void check_again(const catalogue *cat, budget *owner, const text_buf *told)
{
    catalogue again;
    text_buf same = {0};
    fsdpck_error err;
    catalogue_init(&again, owner);
    if (hdf5_objects_read(&again, told->text, told->nbytes, FSDPCK_FINDING_H5_OBJECTS, &err) !=
            FSDPCK_OK ||
        hdf5_objects_write(&again, &same, &err) != FSDPCK_OK || same.nbytes != told->nbytes ||
        memcmp(same.text, told->text, same.nbytes) != 0 ||
        catalogue_object_count(&again) != catalogue_object_count(cat))
        abort();
    text_release(&same);
    catalogue_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    budget owner;
    catalogue cat;
    text_buf told = {0};
    fsdpck_error err;
    budget_init(&owner, BUDGET_BYTES, "metadata", NULL);
    catalogue_init(&cat, &owner);
    fsdpck_error_init(&err);
    if (hdf5_objects_read(&cat, (const char *)data, nbytes, FSDPCK_FINDING_H5_OBJECTS, &err) ==
            FSDPCK_OK &&
        catalogue_object_count(&cat) > 0 && all_are_held(&cat)) {
        if (hdf5_objects_write(&cat, &told, &err) != FSDPCK_OK)
            abort();
        check_again(&cat, &owner, &told);
    }
    text_release(&told);
    catalogue_release(&cat);
    if (owner.used_bytes != 0)
        abort();
    return 0;
}
